//! The only crate of Stead with unsafe code: making processes, and the few calls that the safe crates lack.
//!
//! Each system call that can fail has one place here, and the error is the system's own.
#![cfg(target_os = "linux")]

mod attempts;
mod filter;
mod launch;
mod namespaces;
mod signals;
mod solo;
mod vfork;

pub use attempts::{DangerousCall, attempt_ptrace, attempt_socket};
pub use filter::{FilterInstruction, filter_system_calls};
pub use launch::{Identity, Launch, LaunchFailure, Launched, Stage, execute, launch};
pub use namespaces::{
    MountAttributes, bring_up_loopback, enter_cgroup_namespace, enter_user_namespace, fork_into,
    landlock_version, map_owners, set_mount_attributes,
};
pub use signals::{SignalFd, block_all_signals, reset_dispositions};
pub use solo::{Forked, cloexec_inherited, close_all_except, exit_now, fork_single_threaded, take_inherited};
