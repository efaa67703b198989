//! The attack probe: tries, inside a place, what the place should prevent, and tells what came of each attempt.
//!
//! It is this program again, started as an ordinary command of the place, with the rights of any command. What it
//! looks for outside (a file, a process, sockets) the host has put there and names in the arguments. Each attempt is
//! one line: `axis TAB attempt TAB reached|refused|unknown TAB evidence`. On the host itself every attempt is to be
//! reached: that is the control by which a broken attempt is told from a wall.

mod files;
mod network;
mod privilege;

use std::io::{self, Write};
use std::path::PathBuf;
use stead_sys::DangerousCall;

/// What the host has put outside for us to reach.
#[derive(Debug, Default)]
pub struct Targets {
    /// A file with `secret` in it, that everybody on the host may read.
    pub canary: PathBuf,
    /// What is in that file, and in the command line of a process of the host.
    pub secret: String,
    /// A port on which the host's loopback listens.
    pub port: u16,
    /// The name of an abstract socket on which the host listens.
    pub abstract_socket: String,
    /// Size and time of the last change of the host's /etc/shadow, by which it is known.
    pub shadow: String,
    /// A directory in which we may write.
    pub scratch: PathBuf,
    /// The numbers of a disk of the host.
    pub disk: Option<(u32, u32)>,
}

/// What came of an attempt.
#[derive(Debug)]
pub enum Outcome {
    /// It is possible, and what was seen.
    Reached(String),
    /// It is not, and what the system said.
    Refused(String),
    /// It could not be tried.
    Unknown(String),
}

impl From<io::Result<()>> for Outcome {
    fn from(result: io::Result<()>) -> Self {
        match result {
            Ok(()) => Self::Reached("it works".to_owned()),
            Err(error) => Self::Refused(error.to_string()),
        }
    }
}

/// Makes all attempts.
pub fn probe(targets: &Targets) -> io::Result<()> {
    let mut told = io::stdout().lock();
    let mut tell = |axis: &str, attempt: &str, outcome: Outcome| {
        let (word, evidence) = match outcome {
            Outcome::Reached(evidence) => ("reached", evidence),
            Outcome::Refused(evidence) => ("refused", evidence),
            Outcome::Unknown(evidence) => ("unknown", evidence),
        };
        let evidence = evidence.replace(['\t', '\n'], " ");
        writeln!(told, "{axis}\t{attempt}\t{word}\t{evidence}")
    };
    for (attempt, outcome) in processes(targets) {
        tell("process_contained", attempt, outcome)?;
    }
    for (attempt, outcome) in files::attempts(targets) {
        tell("host_filesystem_restricted", attempt, outcome)?;
    }
    for (attempt, outcome) in privilege::attempts(targets) {
        tell("privilege_escalation_blocked", attempt, outcome)?;
    }
    for (name, call) in DangerousCall::ALL {
        tell("syscalls_restricted", name, call.attempt().into())?;
    }
    for (attempt, outcome) in network::attempts(targets) {
        tell("network_restricted", attempt, outcome)?;
    }
    Ok(())
}

type Attempt = (&'static str, Outcome);

fn processes(targets: &Targets) -> Vec<Attempt> {
    let own = std::process::id();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        let nothing = || Outcome::Unknown("there is no /proc".to_owned());
        return vec![
            ("see a process of the host", nothing()),
            ("signal a process of the host", nothing()),
        ];
    };
    let found = entries.flatten().find_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        // Our own command line has it too.
        let words = line.split(|byte| *byte == 0);
        let has_secret = words.into_iter().any(|word| word == targets.secret.as_bytes());
        (pid != own && has_secret && !is_probe(&line)).then_some(pid)
    });
    let Some(pid) = found else {
        let refused = || Outcome::Refused("it is not in /proc".to_owned());
        return vec![
            ("see a process of the host", refused()),
            ("signal a process of the host", refused()),
        ];
    };
    let signalled = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .map(|pid| rustix::process::test_kill_process(pid).map_err(io::Error::from));
    vec![
        (
            "see a process of the host",
            Outcome::Reached(format!("process {pid} is in /proc")),
        ),
        (
            "signal a process of the host",
            signalled.map_or(Outcome::Unknown("it has no number".to_owned()), Outcome::from),
        ),
    ]
}

/// Another probe that is given the same secret is no process of the host's.
fn is_probe(line: &[u8]) -> bool {
    line.split(|byte| *byte == 0).any(|word| word == b"--secret")
}
