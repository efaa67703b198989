//! A subreaper for each command, where no cgroup can be made.
//!
//! The reaper is forked from the supervisor and is the leader's parent. Whatever loses its parent below it
//! becomes its child, so that nothing leaves its tree, and none of its children can stay a zombie.
//! It reports over a socket and ends when the tree is gone. When the supervisor is gone it kills the tree.

use super::init::Household;
use super::{LeaderNews, descendants, members};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Signal, WaitOptions, WaitStatus};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use stead_sys::{Forked, Launch, LaunchFailure, SignalFd, Stage};
use stead_wire::ExitStatus;

/// What the supervisor asks of a reaper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Request {
    SignalTree = 1,
    SignalLeader = 2,
    SignalGroup = 3,
    Kill = 4,
}

/// What a reaper reports: the kind, then a number.
const STARTED: u8 = 11;
const FAILED: u8 = 12;
const EXITED: u8 = 13;
const KILLED: u8 = 14;
const DUMPED: u8 = 15;

/// Kind, stage, and a number.
type Message = [u8; 6];

fn message(kind: u8, stage: u8, number: i32) -> Message {
    let mut bytes = [kind, stage, 0, 0, 0, 0];
    bytes[2..].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn number(message: &Message) -> i32 {
    message
        .last_chunk::<4>()
        .map_or(0, |bytes| i32::from_le_bytes(*bytes))
}

/// The supervisor's side.
pub struct Reaper {
    household: Rc<Household>,
    pid: Option<i32>,
    socket: Option<OwnedFd>,
    leader_reported: bool,
    empty: bool,
}

impl Reaper {
    pub fn new(household: &Rc<Household>) -> Self {
        Self {
            household: Rc::clone(household),
            pid: None,
            socket: None,
            leader_reported: false,
            empty: false,
        }
    }

    pub fn launch(&mut self, launch: Launch<'_>) -> io::Result<()> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        match stead_sys::fork_single_threaded()? {
            Forked::Parent { child } => {
                self.household.add_reaper(child);
                self.pid = Some(child);
                self.socket = Some(ours);
                Ok(())
            }
            // The end of the tree is the end of this process, whatever happens on the way.
            Forked::Child => {
                let _ = watch(launch, &theirs);
                stead_sys::exit_now(0)
            }
        }
    }

    pub fn news_fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    pub fn news(&mut self) -> Option<LeaderNews> {
        let mut bytes: Message = [0; 6];
        let socket = self.socket.as_ref()?;
        match receive(socket, &mut bytes) {
            Ok(6) => {}
            Err(rustix::io::Errno::AGAIN) => return None,
            // The reaper has ended: that it was waited for says the rest.
            _ => {
                self.socket = None;
                return None;
            }
        }
        let value = number(&bytes);
        let byte = u8::try_from(value).unwrap_or(u8::MAX);
        let news = match bytes[0] {
            STARTED => return Some(LeaderNews::Started { pid: value }),
            FAILED => LeaderNews::Failed(LaunchFailure {
                stage: stage(bytes[1]),
                errno: value,
            }),
            EXITED => LeaderNews::Exited(ExitStatus::Code(byte)),
            KILLED => LeaderNews::Exited(ExitStatus::Signal {
                signal: byte,
                core_dumped: false,
            }),
            DUMPED => LeaderNews::Exited(ExitStatus::Signal {
                signal: byte,
                core_dumped: true,
            }),
            _ => return None,
        };
        self.leader_reported = true;
        Some(news)
    }

    /// The reaper was waited for: by itself it ends only when its tree is gone. If the leader's end is
    /// not known, somebody has killed the reaper; what it left falls to the supervisor.
    pub fn ended(&mut self) -> Option<LeaderNews> {
        if let Some(pid) = self.pid.take() {
            self.household.remove_reaper(pid);
        }
        self.empty = true;
        let last = self.news();
        self.socket = None;
        if last.is_some() {
            return last;
        }
        let news = if self.leader_reported {
            LeaderNews::Empty
        } else {
            LeaderNews::Exited(ExitStatus::Unknown)
        };
        Some(news)
    }

    pub fn request(&self, request: Request, signal: i32) {
        if let Some(socket) = &self.socket {
            // A reaper that does not listen any more has ended or is about to.
            let _ = rustix::io::write(socket, &message(request as u8, 0, signal));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.empty
    }
}

/// Reads one message. That the other side ended with something unread is said first, and once: what it had said
/// before comes after it.
fn receive(socket: &OwnedFd, bytes: &mut Message) -> rustix::io::Result<usize> {
    loop {
        match rustix::io::read(socket, &mut *bytes) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            result => return result,
        }
    }
}

/// Says it for certain: what the kernel has no room for now is tried again. Nobody to hear it ends that.
fn report(socket: &OwnedFd, message: Message) {
    while let Err(
        rustix::io::Errno::AGAIN
        | rustix::io::Errno::INTR
        | rustix::io::Errno::NOBUFS
        | rustix::io::Errno::NOMEM,
    ) = rustix::io::write(socket, &message)
    {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

fn stage(number: u8) -> Stage {
    [Stage::Identity, Stage::Cwd, Stage::Exec]
        .into_iter()
        .find(|s| *s as u8 == number)
        .unwrap_or(Stage::Setup)
}

/// The reaper's own life, in the forked process.
fn watch(launch: Launch<'_>, socket: &OwnedFd) -> io::Result<()> {
    let [stdin, stdout, stderr] = launch.stdio;
    let kept = stead_sys::close_all_except(&[socket.as_fd(), stdin, stdout, stderr])?;
    let Ok([socket, stdin, stdout, stderr]) = <[OwnedFd; 4]>::try_from(kept) else {
        return Ok(());
    };
    // The supervisor blocks all signals, and so do we: only SIGCHLD is looked at.
    let signals = rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(io::Error::from)
        .and_then(|()| SignalFd::new(&[Signal::CHILD.as_raw()]));
    let signals = match signals {
        Ok(signals) => signals,
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(0);
            report(&socket, message(FAILED, Stage::Setup as u8, errno));
            return Ok(());
        }
    };
    let leader = {
        let stdio = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        start(&Launch { stdio, ..launch }, &socket)
    };
    // Only the leader holds its streams: the reaper must not keep a pipe open.
    drop((stdin, stdout, stderr));
    if leader.is_some() {
        Watch {
            socket,
            leader,
            killing: false,
        }
        .run(&signals);
    }
    Ok(())
}

/// Starts the leader and waits until it has executed its program.
fn start(launch: &Launch<'_>, socket: &OwnedFd) -> Option<i32> {
    let failure = |stage: Stage, errno: i32| {
        report(socket, message(FAILED, stage as u8, errno));
        None
    };
    let launched = match stead_sys::launch(launch) {
        Ok(launched) => launched,
        Err(error) => return failure(Stage::Setup, error.raw_os_error().unwrap_or(0)),
    };
    match launched.failure {
        Some(failed) => failure(failed.stage, failed.errno),
        None => {
            report(socket, message(STARTED, 0, launched.pid));
            Some(launched.pid)
        }
    }
}

struct Watch {
    socket: OwnedFd,
    /// Until it was waited for, so that its number is its own.
    leader: Option<i32>,
    killing: bool,
}

impl Watch {
    fn run(&mut self, signals: &SignalFd) {
        while self.reap() {
            if self.killing {
                descendants::kill_all(&BTreeSet::new());
            }
            let timeout = self.killing.then_some(rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 2_000_000,
            });
            let mut fds = [
                PollFd::new(signals, PollFlags::IN),
                PollFd::new(&self.socket, PollFlags::IN),
            ];
            let _ = poll(&mut fds, timeout.as_ref());
            while matches!(signals.next_signal(), Ok(Some(_))) {}
            self.serve();
        }
    }

    /// Waits for all children that ended; `false` when none is left.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.ended(pid.as_raw_nonzero().get(), status),
                Ok(None) => return true,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
                Err(_) => return false,
            }
        }
    }

    fn ended(&mut self, pid: i32, status: WaitStatus) {
        if self.leader != Some(pid) {
            return;
        }
        let end = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => message(EXITED, 0, code),
            (None, Some(signal)) => message(if dumped(status) { DUMPED } else { KILLED }, 0, signal),
            // Stopped or continued: not the end.
            (None, None) => return,
        };
        self.leader = None;
        report(&self.socket, end);
    }

    fn serve(&mut self) {
        let mut bytes: Message = [0; 6];
        loop {
            match receive(&self.socket, &mut bytes) {
                Ok(6) => self.obey(bytes[0], number(&bytes)),
                Err(rustix::io::Errno::AGAIN) => return,
                // The supervisor is gone.
                _ => {
                    self.killing = true;
                    return;
                }
            }
        }
    }

    fn obey(&mut self, request: u8, number: i32) {
        if request == Request::Kill as u8 {
            self.killing = true;
            return;
        }
        let Some(signal) = members::signal(number) else {
            return;
        };
        let leader = self.leader.and_then(rustix::process::Pid::from_raw);
        match leader {
            Some(leader) if request == Request::SignalLeader as u8 => {
                let _ = rustix::process::kill_process(leader, signal);
            }
            Some(leader) if request == Request::SignalGroup as u8 => {
                let _ = rustix::process::kill_process_group(leader, signal);
            }
            _ if request == Request::SignalTree as u8 => descendants::signal_all(signal, &BTreeSet::new()),
            _ => {}
        }
    }
}

/// Bit of the wait status that says that a core was dumped.
fn dumped(status: WaitStatus) -> bool {
    status.as_raw() & 0x80 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_before_the_end_is_heard_although_something_was_left_unread() {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        report(&theirs, message(STARTED, 0, 7));
        report(&theirs, message(EXITED, 0, 0));
        // The end and the order to kill pass each other.
        report(&ours, message(Request::Kill as u8, 0, 0));
        drop(theirs);
        let mut bytes: Message = [0; 6];
        let mut heard = Vec::new();
        while receive(&ours, &mut bytes) == Ok(6) {
            heard.push(bytes[0]);
        }
        assert_eq!(heard, [STARTED, EXITED]);
    }
}
