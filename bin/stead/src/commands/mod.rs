//! What each command does.

mod instances;
mod run;
mod run_options;
mod show;
mod signals;
mod tool;

use crate::args::{Cli, Command, ConfigCommand, ToolCommand};
use crate::config::{self, Config};
use crate::failure::Failure;

/// Runs a command and gives the exit code.
pub async fn dispatch(cli: Cli) -> Result<u8, Failure> {
    match cli.command {
        // These two must work whatever the configuration says.
        Command::Completions { shell } => show::completions(shell),
        Command::Man => show::man(),
        command => configured(command).await,
    }
}

async fn configured(command: Command) -> Result<u8, Failure> {
    let config = load()?;
    start_log(&config);
    match command {
        Command::Run(run) => run::run(*run, &config).await,
        Command::Providers(format) => show::providers(format).await,
        Command::Ps(format) => instances::ps(format).await,
        Command::Prune(format) => instances::prune(format).await,
        Command::Rm(rm) => instances::rm(rm).await,
        Command::Tool {
            command: ToolCommand::Run(tool),
        } => tool::run(tool).await,
        Command::Config {
            command: ConfigCommand::Show(format),
        } => show::config(&config, format),
        Command::Completions { shell } => show::completions(shell),
        Command::Man => show::man(),
    }
}

fn load() -> Result<Config, Failure> {
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    config::load(&here, |name| std::env::var(name).ok()).map_err(|error| {
        Failure::new(
            "config_file_invalid",
            error.to_string(),
            "Correct the file; `stead config show` reads it again.",
        )
        .exiting(crate::failure::USAGE)
    })
}

fn start_log(config: &Config) {
    use tracing_subscriber::EnvFilter;
    let filter =
        EnvFilter::try_new(config.get("log").unwrap_or("warn")).unwrap_or_else(|_| EnvFilter::new("warn"));
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
    let terminal = rustix::termios::isatty(rustix::stdio::stderr());
    // A second log in one process is the first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal && !plain)
        .without_time()
        .with_target(false)
        .try_init();
}
