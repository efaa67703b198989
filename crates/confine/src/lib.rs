//! Confinement of a place: a [`Policy`] is what is wanted, a [`Plan`] is what is done about it, step by step,
//! and both are values.
//!
//! ```text
//! Policy + Host ──compile (pure)──► Plan ──enforce (in the supervisor, feature `enforce`)──► Report
//! ```
//! A policy has no field for a mechanism: no mount flags, no filter, no rule can be passed through. A plan is
//! whole or refused: the first step that fails ends the place before anything runs in it.
#![forbid(unsafe_code)]

mod compile;
#[cfg(all(feature = "enforce", target_os = "linux"))]
pub mod enforce;
mod host;
mod kept;
mod plan;
mod policy;
pub mod system_calls;

pub use compile::compile;
pub use host::{Host, RootEntry};
pub use kept::Kept;
pub use plan::{
    Bind, Capability, ControlGroup, IdRange, LandlockRules, Layers, Namespace, Plan, ResourceLimit, Root,
    Step, UserNamespace,
};
pub use policy::{Grant, ImageRoot, Limits, Network, Policy};
