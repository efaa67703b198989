//! The parts of the `stead` command that are worth testing by themselves: what is read from the command
//! line and the configuration files, and how results are printed.
#![forbid(unsafe_code)]

pub mod args;
pub mod colour;
pub mod commands;
pub mod config;
pub mod environment;
pub mod failure;
pub mod output;
pub mod terminal;
pub mod usage;
