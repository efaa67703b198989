//! All commands of the instance, and what the host may ask of them.

use crate::connection::Host;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use stead_process::{Command, Outbox, Part, Place, Poller, TreeFactory};
use stead_wire::{
    CommandId, CommandReport, CommandSpec, ExitStatus, FromSupervisor, MAX_CHUNK, MAX_COMMAND, Refusal,
    Stream, TreeTracking,
};

/// Commands at once. More is refused, so that a host that has gone wild cannot exhaust the place.
const MAX_COMMANDS: usize = 4096;

/// Descriptions that are arriving in parts at once.
const MAX_ARRIVING: usize = 64;

/// Ids that are remembered after their end, so that a late `Start` does not act twice.
const REMEMBERED: usize = 4096;

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
    pub fn start(&mut self, id: CommandId, last: &[u8], key: u32, poller: &Poller, host: &mut Host) {
        let mut description = self.arriving.remove(&id).unwrap_or_default();
        description.extend_from_slice(last);
        let fingerprint: [u8; 32] = Sha256::digest(&description).into();
        match self.admit(id, fingerprint, &description) {
            Ok(Some(spec)) => self.launch(id, key, fingerprint, &spec, poller, host),
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

    fn launch(
        &mut self,
        id: CommandId,
        key: u32,
        fingerprint: [u8; 32],
        spec: &CommandSpec,
        poller: &Poller,
        host: &mut Host,
    ) {
        match Command::start(id, key, fingerprint, spec, &self.place, &mut self.trees, poller) {
            Ok(mut command) => {
                command.begin(poller, host);
                self.by_key.insert(key, command);
                self.keys.insert(id, key);
            }
            Err(failed) => {
                let (stage, errno) = (failed.stage, failed.errno);
                host.send(&FromSupervisor::LaunchFailed { id, stage, errno }, &[]);
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
        if killed && self.trees.tracking() == TreeTracking::Reaper {
            // Somebody in the place has killed a reaper, so its tree fell to us.
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
        self.drop_finished();
    }

    fn drop_finished(&mut self) {
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
            if let Some(command) = self.keys.remove(&id).and_then(|key| self.by_key.remove(&key)) {
                self.remember(id, Memory::Ran(command.fingerprint()));
            }
        }
    }

    /// When to tick at the latest.
    pub fn wake_at(&self) -> Option<Instant> {
        self.by_key.values().filter_map(Command::wake_at).min()
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

    /// Nothing is started any more and all that runs is killed.
    pub fn shut_down(&mut self, poller: &Poller, host: &mut Host) {
        self.shutting_down = true;
        for command in self.by_key.values_mut() {
            command.cancel(Duration::ZERO, poller, host);
        }
    }

    /// Whether no process of any command is left.
    pub fn all_gone(&self) -> bool {
        !self.by_key.values().any(Command::is_alive)
    }
}
