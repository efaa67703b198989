//! The example of the README, see build.rs.
#![forbid(unsafe_code)]

include!(concat!(env!("OUT_DIR"), "/example.rs"));
