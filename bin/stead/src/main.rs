//! The `stead` command: arguments, configuration, signals and exit codes. Everything else is the library's.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use stead_cli::args::Cli;
use stead_cli::{commands, failure};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers and go to standard output; mistakes are not.
            let code = if error.use_stderr() { failure::USAGE } else { 0 };
            // Whoever reads our output may be gone.
            let _ = error.print();
            return ExitCode::from(code);
        }
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
