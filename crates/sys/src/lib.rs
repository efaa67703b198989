//! The only crate of Stead with unsafe code: making processes, and the few calls that the safe crates lack.
//!
//! Each system call that can fail has one place here, and the error is the system's own.
#![cfg(target_os = "linux")]

mod launch;
mod signals;
mod solo;
mod vfork;

pub use launch::{Identity, Launch, LaunchFailure, Launched, Stage, launch};
pub use signals::{SignalFd, block_all_signals, reset_dispositions};
pub use solo::{Forked, cloexec_inherited, close_all_except, exit_now, fork_single_threaded, take_inherited};
