//! The options that Stead starts us with.

use crate::probe::Targets;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use stead_process::{MemoryWatch, TreeMode};
use stead_wire::TreeTracking;

/// What to be.
#[derive(Debug)]
pub enum Mode {
    /// The supervisor of an instance.
    Serve(Box<Serve>),
    /// The same on the host, with the options in the folder of the instance.
    ServeHere,
    /// A copy between standard input and output and the socket of the supervisor beside us.
    Relay { socket: PathBuf },
    /// What cleans up on the host when the owner of containers dies.
    Guard,
    /// The attack probe, as a command of a place.
    Probe(Targets),
}

/// Options of [`Mode::Serve`].
#[derive(Debug, Default)]
pub struct Serve {
    /// Name of the instance.
    pub instance: String,
    /// Where to listen.
    pub socket: PathBuf,
    /// The file with the key.
    pub key_file: PathBuf,
    /// Whether that file is removed once it was read.
    pub unlink_key: bool,
    /// Whether the kernel below us is one in user space, which leaves it to us which calls are refused by name.
    pub guest: bool,
    /// Whether standard input is the first connection.
    pub stdin_connection: bool,
    /// How long to go on without a host; `None` for ever.
    pub owner_grace: Option<Duration>,
    /// How to keep trees together.
    pub tree: Option<TreeTracking>,
    /// Working directory of commands, made when it is missing.
    pub workdir: PathBuf,
    /// User of commands.
    pub user: Option<String>,
    /// What is removed at the end.
    pub remove_at_end: Option<PathBuf>,
    /// The file with the plan of confinement; none on the host itself and where an engine confines.
    pub plan: Option<PathBuf>,
    /// The counter of what the kernel kills for lack of memory.
    pub memory: MemoryWatch,
}

impl Serve {
    /// The tree mode that was asked for.
    pub fn tree_mode(&self) -> TreeMode {
        self.tree.map_or(TreeMode::Auto, TreeMode::Only)
    }
}

/// Reads the options.
pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Mode, String> {
    match args.next().as_deref().and_then(|mode| mode.to_str()) {
        Some("serve") => serve(args).map(|options| Mode::Serve(Box::new(options))),
        Some("serve-here") => Ok(Mode::ServeHere),
        Some("relay") => {
            let socket = args.next().ok_or("relay needs the path of a socket")?;
            Ok(Mode::Relay {
                socket: socket.into(),
            })
        }
        Some("guard") => Ok(Mode::Guard),
        Some("probe") => probe(args).map(Mode::Probe),
        _ => Err(
            "this program is started by Stead, as 'serve', 'serve-here', 'relay', 'guard' or 'probe'"
                .to_owned(),
        ),
    }
}

/// Reads the options of [`Mode::Serve`].
pub fn serve(mut args: impl Iterator<Item = OsString>) -> Result<Serve, String> {
    let mut options = Serve {
        workdir: "/".into(),
        ..Serve::default()
    };
    while let Some(name) = args.next() {
        let name = name
            .into_string()
            .map_err(|name| format!("unknown option {name:?}"))?;
        match name.as_str() {
            "--unlink-key" => options.unlink_key = true,
            "--guest" => options.guest = true,
            "--stdin-connection" => options.stdin_connection = true,
            _ => {
                let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
                set(&mut options, &name, value)?;
            }
        }
    }
    if options.socket.as_os_str().is_empty() || options.key_file.as_os_str().is_empty() {
        return Err("serve needs --socket and --key-file".to_owned());
    }
    Ok(options)
}

fn probe(mut args: impl Iterator<Item = OsString>) -> Result<Targets, String> {
    let mut targets = Targets::default();
    while let Some(name) = args.next() {
        let value = args.next().ok_or("an option of probe needs a value")?;
        let text = || {
            value
                .to_str()
                .map(str::to_owned)
                .ok_or("a value of probe is no text")
        };
        match name.to_str() {
            Some("--canary") => targets.canary = value.into(),
            Some("--scratch") => targets.scratch = value.into(),
            Some("--shadow") => targets.shadow = text()?,
            Some("--secret") => targets.secret = text()?,
            Some("--disk") => {
                let numbers = text()?;
                let (major, minor) = numbers.split_once(':').ok_or("--disk is no pair of numbers")?;
                targets.disk = major.parse().ok().zip(minor.parse().ok());
            }
            Some("--abstract-socket") => targets.abstract_socket = text()?,
            Some("--port") => targets.port = text()?.parse().map_err(|_| "--port is no number")?,
            _ => return Err(format!("unknown option {name:?}")),
        }
    }
    Ok(targets)
}

fn set(options: &mut Serve, name: &str, value: OsString) -> Result<(), String> {
    let text = |value: OsString| value.into_string().map_err(|_| format!("{name} is no text"));
    match name {
        "--instance" => options.instance = text(value)?,
        "--socket" => options.socket = value.into(),
        "--key-file" => options.key_file = value.into(),
        "--workdir" => options.workdir = value.into(),
        "--user" => options.user = Some(text(value)?),
        "--plan" => options.plan = Some(value.into()),
        "--remove-at-end" => options.remove_at_end = Some(value.into()),
        "--owner-grace" => {
            let seconds = text(value)?.parse().map_err(|_| format!("{name} is no number"))?;
            options.owner_grace = Some(Duration::from_secs(seconds));
        }
        "--tree" => options.tree = Some(tracking(&text(value)?)?),
        _ => return Err(format!("unknown option {name}")),
    }
    Ok(())
}

fn tracking(name: &str) -> Result<TreeTracking, String> {
    match name {
        "cgroup2" => Ok(TreeTracking::CgroupV2),
        "cgroup1" => Ok(TreeTracking::CgroupV1),
        "reaper" => Ok(TreeTracking::Reaper),
        _ => Err(format!("unknown tree {name}")),
    }
}
