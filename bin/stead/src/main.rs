//! The `stead` command: arguments, configuration, signals and exit codes. Everything else is the library's.
#![forbid(unsafe_code)]

use clap::Parser;
use std::ffi::OsString;
use std::process::ExitCode;
use stead_cli::args::Cli;
use stead_cli::{commands, failure, usage};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(usage::report(error, &args)),
    };
    let json = cli.json();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: the runtime could not be started: {error}");
            return ExitCode::from(failure::STEAD_FAILED);
        }
    };
    let code = runtime
        .block_on(commands::dispatch(cli))
        .unwrap_or_else(|failure| failure.report(json));
    // A read from a terminal may still be waiting; nothing that matters is.
    runtime.shutdown_background();
    ExitCode::from(code)
}
