//! `cargo xtask test`.

use crate::setup::Engine;
use crate::skips::SkipLog;
use crate::{outside, setup, step, workspace};
use anyhow::{Context, Result, bail};

/// What to test.
#[derive(clap::Args, Default)]
pub struct TestOptions {
    /// Also run the tests that take minutes or gigabytes.
    #[arg(long)]
    long: bool,
    /// Run only the tests whose name contains this, and no check from outside.
    filter: Option<String>,
}

/// Sets up, tests, and says what was skipped; the summary is printed also when a test failed.
pub fn run(options: &TestOptions) -> Result<()> {
    let engine = setup::run()?;
    let skips = SkipLog::begin()?;
    // Where the engine could be started, a test that needs one has no excuse.
    let strict = workspace::in_ci() && engine == Engine::Answers;

    let mut failures = Vec::new();
    if let Err(error) = cargo_test(options, &skips, strict) {
        failures.push(error);
    }
    if options.filter.is_none()
        && let Err(error) = outside::check().context("the check from outside failed")
    {
        failures.push(error);
    }
    if let Err(error) = skips.report(strict) {
        failures.push(error);
    }

    for error in &failures {
        eprintln!("xtask: FAILED: {error:#}");
    }
    if !failures.is_empty() {
        bail!("{} of the test steps failed", failures.len());
    }
    Ok(())
}

fn cargo_test(options: &TestOptions, skips: &SkipLog, strict: bool) -> Result<()> {
    let mut command = workspace::cargo();
    // Without --all-targets, so that the examples in the documentation run too.
    command.args(["test", "--workspace", "--all-features", "--no-fail-fast"]);
    command.args(&options.filter);
    command.env("STEAD_SKIP_LOG", skips.path());
    if strict {
        command.env("STEAD_TEST_NO_SKIP", "1");
    }
    if options.long {
        command.env("STEAD_TEST_LONG", "1");
    }
    step::run(&mut command)
}
