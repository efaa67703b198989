//! `cargo xtask setup`: packages, a container engine, the test images.
//!
//! Each step looks first and acts only on what is missing, so that running it again is free. What it
//! may not do here it says, and goes on: a developer without root still runs every other test.

mod engine;
#[cfg(unix)]
mod images;
mod packages;

pub use engine::Engine;

use crate::step;
use anyhow::Result;
use std::process::Command;

/// Prepares the machine. Says whether a container engine answers.
pub fn run() -> Result<Engine> {
    packages::install()?;
    let engine = engine::start()?;
    match engine {
        #[cfg(unix)]
        Engine::Answers => images::build()?,
        #[cfg(not(unix))]
        Engine::Answers => {}
        Engine::Absent => eprintln!("xtask: tests that need a container engine will be skipped"),
    }
    Ok(engine)
}

fn is_root() -> bool {
    step::output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0")
}
