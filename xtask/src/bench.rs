//! The measurements of docs/benchmarks.md.

use crate::{setup, step, workspace};
use anyhow::Result;

/// Sets up, builds everything as a release, and measures.
pub fn run() -> Result<()> {
    setup::run()?;
    step::run(workspace::cargo().args([
        "build",
        "--release",
        "--package",
        "stead-cli",
        "--package",
        "stead-bench",
    ]))?;
    let release = workspace::target().join("release");
    let mut bench = std::process::Command::new(release.join("stead-bench"));
    step::run(bench.env("STEAD_BENCH_BINARY", release.join("stead")))
}
