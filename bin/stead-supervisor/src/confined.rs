//! A confined place: this process stays outside and cleans up, its child is the first process of the place.

use crate::args::Serve;
use crate::removal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, WaitOptions};
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stead_confine::enforce::{self, Maps};
use stead_confine::{ControlGroup, Plan};
use stead_process::MemoryWatch;
use stead_sys::{Forked, SignalFd};

/// What the two say to each other: a byte each.
const GO: u8 = b'g';
const MAP: u8 = b'm';
const READY: u8 = b'r';

/// How long a cgroup may stay busy after the last process in it has ended.
const BUSY: Duration = Duration::from_secs(5);

/// Splits in two and returns in the child, when it is confined. Outside nothing returns: that process ends when
/// the place has ended.
pub fn enter(plan: &Path, options: &mut Serve) -> io::Result<()> {
    let bytes = fs::read(plan)?;
    let plan: Plan = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
    let (outside, inside) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let maps = Maps::of(&plan, rustix::process::geteuid().is_root());
    let owners =
        enforce::owners(&plan).map_err(|error| step("map the owners of the image's files", &error))?;
    make_all(&plan.groups)?;
    let entry = Entry::open(&plan.groups).inspect_err(|_| remove(&plan.groups))?;
    let born_in = entry.born_in.as_ref().map(AsFd::as_fd);
    let forked =
        stead_sys::fork_into(enforce::fork_flags(&plan), born_in).inspect_err(|_| remove(&plan.groups));
    match forked.map_err(|error| step("make the namespaces of the place", &error))? {
        Forked::Parent { child } => {
            drop(inside);
            let code = Outside {
                child,
                socket: outside,
                groups: plan.groups,
                folder: options.remove_at_end.take(),
            }
            .run(&maps);
            stead_sys::exit_now(code)
        }
        Forked::Child => {
            drop(outside);
            entry.enter()?;
            // What is outside is removed from there.
            options.remove_at_end = None;
            // In the place no path leads to it.
            options.memory = MemoryWatch::of(plan.groups.iter().map(|group| &group.path));
            confine(&plan, owners.as_ref(), &inside)
        }
    }
}

/// An error that names its step; the host reads it from standard error.
fn step(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn confine(plan: &Plan, owners: Option<&OwnedFd>, socket: &OwnedFd) -> io::Result<()> {
    expect(socket, GO)?;
    let maps = || {
        say(socket, MAP)?;
        expect(socket, GO)
    };
    enforce::enter(plan, owners, maps).map_err(|failed| step(&failed.to_string(), &failed.source))?;
    // Without the process outside nobody would clean up. It is asked for last, because a change of identity
    // forgets it, and what happened before is seen by the socket.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    say(socket, READY)?;
    expect(socket, GO)
}

fn say(socket: &OwnedFd, byte: u8) -> io::Result<()> {
    rustix::io::write(socket, &[byte])?;
    Ok(())
}

fn hear(socket: &OwnedFd) -> io::Result<Option<u8>> {
    let mut byte = [0];
    Ok(match rustix::io::read(socket, &mut byte)? {
        0 => None,
        _ => Some(byte[0]),
    })
}

fn expect(socket: &OwnedFd, byte: u8) -> io::Result<()> {
    match hear(socket)? {
        Some(heard) if heard == byte => Ok(()),
        _ => Err(io::Error::other("the process outside the place has ended")),
    }
}

/// Makes all of them or none.
pub fn make_all(groups: &[ControlGroup]) -> io::Result<()> {
    groups.iter().try_for_each(make).inspect_err(|_| remove(groups))
}

fn make(group: &ControlGroup) -> io::Result<()> {
    let named = |error: io::Error| step(&format!("make the cgroup {}", group.path.display()), &error);
    fs::create_dir(&group.path).map_err(named)?;
    for (file, value) in &group.settings {
        let path = group.path.join(file);
        fs::write(&path, value).map_err(|error| step(&format!("set {}", path.display()), &error))?;
    }
    Ok(())
}

/// How the first process of the place comes into its cgroups before it does anything: the rest of the place is then
/// born there.
struct Entry {
    /// The one of version 2.
    born_in: Option<OwnedFd>,
    /// Files of those of version 1 through which a thread moves itself. Unlike `cgroup.procs` they need no lock of
    /// the whole system, which costs milliseconds.
    tasks: Vec<fs::File>,
}

impl Entry {
    fn open(groups: &[ControlGroup]) -> io::Result<Self> {
        let mut entry = Self {
            born_in: None,
            tasks: Vec::new(),
        };
        for group in groups {
            let tasks = group.path.join("tasks");
            let named =
                |error: io::Error| step(&format!("enter the cgroup {}", group.path.display()), &error);
            if tasks.exists() {
                entry
                    .tasks
                    .push(fs::File::options().write(true).open(tasks).map_err(named)?);
            } else {
                entry.born_in = Some(fs::File::open(&group.path).map_err(named)?.into());
            }
        }
        Ok(entry)
    }

    /// In the new process.
    fn enter(&self) -> io::Result<()> {
        for mut tasks in &self.tasks {
            // The writer itself.
            tasks
                .write_all(b"0")
                .map_err(|error| step("enter a cgroup of the place", &error))?;
        }
        Ok(())
    }
}

/// Nothing runs in them any more; the kernel may need a moment to see it.
pub fn remove(groups: &[ControlGroup]) {
    let until = Instant::now() + BUSY;
    for group in groups {
        while fs::remove_dir(&group.path).is_err() && group.path.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The process outside.
struct Outside {
    child: i32,
    socket: OwnedFd,
    groups: Vec<ControlGroup>,
    folder: Option<PathBuf>,
}

impl Outside {
    /// Helps the child in, waits for its end, and leaves nothing of the place. Returns the exit code.
    fn run(self, maps: &Maps) -> i32 {
        let socket = match stead_sys::close_all_except(&[self.socket.as_fd()]).map(|mut kept| kept.pop()) {
            Ok(Some(socket)) => socket,
            Ok(None) | Err(_) => return 1,
        };
        std::mem::forget(self.socket);
        if let Err(error) = help(&socket, self.child, maps) {
            eprintln!("stead-supervisor: {error}");
            signal(self.child, Signal::KILL);
        }
        let code = wait(self.child);
        remove(&self.groups);
        if let Some(folder) = &self.folder {
            removal::remove(folder);
        }
        code
    }
}

/// Answers the child until it is ready. A child that ends before has said why.
fn help(socket: &OwnedFd, child: i32, maps: &Maps) -> io::Result<()> {
    say(socket, GO)?;
    loop {
        match hear(socket)? {
            Some(MAP) => enforce::write_maps(child, maps)
                .map_err(|error| step("write the maps of the place's users", &error))?,
            Some(READY) => {
                let null = fs::File::options().read(true).write(true).open("/dev/null")?;
                rustix::stdio::dup2_stdin(&null)?;
                rustix::stdio::dup2_stderr(&null)?;
                return say(socket, GO);
            }
            Some(_) => return Err(io::Error::other("the place speaks nonsense")),
            None => return Ok(()),
        }
        say(socket, GO)?;
    }
}

/// Signals a child that was not waited for yet.
pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // Its number is its own.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Waits for the child's end, and hands on what asks for it.
fn wait(child: i32) -> i32 {
    let Ok(signals) =
        SignalFd::new(&[Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP].map(Signal::as_raw))
    else {
        signal(child, Signal::KILL);
        return 1;
    };
    loop {
        match rustix::process::waitpid(Pid::from_raw(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => return status.exit_status().unwrap_or(1),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 1,
        }
        let _ = poll(&mut [PollFd::new(&signals, PollFlags::IN)], None);
        while let Ok(Some(received)) = signals.next_signal() {
            if received != Signal::CHILD.as_raw() {
                signal(child, Signal::TERM);
            }
        }
    }
}
