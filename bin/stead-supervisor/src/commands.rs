//! All commands of the instance, and what the host may ask of them.

use crate::connection::Host;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use stead_process::{Command, Outbox, Part, Place, Poller, TreeFactory};
use stead_wire::{
    CommandId, CommandReport, CommandSpec, ExitStatus, FromSupervisor, LaunchStage, MAX_CHUNK, MAX_COMMAND,
    Refusal, Stream,
};

/// Commands at once. More is refused, so that a host that has gone wild cannot exhaust the place.
const MAX_COMMANDS: usize = 4096;

/// Descriptions that are arriving in parts at once.
const MAX_ARRIVING: usize = 64;

/// Ids that are remembered after their end, so that a late `Start` does not act twice.
const REMEMBERED: usize = 4096;

/// How long a command waits for a place that has no process left for it.
const STARVES: Duration = Duration::from_secs(30);

/// The same for a command that has less time than that.
fn patience(timeout_ms: Option<u64>) -> Duration {
    timeout_ms.map_or(STARVES, |timeout| STARVES.min(Duration::from_millis(timeout)))
}

/// Between two tries, when nothing ends meanwhile.
const STARVED_RETRY: Duration = Duration::from_millis(10);

/// A command that could not be started because the place is full.
struct Waiting {
    id: CommandId,
    fingerprint: [u8; 32],
    spec: Box<CommandSpec>,
    since: Instant,
}

/// What is remembered of an id that is not running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    CancelledBefore,
    Ran([u8; 32]),
}

/// The commands.
pub struct Commands {
    place: Place,
    trees: TreeFactory,
    by_key: HashMap<u32, Command>,
    keys: HashMap<CommandId, u32>,
    arriving: HashMap<CommandId, Vec<u8>>,
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    retry_at: Option<Instant>,
    last_key: u32,
    memory: HashMap<CommandId, Memory>,
    memory_order: VecDeque<CommandId>,
    scratch: Box<[u8; MAX_CHUNK]>,
    shutting_down: bool,
}

impl Commands {
    /// No command yet.
    pub fn new(place: Place, trees: TreeFactory) -> Self {
        Self {
            place,
            trees,
            by_key: HashMap::new(),
            keys: HashMap::new(),
            arriving: HashMap::new(),
            waiting: VecDeque::new(),
            retry_at: None,
            last_key: 0,
            memory: HashMap::new(),
            memory_order: VecDeque::new(),
            scratch: Box::new([0; MAX_CHUNK]),
            shutting_down: false,
        }
    }

    /// How trees are kept together.
    pub fn trees(&self) -> &TreeFactory {
        &self.trees
    }

    /// Takes a part of a description. `false` is a mistake of the host.
    pub fn start_part(&mut self, id: CommandId, part: &[u8]) -> bool {
        if !self.arriving.contains_key(&id) && self.arriving.len() >= MAX_ARRIVING {
            return false;
        }
        let sofar = self.arriving.entry(id).or_default();
        if sofar.len() + part.len() > MAX_COMMAND {
            self.arriving.remove(&id);
            return false;
        }
        sofar.extend_from_slice(part);
        true
    }

    /// Starts a command, or joins the one that was started under this id. `key` is new.
    pub fn start(&mut self, id: CommandId, last: &[u8], poller: &Poller, host: &mut Host) {
        let mut description = self.arriving.remove(&id).unwrap_or_default();
        description.extend_from_slice(last);
        let fingerprint: [u8; 32] = Sha256::digest(&description).into();
        match self.admit(id, fingerprint, &description) {
            Ok(Some(spec)) => {
                let (spec, since) = (Box::new(spec), Instant::now());
                self.launch(
                    Waiting {
                        id,
                        fingerprint,
                        spec,
                        since,
                    },
                    poller,
                    host,
                );
            }
            Ok(None) => {}
            Err(reason) => host.send(&FromSupervisor::Refused { id, reason }, &[]),
        }
    }

    /// Whether to start: `None` joins what runs already.
    fn admit(
        &self,
        id: CommandId,
        fingerprint: [u8; 32],
        text: &[u8],
    ) -> Result<Option<CommandSpec>, Refusal> {
        if let Some(waiting) = self.waiting.iter().find(|waiting| waiting.id == id) {
            return if waiting.fingerprint == fingerprint {
                Ok(None)
            } else {
                Err(Refusal::OtherFingerprint)
            };
        }
        if let Some(running) = self.keys.get(&id).and_then(|key| self.by_key.get(key)) {
            return if running.fingerprint() == fingerprint {
                Ok(None)
            } else {
                Err(Refusal::OtherFingerprint)
            };
        }
        match self.memory.get(&id) {
            Some(Memory::CancelledBefore) => return Err(Refusal::CancelledBefore),
            Some(Memory::Ran(_)) => return Err(Refusal::OtherFingerprint),
            None => {}
        }
        if self.shutting_down {
            return Err(Refusal::ShuttingDown);
        }
        if self.by_key.len() >= MAX_COMMANDS {
            return Err(Refusal::TooMany);
        }
        match postcard::take_from_bytes(text) {
            Ok((spec, [])) => Ok(Some(spec)),
            _ => Err(Refusal::BadCommand),
        }
    }

    /// Starts a command; `false` when the place is full and it waits for its turn.
    fn launch(&mut self, waiting: Waiting, poller: &Poller, host: &mut Host) -> bool {
        let (id, fingerprint) = (waiting.id, waiting.fingerprint);
        self.last_key += 1;
        let key = self.last_key;
        match Command::start(
            id,
            key,
            fingerprint,
            &waiting.spec,
            &self.place,
            &mut self.trees,
            poller,
        ) {
            Ok(mut command) => {
                command.waited_since(waiting.since);
                command.begin(poller, host);
                self.by_key.insert(key, command);
                self.keys.insert(id, key);
                true
            }
            Err(failed)
                if failed.is_starved() && waiting.since.elapsed() < patience(waiting.spec.timeout_ms) =>
            {
                self.wait_for_room(waiting);
                false
            }
            Err(failed) => {
                let (stage, errno) = (failed.stage, failed.errno);
                host.send(&FromSupervisor::LaunchFailed { id, stage, errno }, &[]);
                true
            }
        }
    }

    /// In front of those that came later.
    fn wait_for_room(&mut self, waiting: Waiting) {
        let at = self.waiting.partition_point(|other| other.since <= waiting.since);
        self.waiting.insert(at, waiting);
        self.retry_at = Some(Instant::now() + STARVED_RETRY);
    }

    /// Starts what waits, until the place is full again.
    fn retry_waiting(&mut self, poller: &Poller, host: &mut Host) {
        self.retry_at = None;
        while let Some(waiting) = self.waiting.pop_front() {
            if !self.launch(waiting, poller, host) {
                return;
            }
        }
    }

    /// The command with this id, if it is not finished.
    pub fn by_id(&mut self, id: CommandId) -> Option<&mut Command> {
        let key = self.keys.get(&id)?;
        self.by_key.get_mut(key)
    }

    /// Ends a command, or makes a later start of it impossible.
    pub fn cancel(&mut self, id: CommandId, grace: Duration, poller: &Poller, host: &mut Host) {
        match self.by_id(id) {
            Some(command) => command.cancel(grace, poller, host),
            None => {
                self.arriving.remove(&id);
                if let Some(at) = self.waiting.iter().position(|waiting| waiting.id == id) {
                    self.waiting.remove(at);
                    let reason = Refusal::CancelledBefore;
                    host.send(&FromSupervisor::Refused { id, reason }, &[]);
                }
                self.remember(id, Memory::CancelledBefore);
            }
        }
    }

    fn remember(&mut self, id: CommandId, memory: Memory) {
        // What ran stays that way: a late cancel does not change it.
        if self.memory.contains_key(&id) {
            return;
        }
        self.memory.insert(id, memory);
        self.memory_order.push_back(id);
        if self.memory_order.len() > REMEMBERED
            && let Some(oldest) = self.memory_order.pop_front()
        {
            self.memory.remove(&oldest);
        }
    }

    /// A descriptor of a command is ready.
    pub fn ready(&mut self, key: u32, part: Part, poller: &Poller, host: &mut Host) {
        if let Some(command) = self.by_key.get_mut(&key) {
            command.ready(part, &mut self.scratch, poller, host);
        }
    }

    /// The host has chunks.
    pub fn acknowledge(
        &mut self,
        id: CommandId,
        stream: Stream,
        next: u64,
        poller: &Poller,
        host: &mut Host,
    ) {
        if let Some(command) = self.by_id(id) {
            command.acknowledge(stream, next, poller, host);
        }
    }

    /// A child was waited for. One that belongs to no command fell to us when its parent ended.
    pub fn child_ended(&mut self, pid: i32, status: ExitStatus, poller: &Poller, host: &mut Host) {
        let Some(command) = self
            .by_key
            .values_mut()
            .find(|command| command.child() == Some(pid))
        else {
            return;
        };
        command.child_ended(status, poller, host);
        let killed = matches!(status, ExitStatus::Signal { .. });
        if killed && command.has_reaper() {
            // Somebody in the place has killed a reaper, so its tree fell to us. What else
            // fell to us cannot be told from it: it must not be said to be gone while it lives.
            stead_process::kill_adopted(|child| {
                self.by_key.values().any(|command| command.child() == Some(child))
            });
        }
    }

    /// The clock went on; finished commands are dropped.
    pub fn tick(&mut self, poller: &Poller, host: &mut Host) {
        let now = Instant::now();
        for command in self.by_key.values_mut() {
            if command.wake_at().is_some_and(|at| at <= now) {
                command.tick(now, poller, host);
            }
        }
        let before = self.by_key.len();
        self.drop_finished(host);
        let room = self.by_key.len() < before;
        if !self.waiting.is_empty() && (room || self.retry_at.is_some_and(|at| at <= now)) {
            self.retry_waiting(poller, host);
        }
    }

    fn drop_finished(&mut self, host: &mut Host) {
        if !self.by_key.values().any(Command::is_finished) {
            return;
        }
        let finished: Vec<CommandId> = self
            .keys
            .iter()
            .filter(|(_, key)| self.by_key.get(key).is_some_and(Command::is_finished))
            .map(|(id, _)| *id)
            .collect();
        for id in finished {
            let Some(mut command) = self.keys.remove(&id).and_then(|key| self.by_key.remove(&key)) else {
                continue;
            };
            let fingerprint = command.fingerprint();
            match command.take_starved() {
                Some(spec)
                    if self.shutting_down || command.began_at().elapsed() >= patience(spec.timeout_ms) =>
                {
                    let (stage, errno) = (LaunchStage::Setup, rustix::io::Errno::AGAIN.raw_os_error());
                    host.send(&FromSupervisor::LaunchFailed { id, stage, errno }, &[]);
                }
                Some(spec) => {
                    let since = command.began_at();
                    self.wait_for_room(Waiting {
                        id,
                        fingerprint,
                        spec,
                        since,
                    });
                }
                None => self.remember(id, Memory::Ran(fingerprint)),
            }
        }
    }

    /// When to tick at the latest.
    pub fn wake_at(&self) -> Option<Instant> {
        let commands = self.by_key.values().filter_map(Command::wake_at);
        commands.chain(self.retry_at).min()
    }

    /// There is room again: sends what is due.
    pub fn flush(&mut self, poller: &Poller, host: &mut Host) {
        let now = Instant::now();
        for command in self.by_key.values_mut() {
            if !host.has_room() {
                return;
            }
            command.tick(now, poller, host);
        }
    }

    /// A new connection: tells what there is, and everything unacknowledged is due again.
    pub fn reports(&mut self) -> Vec<CommandReport> {
        self.by_key.values_mut().for_each(Command::rewind);
        self.by_key.values().map(Command::report).collect()
    }

    /// Nothing is started any more and all that runs is killed; `asked` by the host, or by a signal.
    pub fn shut_down(&mut self, asked: bool, poller: &Poller, host: &mut Host) {
        self.shutting_down = true;
        for waiting in std::mem::take(&mut self.waiting) {
            let (id, reason) = (waiting.id, Refusal::ShuttingDown);
            host.send(&FromSupervisor::Refused { id, reason }, &[]);
        }
        for command in self.by_key.values_mut() {
            match asked {
                true => command.cancel(Duration::ZERO, poller, host),
                false => command.shut_down(poller, host),
            }
        }
    }

    /// Whether no process of any command is left.
    pub fn all_gone(&self) -> bool {
        !self.by_key.values().any(Command::is_alive)
    }
}
