//! Images for places that have no engine to ask: pulled from a registry, an OCI layout, an archive or the
//! local engine, verified, and unpacked as layers that overlayfs can mount.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use stead_image::{Platform, PullOptions, Reference, Store};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open_default()?;
//! let busybox: Reference = "busybox:1".parse()?;
//! store.pull(&busybox, &PullOptions::default(), &|_| ControlFlow::Continue(()))?;
//! let (image, lease) = store.lease(&busybox, &Platform::of_this_host())?;
//! println!("lowerdir={:?}", image.layers);
//! # drop(lease);
//! # Ok(())
//! # }
//! ```
//!
//! Nothing that comes from outside is trusted: every document and blob is verified by digest and size, and
//! [`Limits`] bound the rest. How layers are unpacked is in [`unpack`], how they are kept in [`Store`].
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod digest;
mod error;
mod event;
mod limits;
mod manifest;
mod platform;
mod pull;
mod reference;
mod source;
mod store;
mod transfer;
pub mod unpack;

pub use digest::{Digest, NoDigest};
pub use error::{PullError, StoreError};
pub use event::{OnEvent, PullEvent};
pub use limits::Limits;
pub use manifest::ImageConfig;
pub use platform::{NoPlatform, Platform};
pub use pull::{Login, PullOptions};
pub use reference::{Reference, ReferenceError, RegistryName};
pub use source::http::Patience;
pub use store::{Image, ImageRecord, Lease, Removed, Store, data_folder};
