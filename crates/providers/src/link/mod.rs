//! A link to a supervisor: the host's half of the wire protocol.
//!
//! One driver task reads what the supervisor says and keeps the connection; callers put frames straight
//! into an outbox. A connection that breaks is dialled again, and every command goes on where it was:
//!
//! ```text
//! connecting ─► connected ─► (broken) ─► redialling ─► connected
//!                   │                        │ not reached within 10 s
//!                   ▼ shut down              ▼
//!                 closed ◄───────────────── closed: every command that is left is lost
//! ```

mod driver;
mod files;
mod handshake;
mod outbox;
mod process;
mod slot;
mod tar;
mod transport;

pub use files::LinkFiles;
pub use handshake::HandshakeError;
pub use process::{LinkOutput, LinkProcess, NotRunning};
pub use slot::Ended;
pub use transport::{Dial, DialPath, Duplex, Transport, connect};

use outbox::Outbox;
use slot::{Sink, Slot};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_wire::{CommandId, CommandSpec, FileAnswer, FileRequest, PlaceProblem, ToSupervisor, TreeTracking};
use tokio::sync::{Notify, oneshot, watch};

/// What a supervisor said of its place when it welcomed us.
#[derive(Debug, Clone)]
pub struct Greeting {
    /// How trees are kept together.
    pub tree: TreeTracking,
    /// The supervisor, as it sees itself.
    pub pid: u32,
    /// What keeps commands from being started, if anything does.
    pub problem: Option<PlaceProblem>,
}

/// The file operations that are under way, and who waits for them.
type PendingFiles = HashMap<u64, oneshot::Sender<(FileAnswer, Vec<u8>)>>;

type FileReceiver = oneshot::Receiver<(FileAnswer, Vec<u8>)>;

#[derive(Default)]
struct Table {
    slots: HashMap<CommandId, Slot>,
    files: PendingFiles,
    /// Why the link is closed, once it is.
    closed: Option<String>,
}

/// State that callers and the driver share.
struct Shared {
    outbox: Arc<Outbox>,
    table: Mutex<Table>,
    /// Output came, room for input came, or a command ended.
    progress: Notify,
    next_tag: AtomicU64,
    next_command: AtomicU64,
    /// Set when the owner wants the end: then a broken connection is one.
    stopping: watch::Sender<bool>,
    closed: watch::Sender<bool>,
}

/// A link to a supervisor. Clones share it; it is closed when the last one is dropped.
#[derive(Clone)]
pub struct Link {
    shared: Arc<Shared>,
    greeting: Greeting,
    /// Aborts the driver when the last clone is dropped.
    _driver: Arc<AbortOnDrop>,
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("greeting", &self.greeting)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        // Every change under this lock is whole before anything can panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, message: ToSupervisor) {
        self.send_with(message, &[]);
    }

    fn send_with(&self, message: ToSupervisor, body: &[u8]) {
        // What is sent here is bounded by its callers; a frame that is too large would be a bug of ours.
        let sent = self.outbox.send(&[(message, body)]);
        debug_assert!(sent.is_ok(), "a frame of ours is too large");
    }

    /// Ends everything that waits. Later calls find the reason.
    fn close(&self, reason: &str) {
        self.outbox.disconnect();
        let mut table = self.lock();
        if table.closed.is_none() {
            table.closed = Some(reason.to_owned());
        }
        for slot in table.slots.values_mut() {
            slot.fail(Ended::Lost(reason.to_owned()));
        }
        // Senders that are dropped tell the waiters.
        table.files.clear();
        drop(table);
        self.closed.send_replace(true);
        self.progress.notify_waiters();
    }
}

impl Link {
    /// Does the handshake on a first connection and keeps the link from then on. `epoch` is the owner's.
    pub async fn establish(
        first: Transport,
        dial: Arc<dyn Dial>,
        key: stead_wire::Key,
        epoch: u64,
    ) -> Result<Link, HandshakeError> {
        let (reader, writer, greeting, reports) = handshake::perform(first, &key, epoch).await?;
        let shared = Arc::new(Shared {
            outbox: Arc::new(Outbox::default()),
            table: Mutex::new(Table::default()),
            progress: Notify::new(),
            next_tag: AtomicU64::new(1),
            next_command: AtomicU64::new(1),
            stopping: watch::Sender::new(false),
            closed: watch::Sender::new(false),
        });
        let driver = driver::Driver {
            shared: Arc::clone(&shared),
            dial,
            key,
            epoch,
        };
        // Before the task: what a caller sends at once must not get lost.
        let connection = driver.begin((reader, writer, reports));
        let task = tokio::spawn(driver.run(connection));
        Ok(Link {
            shared,
            greeting,
            _driver: Arc::new(AbortOnDrop(task.abort_handle())),
        })
    }

    /// What the supervisor said when it welcomed us.
    pub fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// Why the link is closed, if it is.
    pub fn closed_reason(&self) -> Option<String> {
        self.shared.lock().closed.clone()
    }

    /// Waits until the link is closed.
    pub async fn closed(&self) {
        let mut closed = self.shared.closed.subscribe();
        // An error would mean that the sender is gone, and with it the link.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    fn new_command_id(&self) -> Result<CommandId, getrandom::Error> {
        let mut id = [0; 16];
        getrandom::fill(&mut id[8..])?;
        // In order, for whoever reads a trace.
        id[..8].copy_from_slice(
            &self
                .shared
                .next_command
                .fetch_add(1, Ordering::Relaxed)
                .to_be_bytes(),
        );
        Ok(CommandId(id))
    }

    /// Sends a command; the receiver gets its end.
    fn start(
        &self,
        spec: &CommandSpec,
        sink: Sink,
    ) -> Result<(CommandId, oneshot::Receiver<Ended>), StartError> {
        let id = self
            .new_command_id()
            .map_err(|error| StartError::Failed(error.to_string()))?;
        let description =
            postcard::to_extend(spec, Vec::new()).map_err(|error| StartError::Failed(error.to_string()))?;
        if description.len() > stead_wire::MAX_COMMAND {
            return Err(StartError::TooLarge(description.len()));
        }
        let (slot, done) = Slot::new(id, description, sink);
        let mut table = self.shared.lock();
        if let Some(reason) = &table.closed {
            return Err(StartError::Closed(reason.clone()));
        }
        let slot = table.slots.entry(id).or_insert(slot);
        // Under the lock, so that a reconnect either sends it or finds it sent.
        send_description(
            &self.shared.outbox,
            id,
            slot.description.as_deref().unwrap_or_default(),
        );
        Ok((id, done))
    }

    /// Runs a command to its end and collects its output. Dropping the future ends the command's tree.
    pub async fn execute(&self, spec: &CommandSpec, stdin: Option<Vec<u8>>) -> Result<Ended, StartError> {
        let (id, done) = self.start(spec, Sink::Collect(Default::default()))?;
        let guard = process::CancelOnDrop::new(Arc::clone(&self.shared), id);
        let feed = async {
            if let Some(bytes) = stdin
                && process::write_stdin(&self.shared, id, &bytes).await.is_ok()
            {
                process::close_stdin(&self.shared, id);
            }
            // The end of the input says nothing about the end of the program.
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            biased;
            ended = done => ended.unwrap_or_else(|_| Ended::Lost("its link ended".to_owned())),
            () = feed => Ended::Lost("its input ended it".to_owned()),
        };
        guard.disarm();
        Ok(ended)
    }

    /// Starts a command with live input and output.
    pub fn spawn(&self, spec: &CommandSpec) -> Result<process::LinkProcess, StartError> {
        let (id, done) = self.start(spec, Sink::Queue(Default::default()))?;
        Ok(process::LinkProcess::new(self.clone(), id, done))
    }

    /// Something with a file.
    pub async fn file(&self, request: FileRequest, body: &[u8]) -> Result<(FileAnswer, Vec<u8>), String> {
        let tag = self.shared.next_tag.fetch_add(1, Ordering::Relaxed);
        let receiver = loop {
            if let Some(receiver) = self.try_send_file(tag, &request, body)? {
                break receiver;
            }
            // It is being dialled again, or closed, within seconds.
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        receiver.await.map_err(|_| {
            self.closed_reason()
                .unwrap_or_else(|| "the connection broke meanwhile".to_owned())
        })
    }

    /// Sends a file request; `None` while there is no connection.
    fn try_send_file(
        &self,
        tag: u64,
        request: &FileRequest,
        body: &[u8],
    ) -> Result<Option<FileReceiver>, String> {
        // Under the lock, so that the end of the connection finds the waiter.
        let mut table = self.shared.lock();
        if let Some(reason) = &table.closed {
            return Err(reason.clone());
        }
        let request = request.clone();
        let sent = self
            .shared
            .outbox
            .send(&[(ToSupervisor::File { tag, request }, body)]);
        if !sent.map_err(|error| error.to_string())? {
            return Ok(None);
        }
        let (sender, receiver) = oneshot::channel();
        table.files.insert(tag, sender);
        Ok(Some(receiver))
    }

    /// Asks the supervisor to end everything and waits until it has, at most so long. `true` when it said
    /// that every tree is gone.
    pub async fn shut_down(&self, patience: Duration) -> bool {
        self.shared.stopping.send_replace(true);
        self.shared.send(ToSupervisor::Shutdown);
        let said_so = tokio::time::timeout(patience, self.closed()).await.is_ok();
        said_so && self.closed_reason().as_deref() == Some(driver::FAREWELL)
    }
}

/// Why a command was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The link is closed.
    #[error("the place is gone: {0}")]
    Closed(String),
    /// More than the protocol carries.
    #[error("the command takes {0} bytes")]
    TooLarge(usize),
    /// It could not be put into words.
    #[error("the command could not be encoded: {0}")]
    Failed(String),
}

/// Parts of a description that fit into a frame with room for its head.
const PART: usize = 512 * 1024;

fn send_description(outbox: &Outbox, id: CommandId, description: &[u8]) {
    let mut frames = Vec::new();
    let mut rest = description;
    while rest.len() > PART {
        frames.push((ToSupervisor::StartPart { id }, &rest[..PART]));
        rest = &rest[PART..];
    }
    frames.push((ToSupervisor::Start { id }, rest));
    let sent = outbox.send(&frames);
    debug_assert!(sent.is_ok(), "parts are smaller than a frame");
}
