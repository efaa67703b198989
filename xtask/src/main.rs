//! Set-up, tests and CI of this workspace. `cargo xtask --help` lists the tasks.
#![forbid(unsafe_code)]

mod bench;
mod ci;
mod demo;
mod deny;
mod outside;
mod setup;
mod skips;
mod step;
mod test;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Set-up, tests and CI of this workspace")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what the tests need, start a container engine, build the test images.
    ///
    /// Changes the machine only as root on Debian; elsewhere it says what is missing and goes on.
    Setup,
    /// Set up, then run every test, the examples of the documentation and the check from outside.
    Test(test::TestOptions),
    /// Set up, then run a command in a container of the test image.
    Demo(demo::DemoOptions),
    /// Measure what users wait for, and write docs/benchmarks.md.
    Bench,
    /// Everything that has to pass before a change lands.
    Ci,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Setup => setup::run().map(drop),
        Task::Test(options) => test::run(&options),
        Task::Demo(options) => demo::run(&options),
        Task::Bench => bench::run(),
        Task::Ci => ci::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not Debug: a backtrace of xtask says nothing about what it ran.
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
