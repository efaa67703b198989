//! The built-in providers, as modules behind features. They differ only in how a place is made and
//! destroyed: in each of them the supervisor runs, and a [`link`] speaks with it.
#![forbid(unsafe_code)]

mod adopt;
#[cfg(feature = "docker")]
pub mod docker;
#[cfg(all(target_os = "linux", feature = "local"))]
pub mod doctor;
#[cfg(any(feature = "docker", feature = "gvisor", feature = "native"))]
mod grants;
#[cfg(feature = "docker")]
pub mod guard;
#[cfg(feature = "gvisor")]
pub mod gvisor;
#[cfg(any(feature = "gvisor", feature = "local", feature = "native"))]
pub mod hosted;
pub mod link;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "native")]
pub mod native;
mod observed;
pub mod place;
pub mod state;
pub mod supervisor;

#[cfg(feature = "docker")]
pub use docker::DockerProvider;
#[cfg(feature = "gvisor")]
pub use gvisor::GvisorProvider;
#[cfg(feature = "local")]
pub use local::LocalProvider;
#[cfg(feature = "native")]
pub use native::NativeProvider;
