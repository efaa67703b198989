//! Gives an AI agent's tools and code a place to run, in the host's stead.
//!
//! A [provider](Provider) is a way to obtain an [instance](ComputeInstance), a live place. Commands are
//! executed there, and the place is shut down:
//!
//! ```no_run
//! use stead::{ComputeConfig, resolve};
//!
//! # async fn run() -> Result<(), stead::ComputeError> {
//! let docker = resolve("docker")?.expect("a name was given");
//! let place = docker.provision(ComputeConfig::new().image("python:3.11-slim")).await?;
//! let result = docker.execute(&place.id, r#"python -c "print(2+2)""#.into(), ComputeConfig::new()).await?;
//! assert_eq!(result.stdout_text(), "4\n");
//! docker.shutdown(&place.id).await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`ToolPlace`] puts a provider behind an agent's tools.
#![forbid(unsafe_code)]

mod builtins;

pub use builtins::{registry, resolve};
#[cfg(all(feature = "image", target_os = "linux"))]
pub use stead_image as image;
#[cfg(feature = "conformance")]
pub use stead_provider::conformance;
pub use stead_provider::{
    ExternalProvider, Files, OutputChunk, PlaceFile, Placement, Process, ProcessControl, ProcessExit,
    Provider, ProviderDescription, Registry, RunOn, SignalTarget, Target, ToolCommand, ToolError, ToolPlace,
    automatic, contract, placement, registry::LOCAL, selection, tool,
};
#[cfg(feature = "docker")]
pub use stead_providers::docker::{DockerProvider, address::Address as DockerAddress};
#[cfg(all(target_os = "linux", feature = "local"))]
pub use stead_providers::doctor;
#[cfg(feature = "local")]
pub use stead_providers::local::LocalProvider;
#[cfg(feature = "native")]
pub use stead_providers::native::NativeProvider;
pub use stead_types::*;

/// Bytes of the supervisor that is embedded in this library; 0 where there is none for the platform.
pub const SUPERVISOR_SIZE: usize = stead_providers::supervisor::SUPERVISOR.len();
