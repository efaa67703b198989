//! The contract that every way to run a command fulfils, and what is built on it alone: the registry,
//! placement, tool places, out-of-process providers, and the conformance kit.
#![forbid(unsafe_code)]

pub mod automatic;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod external;
pub mod files;
pub mod placement;
pub mod process;
pub mod registry;
pub mod selection;
pub mod tool;

pub use contract::Provider;
pub use external::ExternalProvider;
pub use files::Files;
pub use placement::{Placement, RunOn};
pub use process::{OutputChunk, Process, ProcessControl, ProcessExit, SignalTarget};
pub use registry::{Factory, ProviderDescription, Registry, Target};
pub use tool::{PlaceFile, ToolCommand, ToolError, ToolPlace};

#[cfg(test)]
mod fake;
