//! Rules of the house that no compiler holds: who may depend on whom, a page for each error code,
//! unsafe code in one crate only.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "whatever cannot be read here is a failed test")]

mod dependency_graph;
mod error_codes;
mod source;
mod tracked_text;
mod unsafe_code;
