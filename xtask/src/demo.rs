//! `cargo xtask demo`: the shortest way from a fresh machine to a command in a container.

use crate::{setup, step, workspace};
use anyhow::Result;
use std::ffi::OsString;

/// What to run.
#[derive(clap::Args)]
pub struct DemoOptions {
    /// The command.
    #[arg(last = true, required = true)]
    argv: Vec<OsString>,
}

/// Sets up, builds, runs.
pub fn run(options: &DemoOptions) -> Result<()> {
    setup::run()?;
    let mut command = workspace::cargo();
    command.args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "stead-cli",
        "--",
        "run",
    ]);
    command
        .args(["--image", "stead-test/busybox:1", "--"])
        .args(&options.argv);
    step::run(&mut command)
}
