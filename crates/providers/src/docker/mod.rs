//! Containers of a Docker or Podman engine.
//!
//! What is decided is decided purely: [`options`] reads what was asked, [`plan`] makes the whole request
//! of it. [`engine`] keeps the connection and its deadlines, [`image`] and [`container`] act. [`provider`]
//! puts them together and gives the place a link to its supervisor.

pub mod address;
pub mod archive;
pub mod capability;
pub mod container;
mod dial;
pub mod engine;
pub mod error;
pub mod image;
pub mod labels;
pub mod mounts;
pub mod options;
pub mod plan;
pub mod provider;
mod provision;
pub mod reference;
pub mod relay;
pub mod remove;
mod seccomp;
pub mod weaker;

pub use provider::DockerProvider;

/// The name under which the provider is registered.
pub const PROVIDER: &str = "docker";
