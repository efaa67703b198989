//! The keeper: the process of this host that stands for a place which a runtime makes. It is told the folder before
//! that is made ([`crate::begin`]), runs the runtime, and leaves nothing: no process, cgroup, state or folder.
//!
//! ```text
//! running ─► (the runtime ended) ─► gone
//!    │  ▲
//!    │  │ SIGUSR1: the description is read again, which now says how to restore
//!    ▼  │
//!  parked: the file of that name is there, so the memory is in an image and the folder stays
//! ```
//! SIGTERM, and the owner's end after its grace, lead to gone from everywhere. The runtime dies with this process.

use crate::{confined, removal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions};
use std::convert::Infallible;
use std::ffi::{CString, NulError};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::{Duration, Instant};
use stead_confine::Kept;
use stead_sys::{Forked, SignalFd};

/// How long the runtime may take to forget a place.
const FORGETTING: Duration = Duration::from_secs(10);

/// Bytes of what the runtime says last that are passed on.
const LAST_WORDS: usize = 2048;

/// Whether the folder is that of a place to keep.
pub fn is_kept(folder: &Path) -> bool {
    folder.join("kept").exists()
}

/// Keeps the place until it is gone. An error is what the runtime said when it failed.
pub fn keep(folder: &Path) -> io::Result<()> {
    stead_sys::cloexec_inherited();
    stead_sys::reset_dispositions();
    // Failing only means that we lead a session already.
    let _ = rustix::process::setsid();
    let watched = [
        Signal::CHILD,
        Signal::TERM,
        Signal::INT,
        Signal::HUP,
        Signal::USR1,
    ];
    let signals = SignalFd::new(&watched.map(Signal::as_raw))?;
    let kept = read(folder)?;
    confined::make_all(&kept.groups)?;
    let mut keeper = Keeper {
        folder,
        kept,
        child: None,
        owner: Owner::There,
    };
    let ended = keeper.run(&signals);
    keeper.clean_up();
    if let Err(error) = &ended {
        // Nobody may be listening any more.
        let _ = writeln!(io::stderr(), "stead-supervisor: {error}");
    }
    match ended {
        Ok(()) => Ok(()),
        // Said already.
        Err(_) => stead_sys::exit_now(1),
    }
}

fn read(folder: &Path) -> io::Result<Kept> {
    postcard::from_bytes(&fs::read(folder.join("kept"))?).map_err(io::Error::other)
}

/// What is known of the process that our standard input comes from.
enum Owner {
    There,
    /// Gone, and the place ends at this time.
    Until(Instant),
    /// Gone, which changes nothing.
    Gone,
}

struct Keeper<'a> {
    folder: &'a Path,
    kept: Kept,
    child: Option<i32>,
    owner: Owner,
}

impl Keeper<'_> {
    fn run(&mut self, signals: &SignalFd) -> io::Result<()> {
        self.start()?;
        loop {
            self.wait(signals)?;
            while let Ok(Some(received)) = signals.next_signal() {
                match received {
                    received if received == Signal::CHILD.as_raw() => {}
                    received if received == Signal::USR1.as_raw() => self.restore()?,
                    // Asked to end.
                    _ => return Ok(()),
                }
            }
            if let Some(code) = self.reap() {
                let parked = self.is_parked();
                match code {
                    _ if parked => fs::write(self.folder.join("ended"), code.to_string())?,
                    0 => return Ok(()),
                    code => return Err(io::Error::other(self.last_words(code))),
                }
            }
            match self.owner {
                // Nobody could ever restore it.
                Owner::Until(_) if self.child.is_none() => return Ok(()),
                Owner::Until(at) if at <= Instant::now() => return Ok(()),
                Owner::Until(_) | Owner::There | Owner::Gone => {}
            }
        }
    }

    /// Waits for a signal, the owner's end, or the end of its grace.
    fn wait(&mut self, signals: &SignalFd) -> io::Result<()> {
        let timeout = match self.owner {
            Owner::Until(at) => {
                let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
                Timespec::try_from(left).ok()
            }
            Owner::There | Owner::Gone => None,
        };
        let stdin = rustix::stdio::stdin();
        let mut watched = [
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(&stdin, PollFlags::IN),
        ];
        let count = if matches!(self.owner, Owner::There) { 2 } else { 1 };
        match poll(&mut watched[..count], timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // It says nothing more: whatever comes is its end.
        if count == 2 && !watched[1].revents().is_empty() {
            let grace = |seconds: u32| Instant::now() + Duration::from_secs(seconds.into());
            self.owner = self
                .kept
                .owner_grace
                .map_or(Owner::Gone, |seconds| Owner::Until(grace(seconds)));
        }
        Ok(())
    }

    fn is_parked(&self) -> bool {
        self.folder.join("parked").exists()
    }

    fn start(&mut self) -> io::Result<()> {
        self.child = Some(start(&self.kept.run, &self.kept)?);
        Ok(())
    }

    /// Only what is parked can be restored.
    fn restore(&mut self) -> io::Result<()> {
        if self.child.is_none() && self.is_parked() {
            self.forget();
            self.kept = read(self.folder)?;
            self.start()?;
        }
        Ok(())
    }

    /// The exit code of the runtime, once it has ended.
    fn reap(&mut self) -> Option<i32> {
        let pid = Pid::from_raw(self.child?)?;
        let Ok(Some((_, status))) = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG) else {
            return None;
        };
        self.child = None;
        Some(status.exit_status().unwrap_or(1))
    }

    fn last_words(&self, code: i32) -> String {
        let log = fs::read(&self.kept.log).unwrap_or_default();
        let tail = &log[log.len().saturating_sub(LAST_WORDS)..];
        let text = String::from_utf8_lossy(tail);
        format!("the runtime ended with {code}: {}", text.trim())
    }

    /// Lets the runtime remove what it knows, which it does not after an orderly end.
    fn forget(&self) {
        let knows = fs::read_dir(&self.kept.state).is_ok_and(|mut files| files.next().is_some());
        if !knows {
            return;
        }
        let Ok(child) = start(&self.kept.delete, &self.kept) else {
            return;
        };
        let until = Instant::now() + FORGETTING;
        while let Ok(None) | Err(rustix::io::Errno::INTR) =
            rustix::process::waitpid(Pid::from_raw(child), WaitOptions::NOHANG)
        {
            if Instant::now() >= until {
                confined::signal(child, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn clean_up(&mut self) {
        if let Some(child) = self.child.take() {
            // What it started dies with it.
            confined::signal(child, Signal::KILL);
            let _ = rustix::process::waitpid(Pid::from_raw(child), WaitOptions::empty());
        }
        self.forget();
        confined::remove(&self.kept.groups);
        removal::remove(self.folder);
    }
}

/// Starts a program in the cgroups of the place, that dies with us.
fn start(argv: &[String], kept: &Kept) -> io::Result<i32> {
    match stead_sys::fork_single_threaded()? {
        Forked::Parent { child } => Ok(child),
        Forked::Child => {
            let Err(error) = execute(argv, kept);
            let _ = writeln!(io::stderr(), "stead-supervisor: {argv:?}: {error}");
            stead_sys::exit_now(127)
        }
    }
}

fn execute(argv: &[String], kept: &Kept) -> io::Result<Infallible> {
    for group in &kept.groups {
        fs::write(group.path.join("cgroup.procs"), "0")?;
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let argv = strings(argv.iter().map(|argument| argument.clone().into_bytes()))?;
    let env = std::env::vars_os().map(|(name, value)| {
        let mut pair = name.into_vec();
        pair.push(b'=');
        pair.extend(value.into_vec());
        pair
    });
    let env = strings(env)?;
    let program = argv.first().ok_or(io::ErrorKind::InvalidInput)?;
    // Its streams would be those of the first process of the place, which could write without an end to a pipe or
    // a file of ours.
    let null = fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Err(stead_sys::execute(program, &argv, &env))
}

fn strings(all: impl Iterator<Item = Vec<u8>>) -> Result<Vec<CString>, NulError> {
    all.map(CString::new).collect()
}
