//! The built-in providers, as modules behind features. They differ only in how a place is made and
//! destroyed: in each of them the supervisor runs, and a [`link`] speaks with it.
#![forbid(unsafe_code)]

mod adopt;
#[cfg(feature = "docker")]
pub mod docker;
#[cfg(feature = "docker")]
pub mod guard;
pub mod link;
#[cfg(feature = "local")]
pub mod local;
pub mod place;
pub mod state;
pub mod supervisor;

#[cfg(feature = "docker")]
pub use docker::DockerProvider;
#[cfg(feature = "local")]
pub use local::LocalProvider;
