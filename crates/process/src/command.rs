//! One command, from its description to its final word. See the diagram at the crate's root.

use crate::input::{Fed, Input};
use crate::output::{Output, Pumped};
use crate::poll::{Interest, Part, Poller, Token};
pub use crate::program::Place;
use crate::program::{self, PrepareError, Prepared};
use crate::streams::{Streams, open_streams, reader_is_gone, window};
use crate::tree::{LeaderNews, Tree, TreeFactory};
use rustix::io::Errno;
use rustix::process::Signal;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use stead_sys::{Launch, LaunchFailure, Stage};
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

/// How long a tree may withstand SIGKILL before we say so.
const TREE_REMAINS: Duration = Duration::from_secs(30);

/// How often a tree is looked at while it is being killed; and while it is kept.
const LOOK_KILLING: Duration = Duration::from_millis(2);
const LOOK_KEPT: Duration = Duration::from_millis(250);

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

    /// When to call [`Self::tick`] at the latest.
    pub fn wake_at(&self) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Stopping {
                kill_at,
                killed_at: None,
                ..
            } => Some(kill_at),
            Phase::Launching | Phase::Running => self.deadline,
            Phase::Stopping { .. } | Phase::Sweeping { .. } | Phase::Ended => None,
        };
        [phase, self.look_at].into_iter().flatten().min()
    }

    /// The clock went on.
    pub fn tick(&mut self, now: Instant, poller: &Poller, out: &mut dyn Outbox) {
        if self.phase == Phase::Running && self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.stop(StopCause::Timeout, self.grace, now);
        }
        if let Phase::Stopping {
            cause,
            kill_at,
            killed_at: None,
        } = self.phase
            && kill_at <= now
        {
            self.phase = Phase::Stopping {
                cause,
                kill_at,
                killed_at: Some(now),
            };
            self.tree.kill();
            self.look_at = Some(now);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look(now);
        }
        self.advance(now, poller, out);
    }

    /// Looks whether the tree is gone, and when to look again.
    fn look(&mut self, now: Instant) {
        self.look_at = None;
        if self.tree_gone || self.phase == Phase::Launching {
            return;
        }
        if self.tree.is_empty() {
            self.tree_gone = true;
            return;
        }
        let again = match self.phase {
            // Some kernels deliver the kill only to those that were there: repeat it for what is new.
            Phase::Sweeping { .. }
            | Phase::Stopping {
                killed_at: Some(_), ..
            } => {
                self.tree.kill();
                LOOK_KILLING
            }
            Phase::Stopping { .. } => LOOK_KILLING,
            Phase::Running | Phase::Launching | Phase::Ended => LOOK_KEPT,
        };
        self.look_at = Some(now + again);
    }

    fn stop(&mut self, cause: StopCause, grace: Duration, now: Instant) {
        self.phase = Phase::Stopping {
            cause,
            kill_at: now + grace,
            killed_at: None,
        };
        if grace.is_zero() {
            self.phase = Phase::Stopping {
                cause,
                kill_at: now,
                killed_at: Some(now),
            };
            self.tree.kill();
        } else {
            self.tree.signal_all(Signal::TERM.as_raw());
            // What was stopped takes its SIGTERM only when it goes on.
            self.tree.signal_all(Signal::CONT.as_raw());
        }
        self.look_at = Some(now + LOOK_KILLING);
    }

    /// The host wants it ended; also sweeps what was kept.
    pub fn cancel(&mut self, grace: Duration, poller: &Poller, out: &mut dyn Outbox) {
        let now = Instant::now();
        match self.phase {
            Phase::Running => self.stop(StopCause::Cancel, grace, now),
            // There is no program yet that could end in order.
            Phase::Launching => {
                self.phase = Phase::Stopping {
                    cause: StopCause::Cancel,
                    kill_at: now,
                    killed_at: Some(now),
                };
                self.tree.kill();
                self.look_at = Some(now);
            }
            Phase::Stopping {
                cause,
                kill_at,
                killed_at: None,
            } => {
                self.phase = Phase::Stopping {
                    cause,
                    kill_at: kill_at.min(now + grace),
                    killed_at: None,
                };
            }
            Phase::Ended if !self.tree_gone => {
                self.tree.kill();
                self.look_at = Some(now);
            }
            Phase::Stopping { .. } | Phase::Sweeping { .. } | Phase::Ended => {}
        }
        self.tick(now, poller, out);
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

    /// Takes standard input. `false` is a mistake of the host.
    pub fn stdin(&mut self, offset: u64, bytes: &[u8], poller: &Poller, out: &mut dyn Outbox) -> bool {
        let good = self.input.accept(offset, bytes);
        self.feed(poller, out);
        good
    }

    /// Takes the end of standard input. `false` is a mistake of the host.
    pub fn stdin_end(&mut self, offset: u64, poller: &Poller, out: &mut dyn Outbox) -> bool {
        let good = self.input.finish(offset);
        self.feed(poller, out);
        good
    }

    fn feed(&mut self, poller: &Poller, out: &mut dyn Outbox) {
        let interest = match self.input.feed() {
            Fed::Blocked => Interest::Write,
            Fed::Idle | Fed::Closed => Interest::Nothing,
        };
        if let Some(fd) = &self.input.fd {
            // A descriptor that cannot be watched is found closed at the next write.
            let _ = poller.change(fd, self.token(Part::Stdin), interest);
        }
        self.report_input(out);
    }

    fn report_input(&mut self, out: &mut dyn Outbox) {
        let (id, through) = (self.id, self.input.taken());
        if through > self.taken_reported {
            self.taken_reported = through;
            out.send(&FromSupervisor::StdinTaken { id, through }, &[]);
        }
        if self.input.newly_closed() {
            out.send(&FromSupervisor::StdinClosed { id }, &[]);
        }
    }

    /// The host has all chunks below `next`.
    pub fn acknowledge(&mut self, stream: Stream, next: u64, poller: &Poller, out: &mut dyn Outbox) {
        let at = stream.index();
        self.outputs[at].acknowledge(next);
        if self.outputs[at].has_window() {
            self.listen(at, true, poller);
        }
        self.advance(Instant::now(), poller, out);
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

    /// Ready without data to write means that the reader is gone.
    fn stdin_ready(&mut self, poller: &Poller, out: &mut dyn Outbox) {
        if self.input.taken() == self.input.accepted()
            && let Some(fd) = &self.input.fd
            && reader_is_gone(fd)
        {
            self.input.close();
        }
        self.feed(poller, out);
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

    fn on_leader_exit(&mut self, status: ExitStatus, now: Instant) {
        self.leader = Some((status, now));
        match (self.phase, self.descendants) {
            (Phase::Running | Phase::Launching, Descendants::Sweep) => {
                self.phase = Phase::Sweeping { since: now };
                // Nearly always nothing is left: then nothing needs to be killed.
                if self.tree.is_empty() {
                    self.tree_gone = true;
                } else {
                    self.tree.kill();
                }
            }
            (Phase::Running | Phase::Launching, Descendants::Keep) => {
                self.end(None, status, now);
            }
            (Phase::Stopping { .. } | Phase::Sweeping { .. } | Phase::Ended, _) => {}
        }
        self.look_at = Some(now);
    }

    fn end(&mut self, stopped: Option<StopCause>, status: ExitStatus, at: Instant) {
        self.phase = Phase::Ended;
        let duration = at.saturating_duration_since(self.started_at);
        let duration_us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.exit = Some(Exit {
            status,
            stopped,
            duration_us,
            tree_gone: self.tree_gone,
        });
    }

    fn pump(&mut self, at: usize, scratch: &mut [u8; MAX_CHUNK], poller: &Poller) {
        // With the leader gone the next empty read decides whether the stream is over.
        match self.outputs[at].pump(scratch, self.leader.is_some()) {
            Pumped::End => self.outputs[at].end(),
            Pumped::Full => self.listen(at, false, poller),
            Pumped::Empty | Pumped::More => self.listen(at, true, poller),
        }
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

    /// Whether the final word can be said.
    fn decide(&mut self, now: Instant) {
        let (status, at) = match (self.phase, self.leader) {
            (
                Phase::Stopping {
                    killed_at: Some(killed),
                    ..
                },
                None,
            ) if killed + TREE_REMAINS <= now => (ExitStatus::Unknown, now),
            (_, Some(leader)) => leader,
            (_, None) => return,
        };
        match self.phase {
            Phase::Sweeping { since } if self.tree_gone || since + TREE_REMAINS <= now => {
                self.end(None, status, at);
            }
            Phase::Stopping { cause, killed_at, .. }
                if self.tree_gone || killed_at.is_some_and(|killed| killed + TREE_REMAINS <= now) =>
            {
                self.end(Some(cause), status, at);
            }
            Phase::Launching | Phase::Running | Phase::Sweeping { .. } | Phase::Stopping { .. } => {}
            Phase::Ended => {}
        }
    }

    /// When the tree is gone nobody writes any more: what is in the pipes is all there will be.
    fn drain(&mut self, poller: &Poller) {
        if self.exit.is_none() {
            return;
        }
        let mut scratch = [0; MAX_CHUNK];
        for at in 0..self.outputs.len() {
            if self.outputs[at].has_ended() {
                continue;
            }
            match self.outputs[at].pump(&mut scratch, true) {
                Pumped::End => self.outputs[at].end(),
                Pumped::Empty if self.tree_gone => self.outputs[at].end(),
                Pumped::Empty => {
                    self.outputs[at].owe_mark();
                    self.listen(at, true, poller);
                }
                Pumped::More => self.listen(at, true, poller),
                Pumped::Full => self.listen(at, false, poller),
            }
        }
    }

    fn listen(&mut self, at: usize, want: bool, poller: &Poller) {
        let token = self.token([Part::Stdout, Part::Stderr][at]);
        if self.listening[at] != want
            && let Some(fd) = &self.outputs[at].fd
        {
            self.listening[at] = want;
            if want {
                // It was registered before, so there is room for it.
                let _ = poller.add(fd, token, Interest::Read);
            } else {
                // Out of the set: a pipe whose writers are gone would wake us without end.
                poller.remove(fd);
            }
        }
    }
}

impl LaunchFailed {
    /// The place had no process left; when others end, it may have.
    pub fn is_starved(&self) -> bool {
        self.stage == LaunchStage::Setup && self.errno == Errno::AGAIN.raw_os_error()
    }
}

/// Why nothing runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchFailed {
    /// What failed.
    pub stage: LaunchStage,
    /// The system's error number.
    pub errno: i32,
}

impl LaunchFailed {
    pub(crate) fn setup(error: &io::Error) -> Self {
        Self {
            stage: LaunchStage::Setup,
            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        }
    }
}

impl From<PrepareError> for LaunchFailed {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::Invalid => Self {
                stage: LaunchStage::Setup,
                errno: Errno::INVAL.raw_os_error(),
            },
            PrepareError::User => Self {
                stage: LaunchStage::User,
                errno: Errno::NOENT.raw_os_error(),
            },
        }
    }
}

fn start_tree(
    prepared: &Prepared,
    streams: &Streams,
    terminal: bool,
    trees: &mut TreeFactory,
) -> Result<Tree, LaunchFailed> {
    let mut tree = trees.tree().map_err(|error| LaunchFailed::setup(&error))?;
    let [stdin, stdout, stderr] = &streams.theirs;
    let launch = Launch {
        candidates: prepared.candidates.clone(),
        argv: prepared.argv.clone(),
        env: prepared.env.clone(),
        cwd: prepared.cwd.clone(),
        identity: prepared.user.as_ref().map(|user| user.identity.clone()),
        stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        terminal,
        cgroup: None,
        cgroup_v1_procs: None,
    };
    tree.launch(launch).map_err(|error| LaunchFailed::setup(&error))?;
    Ok(tree)
}
