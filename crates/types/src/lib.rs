//! Ids, configuration, results and error codes that every part of Stead shares, and nothing more.
#![forbid(unsafe_code)]

pub mod axes;
pub mod command;
pub mod config;
pub mod env;
pub mod error;
pub mod file;
pub mod instance;
pub mod network;
pub mod result;
pub mod secret;
pub mod size;

pub use axes::{Axes, Axis};
pub use command::{CommandLine, InvalidInput};
pub use config::{ComputeConfig, Descendants, InheritEnv, Mount, Resources, Stdin, TerminalSize, Timeout};
pub use env::EnvMap;
pub use error::{
    Availability, Code, ComputeError, ExecuteError, FilesError, ListError, MemoryError, Missing,
    ProvisionError, ResolveError, ShutdownError,
};
pub use file::{FileEntry, FileKind};
pub use instance::{ComputeInstance, InstanceId, InstanceStatus};
pub use network::NetworkPolicy;
pub use result::{ExecResult, Stream};
