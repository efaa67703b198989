//! The command line.

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;

/// Gives an AI agent's tools and code a place to run, in the host's stead.
#[derive(Debug, Parser)]
#[command(name = "stead", version, max_term_width = 100, disable_help_subcommand = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Whether data is printed as JSON.
    pub fn json(&self) -> bool {
        match &self.command {
            Command::Run(run) => run.json,
            Command::Providers(format) | Command::Ps(format) | Command::Prune(format) => format.json,
            Command::Doctor(doctor) => doctor.format.json,
            Command::Rm(rm) => rm.format.json,
            Command::Tool {
                command: ToolCommand::Run(tool),
            } => tool.format.json,
            Command::Config {
                command: ConfigCommand::Show(format),
            } => format.json,
            Command::Image { command } => command.json(),
            Command::Completions { .. } | Command::Man(_) | Command::Help { .. } => false,
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one command in a fresh place, and take the place away again
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<Run>),
    /// List the providers and whether they can be used here
    #[command(after_help = PROVIDERS_EXAMPLE)]
    Providers(Format),
    /// Try an attack in a real place of each provider, and tell what isolation was observed
    #[command(after_help = "Example:\n  stead doctor --provider native")]
    Doctor(Doctor),
    /// List the instances of this host, also those of other processes
    #[command(after_help = "Example:\n  stead ps --json")]
    Ps(Format),
    /// Remove what processes that are gone have left
    #[command(after_help = "Example:\n  stead prune")]
    Prune(Format),
    /// Shut an instance down and confirm that it is gone
    #[command(after_help = "Example:\n  stead rm 0190b5f0-6d1c-7cc0-9d3e-2f1f4d0a7b11")]
    Rm(Rm),
    /// Call tools through a declared place
    #[command(after_help = "Example:\n  stead tool run place.toml greet --arg who=world")]
    Tool {
        /// What to do with tools.
        #[command(subcommand)]
        command: ToolCommand,
    },
    /// Images for places that have no engine to ask: pull, list and remove them
    #[command(after_help = "Example:\n  stead image pull busybox:1")]
    Image {
        /// What to do with images.
        #[command(subcommand)]
        command: ImageCommand,
    },
    /// Look at the configuration
    #[command(after_help = "Example:\n  stead config show")]
    Config {
        /// What to do with the configuration.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print the completions for a shell
    #[command(after_help = "Example:\n  stead completions bash > /etc/bash_completion.d/stead")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print a manual page, or write all of them
    #[command(after_help = MAN_EXAMPLES)]
    Man(Man),
    /// Print the help of a command
    #[command(after_help = "Example:\n  stead help tool run")]
    Help {
        /// The command, as it is called; none is the program itself
        #[arg(value_name = "COMMAND")]
        command: Vec<String>,
    },
}

const EXAMPLES: &str = "Examples:
  stead run --image python:3.11-slim -- python -c 'print(2+2)'
  stead providers
  stead help run";

const PROVIDERS_EXAMPLE: &str = "ISOLATION tells which axes were observed to hold here: processes (process_contained), files
(host_filesystem_restricted), privileges (privilege_escalation_blocked), syscalls (syscalls_restricted), network
(network_restricted); none where all are known not to hold, unknown where nobody looked.

Example:
  stead providers --json";

const MAN_EXAMPLES: &str = "Examples:
  stead man | man -l -
  stead man tool run
  stead man --dir /usr/local/share/man/man1";

const RUN_EXAMPLES: &str = "Examples:
  stead run --image python:3.11-slim -- python -c 'print(2+2)'
  echo hello | stead run --image busybox -i -- cat
  stead run --provider local --timeout 5s --shell 'sleep 60; echo late'

Exit codes: the command's own; 124 timed out, 125 Stead itself failed, 126 not executable,
127 not found, 128+n ended by signal n, 2 wrong usage.";

/// How data is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct Format {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `stead run`.
#[derive(Debug, Args)]
pub struct Run {
    /// The provider, or auto: the first that isolates and can be used here, never this host
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// The image of docker [default: python:3.11-slim]; local and native take none
    #[arg(long)]
    pub image: Option<String>,
    /// Where the command starts, an absolute path in the place; only local takes a relative one, which is
    /// meant from here [default: /workspace on docker and native, a fresh empty directory on local]
    #[arg(long, value_name = "DIR")]
    pub workdir: Option<PathBuf>,
    /// The user in the place: name, uid, name:group or uid:gid
    #[arg(long)]
    pub user: Option<String>,
    /// Grant a directory or file of the host to the place
    #[arg(short = 'v', long = "mount", value_name = "HOST[:PLACE[:ro]]")]
    pub mounts: Vec<String>,
    /// Set a variable; without a value it is taken from this environment
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// End the command after so long, such as 500ms, 30s or 5m; never is never [default: 60s]
    #[arg(long)]
    pub timeout: Option<String>,
    /// Processors, such as 0.5
    #[arg(long)]
    pub cpu: Option<f64>,
    /// Memory, such as 512MiB [default: 2GiB, no limit on local]
    #[arg(long)]
    pub memory: Option<String>,
    /// Processes and threads at once [default: 512, no limit on local]
    #[arg(long)]
    pub pids: Option<u64>,
    /// none, full, or a list of domains with commas, which no built-in provider honours yet [default: none
    /// where it can be enforced]
    #[arg(long)]
    pub network: Option<String>,
    /// An option of the provider, as JSON or plain text
    #[arg(long = "option", value_name = "NAME=JSON")]
    pub options: Vec<String>,
    /// Pass standard input on
    #[arg(short = 'i', long)]
    pub stdin: bool,
    /// Give the command a terminal
    #[arg(short = 't', long, conflicts_with = "json")]
    pub tty: bool,
    /// Print one JSON document with the result
    #[arg(long)]
    pub json: bool,
    /// Text for the place's /bin/sh instead of a command
    #[arg(long, value_name = "TEXT", conflicts_with = "argv")]
    pub shell: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "shell", value_name = "CMD")]
    pub argv: Vec<OsString>,
}

/// Options of `stead man`.
#[derive(Debug, Args)]
pub struct Man {
    /// Write the pages of all commands into this directory instead
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
    /// The command whose page is printed, as it is called; none is the program itself
    #[arg(value_name = "SUBCOMMAND")]
    pub command: Vec<String>,
}

/// Options of `stead rm`.
#[derive(Debug, Args)]
pub struct Rm {
    /// The instance, as `stead ps` lists it
    pub id: String,
    /// How data is printed.
    #[command(flatten)]
    pub format: Format,
}

/// Commands of `stead tool`.
#[derive(Debug, Subcommand)]
pub enum ToolCommand {
    /// Call one tool in the place that a TOML or JSON file declares, and print what it prints
    #[command(after_help = "Example:\n  stead tool run place.toml greet --arg who=world")]
    Run(ToolRun),
}

/// Options of `stead tool run`.
#[derive(Debug, Args)]
pub struct ToolRun {
    /// The file that declares the place
    #[arg(value_name = "PLACEFILE")]
    pub file: PathBuf,
    /// The tool
    pub tool: String,
    /// An argument that is a text
    #[arg(long = "arg", value_name = "NAME=TEXT")]
    pub args: Vec<String>,
    /// An argument that is any JSON
    #[arg(long = "arg-json", value_name = "NAME=JSON")]
    pub json_args: Vec<String>,
    /// How data is printed.
    #[command(flatten)]
    pub format: Format,
}

/// Commands of `stead config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print the effective values and where each came from
    #[command(after_help = "Example:\n  stead config show --json")]
    Show(Format),
}

/// Commands of `stead image`.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Pull an image and unpack its layers
    #[command(after_help = IMAGE_PULL_EXAMPLES)]
    Pull(ImagePull),
    /// List the images
    #[command(after_help = "Example:\n  stead image ls --json")]
    Ls(Format),
    /// Remove an image, and the layers that nothing else needs
    #[command(
        after_help = "Examples:\n  stead image rm busybox:1\n  stead image rm 3fbc632167424a6d997e74f52b878d7c"
    )]
    Rm(ImageRm),
    /// Remove layers that no image needs, and what broken pulls have left
    #[command(after_help = "Example:\n  stead image prune")]
    Prune(Format),
}

impl ImageCommand {
    fn json(&self) -> bool {
        match self {
            Self::Pull(pull) => pull.format.json,
            Self::Ls(format) | Self::Prune(format) => format.json,
            Self::Rm(rm) => rm.format.json,
        }
    }
}

const IMAGE_PULL_EXAMPLES: &str = "REF is one of
  [HOST[:PORT]/]NAME[:TAG][@DIGEST]  an image of a registry; without a host Docker Hub's
  oci:PATH[:TAG]                     an OCI layout folder
  docker-archive:PATH[:NAME]         what docker save wrote
  docker-daemon:NAME                 an image of the local engine

Examples:
  stead image pull python:3.11-slim
  stead image pull ghcr.io/a/b:1 --username me --password-secret ghcr
  stead image pull oci:./layout:1 --platform linux/arm64";

/// Options of `stead image pull`.
#[derive(Debug, Args)]
pub struct ImagePull {
    /// The image
    #[arg(value_name = "REF")]
    pub reference: String,
    /// For which platform, such as linux/arm64 [default: linux on this machine]
    #[arg(long, value_name = "OS/ARCH")]
    pub platform: Option<String>,
    /// The user to log in as
    #[arg(long, value_name = "NAME", requires = "password_secret")]
    pub username: Option<String>,
    /// The name of the password: NAME is in the variable STEAD_SECRET_NAME
    #[arg(long, value_name = "NAME", requires = "username")]
    pub password_secret: Option<String>,
    /// Speak plain HTTP also to a registry of another machine, which anybody on the way can read and change
    #[arg(long)]
    pub plain_http: bool,
    /// How data is printed.
    #[command(flatten)]
    pub format: Format,
}

/// Options of `stead image rm`.
#[derive(Debug, Args)]
pub struct ImageRm {
    /// The image as `stead image ls` lists it, or the first 12 or more digits of its digest
    #[arg(value_name = "REF|DIGEST")]
    pub image: String,
    /// How data is printed.
    #[command(flatten)]
    pub format: Format,
}

/// Options of `stead doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Only this provider; all without it.
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,
    /// Image of the places of docker.
    #[arg(long)]
    pub image: Option<String>,
    /// How it is printed.
    #[command(flatten)]
    pub format: Format,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn run_takes_a_command_or_a_text_and_not_both() {
        let parse = |args: &[&str]| Cli::try_parse_from(["stead", "run"].iter().chain(args)).is_ok();
        assert!(parse(&["--", "echo", "--json"]));
        assert!(parse(&["--shell", "echo"]));
        assert!(!parse(&[]));
        assert!(!parse(&["--shell", "echo", "--", "echo"]));
        assert!(!parse(&["echo"]));
    }
}
