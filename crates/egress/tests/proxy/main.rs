//! The proxy from both sides: with names and connections by script, and with real ones between network namespaces.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod bounds;
mod namespaces;
mod requests;
mod tunnels;
mod world;
