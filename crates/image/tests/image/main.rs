//! Images from outside: one program, so that its parts share what they are tested with.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod bad_servers;
mod pull;
mod store;
mod support;
mod unpack;
