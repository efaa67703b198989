//! One command, from its description to its final word. See the diagram at the crate's root.

mod ending;
mod flow;
mod launch;

pub use launch::LaunchFailed;

use crate::input::Input;
use crate::memory::MemoryWatch;
use crate::output::Output;
use crate::poll::{Interest, Part, Poller, Token};
use crate::program;
pub use crate::program::Place;
use crate::streams::{Streams, open_streams, window};
use crate::tree::{LeaderNews, Tree, TreeFactory};
use launch::start_tree;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use stead_sys::{LaunchFailure, Stage};
use stead_wire::{
    CommandId, CommandReport, CommandSpec, Descendants, Exit, ExitStatus, FromSupervisor, LaunchStage,
    MAX_CHUNK, SignalTarget, StopCause, Stream, TerminalSize,
};

/// Where messages to the host go. Without a host they go nowhere: what matters is kept until asked for.
pub trait Outbox {
    /// Whether bulk output may be sent now.
    fn has_room(&self) -> bool;
    /// Sends a message.
    fn send(&mut self, message: &FromSupervisor, body: &[u8]);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The child exists and has not executed the program.
    Launching,
    /// The program runs.
    Running,
    /// We ended it; until the tree is gone.
    Stopping {
        cause: StopCause,
        kill_at: Instant,
        killed_at: Option<Instant>,
    },
    /// The leader exited by itself; the rest is being killed.
    Sweeping { since: Instant },
    /// The final word was said; descendants may live when they are kept.
    Ended,
}

/// A command that was started.
pub struct Command {
    id: CommandId,
    key: u32,
    fingerprint: [u8; 32],
    descendants: Descendants,
    grace: Duration,
    timeout: Option<Duration>,
    tree: Tree,
    tree_gone: bool,
    memory: Rc<MemoryWatch>,
    /// What was counted when it started.
    kills_before: u64,
    outputs: [Output; 2],
    /// Interest that is registered for each output, so that it is only changed when it differs.
    listening: [bool; 2],
    input: Input,
    terminal: Option<OwnedFd>,
    phase: Phase,
    began_at: Instant,
    started_at: Instant,
    deadline: Option<Instant>,
    leader: Option<(ExitStatus, Instant)>,
    exit: Option<Exit>,
    exit_sent: bool,
    taken_reported: u64,
    /// When to look at the tree next.
    look_at: Option<Instant>,
    failed: bool,
    /// The description, until the program was executed: when the place had no process left, it is tried again.
    retry: Option<Box<CommandSpec>>,
    starved: bool,
    released: bool,
    removed: bool,
}

impl Command {
    /// Starts a command. A failure that is known at once is reported in the same way as one that the
    /// child reports later: by [`FromSupervisor::LaunchFailed`], and then nothing is kept.
    pub fn start(
        id: CommandId,
        key: u32,
        fingerprint: [u8; 32],
        spec: &CommandSpec,
        place: &Place,
        trees: &mut TreeFactory,
        poller: &Poller,
    ) -> Result<Self, LaunchFailed> {
        let prepared = program::prepare(spec, place).map_err(LaunchFailed::from)?;
        let streams = open_streams(spec)?;
        let tree = start_tree(&prepared, &streams, spec.tty.is_some(), trees)?;
        let Streams {
            ours: [stdout, stderr],
            input,
            terminal,
            theirs,
        } = streams;
        drop(theirs);
        let mut command = Self {
            id,
            key,
            fingerprint,
            descendants: spec.descendants,
            grace: Duration::from_millis(spec.grace_ms),
            timeout: spec.timeout_ms.map(Duration::from_millis),
            tree,
            tree_gone: false,
            memory: trees.memory(),
            kills_before: trees.memory().kills(),
            outputs: [
                Output::new(Stream::Stdout, stdout, spec.output_limit),
                Output::new(Stream::Stderr, stderr, spec.output_limit),
            ],
            listening: [true, true],
            input: Input::new(input, spec.tty.is_some()),
            terminal,
            phase: Phase::Launching,
            began_at: Instant::now(),
            started_at: Instant::now(),
            deadline: None,
            leader: None,
            exit: None,
            exit_sent: false,
            taken_reported: 0,
            look_at: None,
            failed: false,
            retry: Some(Box::new(spec.clone())),
            starved: false,
            released: false,
            removed: false,
        };
        if let Err(error) = command.register(poller) {
            command.tree.kill();
            return Err(LaunchFailed::setup(&error));
        }
        Ok(command)
    }

    /// What is known right after the start.
    pub fn begin(&mut self, poller: &Poller, out: &mut dyn Outbox) {
        self.read_news(out);
        self.advance(Instant::now(), poller, out);
    }

    fn token(&self, part: Part) -> Token {
        Token { key: self.key, part }
    }

    fn register(&mut self, poller: &Poller) -> io::Result<()> {
        for (output, part) in self.outputs.iter().zip([Part::Stdout, Part::Stderr]) {
            if let Some(fd) = &output.fd {
                poller.add(fd, Token { key: self.key, part }, Interest::Read)?;
            }
        }
        if let Some(fd) = &self.input.fd {
            poller.add(fd, self.token(Part::Stdin), Interest::Nothing)?;
        }
        if let Some(fd) = self.tree.news_fd() {
            poller.add(fd, self.token(Part::Leader), Interest::Read)?;
        }
        Ok(())
    }

    /// The child of ours that stands for this command.
    pub fn child(&self) -> Option<i32> {
        self.tree.child()
    }

    /// Whether that child is a reaper, whose tree falls to us when somebody kills it.
    pub fn has_reaper(&self) -> bool {
        self.tree.is_reaper()
    }

    /// SHA-256 of the description.
    pub fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    /// Whether nothing is left to do: the host has all and the tree is gone, or it never ran.
    pub fn is_finished(&self) -> bool {
        let settled = self.outputs.iter().all(Output::settled);
        // A child that could not execute its program is still to be waited for.
        (self.failed && self.child().is_none())
            || (self.phase == Phase::Ended && self.released && self.tree_gone && settled)
    }

    /// The description of a command that did not start because the place had no process left for it. Taken
    /// once it is finished.
    pub fn take_starved(&mut self) -> Option<Box<CommandSpec>> {
        self.retry.take().filter(|_| self.starved)
    }

    /// It was tried before.
    pub fn waited_since(&mut self, since: Instant) {
        self.began_at = since;
    }

    /// When it was first tried to start.
    pub fn began_at(&self) -> Instant {
        self.began_at
    }

    /// Whether any process of it may be alive.
    pub fn is_alive(&self) -> bool {
        !self.failed && !self.tree_gone
    }

    /// Sends a signal to the leader or its group. One that comes while the leader is launched reaches it when it
    /// is the program: a reaper reads its requests only then.
    pub fn signal(&mut self, signal: i32, target: SignalTarget) {
        if matches!(
            self.phase,
            Phase::Launching | Phase::Running | Phase::Stopping { .. }
        ) {
            self.tree.signal_leader(signal, target == SignalTarget::Group);
        }
    }

    /// Changes the terminal's size; without a terminal nothing happens.
    pub fn resize(&mut self, size: TerminalSize) {
        if let Some(terminal) = &self.terminal {
            // The program gets SIGWINCH from the kernel.
            let _ = rustix::termios::tcsetwinsize(terminal, window(size));
        }
    }

    /// The host has the outcome.
    pub fn release(&mut self) {
        self.released = self.exit.is_some();
    }

    /// What a new connection is told.
    pub fn report(&self) -> CommandReport {
        CommandReport {
            id: self.id,
            fingerprint: self.fingerprint,
            unacknowledged: [0, 1].map(|at| self.outputs[at].first_unacknowledged()),
            stdin_accepted: self.input.accepted(),
            exit: self.exit.clone(),
        }
    }

    /// A new connection: what was not acknowledged is due again.
    pub fn rewind(&mut self) {
        self.outputs.iter_mut().for_each(Output::rewind);
        self.input.rewind();
        self.taken_reported = 0;
    }

    /// A descriptor of this command is ready.
    pub fn ready(
        &mut self,
        part: Part,
        scratch: &mut [u8; MAX_CHUNK],
        poller: &Poller,
        out: &mut dyn Outbox,
    ) {
        match part {
            Part::Stdout => self.pump(0, scratch, poller),
            Part::Stderr => self.pump(1, scratch, poller),
            Part::Stdin => self.stdin_ready(poller, out),
            Part::Leader => self.read_news(out),
            Part::Listener | Part::Signals | Part::Connection => {}
        }
        self.advance(Instant::now(), poller, out);
    }

    fn read_news(&mut self, out: &mut dyn Outbox) {
        while let Some(news) = self.tree.news() {
            self.on_news(news, out);
        }
    }

    /// A child of ours that stands for this command was waited for.
    pub fn child_ended(&mut self, status: ExitStatus, poller: &Poller, out: &mut dyn Outbox) {
        // What it said before it ended comes first.
        self.read_news(out);
        if let Some(news) = self.tree.child_ended(status) {
            self.on_news(news, out);
        }
        if self.tree.is_empty() && self.leader.is_some() {
            self.tree_gone = true;
        }
        self.advance(Instant::now(), poller, out);
    }

    fn on_news(&mut self, news: LeaderNews, out: &mut dyn Outbox) {
        let now = Instant::now();
        match news {
            LeaderNews::Started { pid } => self.on_started(pid, now, out),
            LeaderNews::Failed(failure) => self.on_failed(failure, out),
            LeaderNews::Exited(status) if !self.failed => self.on_leader_exit(status, now),
            LeaderNews::Exited(_) => {}
            LeaderNews::Empty => self.tree_gone = true,
        }
    }

    fn on_started(&mut self, pid: i32, now: Instant, out: &mut dyn Outbox) {
        self.started_at = now;
        self.retry = None;
        if self.phase == Phase::Launching {
            self.phase = Phase::Running;
            self.deadline = self.timeout.and_then(|timeout| now.checked_add(timeout));
        }
        let pid = u32::try_from(pid).unwrap_or(0);
        out.send(&FromSupervisor::Started { id: self.id, pid }, &[]);
    }

    fn on_failed(&mut self, failure: LaunchFailure, out: &mut dyn Outbox) {
        self.failed = true;
        if self.phase == Phase::Launching
            && failure.stage == Stage::Setup
            && failure.errno == Errno::AGAIN.raw_os_error()
            && self.retry.is_some()
        {
            self.starved = true;
            return;
        }
        let stage = match failure.stage {
            Stage::Setup => LaunchStage::Setup,
            Stage::Identity => LaunchStage::User,
            Stage::Cwd => LaunchStage::Cwd,
            Stage::Exec => LaunchStage::Exec,
        };
        out.send(
            &FromSupervisor::LaunchFailed {
                id: self.id,
                stage,
                errno: failure.errno,
            },
            &[],
        );
    }

    /// Everything that follows from what is known now.
    fn advance(&mut self, now: Instant, poller: &Poller, out: &mut dyn Outbox) {
        let gone_before = self.exit.as_ref().is_some_and(|exit| exit.tree_gone);
        if !self.tree_gone && self.look_at.is_some_and(|at| at <= now) {
            self.look(now);
        }
        self.decide(now);
        self.drain(poller);
        self.report_input(out);
        for output in &mut self.outputs {
            output.flush(self.id, out);
        }
        match &mut self.exit {
            Some(exit) if !self.exit_sent => {
                self.exit_sent = true;
                exit.tree_gone = self.tree_gone;
                out.send(
                    &FromSupervisor::Exited {
                        id: self.id,
                        exit: exit.clone(),
                    },
                    &[],
                );
            }
            Some(exit) if self.tree_gone && !gone_before => {
                exit.tree_gone = true;
                out.send(&FromSupervisor::TreeGone { id: self.id }, &[]);
            }
            _ => {}
        }
        if self.tree_gone && self.exit.is_some() && !self.removed {
            self.removed = true;
            self.tree.remove();
            self.input.close();
        }
    }
}
