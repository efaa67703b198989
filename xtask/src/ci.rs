//! `cargo xtask ci`: the quick checks first, because most changes fail there.

use crate::test::TestOptions;
use crate::{deny, step, test, workspace};
use anyhow::Result;

/// Runs all checks and stops at the first that fails.
pub fn run() -> Result<()> {
    step::run(workspace::cargo().args(["fmt", "--all", "--check"]))?;
    let clippy = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ];
    step::run(workspace::cargo().args(clippy))?;
    deny::check()?;
    // The program and the library are both called stead, and would write to the same page.
    let doc = [
        "doc",
        "--workspace",
        "--exclude",
        "stead-cli",
        "--all-features",
        "--no-deps",
    ];
    step::run(workspace::cargo().args(doc).env("RUSTDOCFLAGS", "-D warnings"))?;
    test::run(&TestOptions::default())
}
