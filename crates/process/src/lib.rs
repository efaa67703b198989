//! The process core: what is the same wherever a command runs.
//!
//! A [`Command`] is driven by a poll loop: readiness of its descriptors, the end of its leader, the
//! host's requests and the clock go in; messages of the wire protocol come out of an [`Outbox`].
//!
//! ```text
//! start ─► launching ─► running ──leader exits──► sweeping ─► ended
//!              │           │ timeout, cancel                    ▲
//!              ▼           ▼                                    │
//!           failed      stopping (SIGTERM, grace, SIGKILL) ─────┘
//! ```
//! launching: the child exists and has not executed the program. running: it has. sweeping: the leader
//! is gone and the rest of its tree is being killed (with `Keep` it lives on and this state is skipped).
//! stopping: we ended it; the state lasts until the whole tree is confirmed gone.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod command;
mod input;
mod memory;
mod output;
mod poll;
mod program;
mod streams;
mod tree;
pub mod user;

pub use command::{Command, LaunchFailed, Outbox, Place};
pub use memory::MemoryWatch;
pub use poll::{Interest, Part, Poller, Token};
pub use tree::{TreeFactory, TreeMode, kill_adopted};
