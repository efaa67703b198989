//! What each command does.

mod doctor;
mod image;
mod image_progress;
mod instances;
mod pages;
mod run;
mod run_options;
mod show;
mod signals;
mod tool;

use crate::args::{Cli, Command, ConfigCommand, ToolCommand};
use crate::config::value::DEFAULT_LOG;
use crate::config::{self, Config};
use crate::environment::Environment;
use crate::failure::Failure;

/// Runs a command and gives the exit code.
pub async fn dispatch(cli: Cli) -> Result<u8, Failure> {
    match cli.command {
        // These must work whatever the configuration says.
        Command::Completions { shell } => pages::completions(shell),
        Command::Man(man) => pages::man(&man),
        Command::Help { command } => pages::help(&command),
        command => configured(command).await,
    }
}

async fn configured(command: Command) -> Result<u8, Failure> {
    let config = load()?;
    start_log(&config);
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    match command {
        Command::Run(run) => run::run(*run, &config).await,
        Command::Providers(format) => show::providers(format).await,
        Command::Doctor(options) => doctor::doctor(options, &config).await,
        Command::Ps(format) => instances::ps(format).await,
        Command::Prune(format) => instances::prune(format).await,
        Command::Rm(rm) => instances::rm(rm).await,
        Command::Tool {
            command: ToolCommand::Run(tool),
        } => tool::run(tool).await,
        Command::Config {
            command: ConfigCommand::Show(format),
        } => show::config(&config, format),
        Command::Image { command } => image::run(command).await,
        Command::Completions { shell } => pages::completions(shell),
        Command::Man(man) => pages::man(&man),
        Command::Help { command } => pages::help(&command),
    }
}

fn load() -> Result<Config, Failure> {
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    Ok(config::load(&here, &Environment::of_process())?)
}

fn start_log(config: &Config) {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_new(config.get("log").unwrap_or(DEFAULT_LOG))
        .unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG));
    // A second log in one process is the first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(crate::colour::on_stderr())
        .without_time()
        .with_target(false)
        .try_init();
}
