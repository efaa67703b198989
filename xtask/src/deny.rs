//! Licences, bans and sources of the dependencies, by cargo-deny and deny.toml.

use crate::{step, workspace};
use anyhow::Result;
use std::path::PathBuf;
use std::process::Command;

/// What is built where cargo-deny is not installed; an installed one may be newer.
const VERSION: &str = "0.20.2";

/// Checks all but the advisories: their database is fetched from the net, which a build may not have.
/// `cargo deny check advisories` does it by hand.
pub fn check() -> Result<()> {
    let mut command = Command::new(program()?);
    command.current_dir(workspace::root());
    step::run(command.args(["--all-features", "check", "licenses", "bans", "sources"]))
}

fn program() -> Result<PathBuf> {
    if let Some(installed) = workspace::find_program("cargo-deny") {
        return Ok(installed);
    }
    let tools = workspace::target().join("tools");
    let built = tools.join("bin/cargo-deny");
    if !built.is_file() {
        let mut command = workspace::cargo();
        command
            .args([
                "install",
                "cargo-deny",
                "--locked",
                "--version",
                VERSION,
                "--root",
            ])
            .arg(&tools);
        // Kept, so that a build that was interrupted goes on where it was.
        command.env("CARGO_TARGET_DIR", tools.join("build"));
        step::run(&mut command)?;
    }
    Ok(built)
}
