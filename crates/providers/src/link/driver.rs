//! The task that reads what the supervisor says, and keeps the connection.

use crate::link::handshake::{self, FramedReader, Writer};
use crate::link::slot::{Ended, Resume, Slot, Violation};
use crate::link::transport::Dial;
use crate::link::{Shared, Table, send_description};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_wire::{CommandId, CommandReport, FromSupervisor, Key, ToSupervisor};

/// Reason of a link that was closed because the supervisor has ended everything.
pub const FAREWELL: &str = "it was shut down";

/// How long a broken connection is dialled again.
const REDIAL: Duration = Duration::from_secs(10);

/// Between two dials.
const REDIAL_PAUSE: Duration = Duration::from_millis(50);

/// A supervisor that owes us something and says nothing for so long is lost. It answers a ping whatever
/// its commands do. Spec 03 T13 has the number.
const SILENCE: Duration = Duration::from_secs(60);

/// How often it is asked while something is owed.
const PING: Duration = Duration::from_secs(15);

pub struct Driver {
    pub shared: Arc<Shared>,
    pub dial: Arc<dyn Dial>,
    pub key: Key,
    pub epoch: u64,
}

/// What a handshake gives.
pub type Connected = (FramedReader, Writer, Vec<CommandReport>);

/// A connection that is in use.
pub struct Connection {
    reader: FramedReader,
    writing: Pin<Box<dyn Future<Output = std::io::Result<()>> + Send>>,
}

/// Closes the link also when the task is aborted.
struct CloseOnDrop(Arc<Shared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close("its link was dropped");
    }
}

/// How one connection ended.
enum Break {
    /// The supervisor has said farewell.
    Farewell,
    /// The connection broke; it may be dialled again.
    Broken(String),
    /// It is there and says nothing: paused, stopped, or starved.
    Silent,
    /// The supervisor broke the protocol: nothing it says is believed any more.
    Violation(String),
}

impl Driver {
    /// Begins with a connection: from here on what callers send goes there.
    pub fn begin(&self, (reader, writer, reports): Connected) -> Connection {
        let (socket, half) = match writer {
            Writer::Socket(socket) => (Some(socket), None),
            Writer::Stream(half) => (None, Some(half)),
        };
        // Under the lock, so that no caller gets its frames in before what must come first.
        let mut table = self.shared.lock();
        let writing = self.shared.outbox.connect(socket, half);
        self.resume(&mut table, &reports);
        self.shared.send(ToSupervisor::Ready);
        drop(table);
        self.shared.progress.notify_waiters();
        Connection {
            reader,
            writing: Box::pin(writing),
        }
    }

    /// Keeps the link until it is closed.
    pub async fn run(self, mut connection: Connection) {
        let _close = CloseOnDrop(Arc::clone(&self.shared));
        loop {
            let reason = match self.serve(connection).await {
                Break::Farewell => return self.shared.close(FAREWELL),
                Break::Silent => {
                    let seconds = SILENCE.as_secs();
                    return self
                        .shared
                        .close(&format!("its supervisor said nothing for {seconds} s"));
                }
                Break::Violation(what) => {
                    return self
                        .shared
                        .close(&format!("its supervisor broke the protocol: {what}"));
                }
                Break::Broken(reason) => reason,
            };
            self.shared.outbox.disconnect();
            if *self.shared.stopping.borrow() {
                return self.shared.close(FAREWELL);
            }
            // A file operation is not repeated: whoever asked decides.
            self.shared.lock().files.clear();
            match self.redial().await {
                Some(again) => connection = self.begin(again),
                None => {
                    return self
                        .shared
                        .close(&format!("its supervisor cannot be reached: {reason}"));
                }
            }
        }
    }

    async fn redial(&self) -> Option<Connected> {
        let until = Instant::now() + REDIAL;
        while Instant::now() < until && !*self.shared.stopping.borrow() {
            match self.dial.dial().await {
                Ok(transport) => match handshake::perform(transport, &self.key, self.epoch).await {
                    Ok((reader, writer, _, reports)) => return Some((reader, writer, reports)),
                    // Somebody else sits there: nothing will get better.
                    Err(handshake::HandshakeError::Impostor) => return None,
                    Err(_) => {}
                },
                // The socket is gone with its supervisor.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return None,
                Err(_) => {}
            }
            tokio::time::sleep(REDIAL_PAUSE).await;
        }
        None
    }

    async fn serve(&self, connection: Connection) -> Break {
        tokio::select! {
            ended = self.read(connection.reader) => ended,
            written = connection.writing => Break::Broken(match written {
                Ok(()) => "it was closed".to_owned(),
                Err(error) => error.to_string(),
            }),
        }
    }

    /// Brings the supervisor and our table to the same state.
    fn resume(&self, table: &mut Table, reports: &[CommandReport]) {
        for (id, slot) in &mut table.slots {
            let report = reports.iter().find(|report| report.id == *id);
            match slot.resume(report) {
                Resume::StartAgain(description) => send_description(&self.shared.outbox, *id, &description),
                Resume::Lost => slot.fail(Ended::Lost("its supervisor does not know it any more".to_owned())),
                Resume::Frames(frames) => {
                    for (message, body) in frames {
                        self.shared.send_with(message, &body);
                    }
                }
            }
            complete(&self.shared, slot);
        }
        // What runs there and is not ours was left by an owner before us that did not wait for it.
        for report in reports
            .iter()
            .filter(|report| !table.slots.contains_key(&report.id))
        {
            let id = report.id;
            self.shared.send(ToSupervisor::Cancel { id, grace_ms: 0 });
            self.shared.send(ToSupervisor::Release { id });
        }
        table.slots.retain(|_, slot| !slot.is_over());
    }

    async fn read(&self, mut reader: FramedReader) -> Break {
        let mut buffer = vec![0; 128 * 1024];
        let mut heard = Instant::now();
        loop {
            let next = tokio::time::timeout(PING, reader.next(&mut buffer)).await;
            match next {
                Ok(Ok(Some(frame))) => {
                    heard = Instant::now();
                    let message = match frame.message::<FromSupervisor>() {
                        Ok(FromSupervisor::Bye) => return Break::Farewell,
                        Ok(message) => message,
                        Err(error) => return Break::Violation(error.to_string()),
                    };
                    if let Err(Violation(what)) = self.on_message(message, frame.body) {
                        return Break::Violation(what.to_owned());
                    }
                }
                Ok(Ok(None)) => return Break::Broken("it closed the connection".to_owned()),
                Ok(Err(handshake::ReadError::Frame(error))) => return Break::Violation(error.to_string()),
                Ok(Err(handshake::ReadError::Io(error))) => return Break::Broken(error.to_string()),
                Err(_) if !self.is_owed() => heard = Instant::now(),
                Err(_) if heard.elapsed() >= SILENCE => {
                    return Break::Silent;
                }
                Err(_) => self.shared.send(ToSupervisor::Ping { tag: 0 }),
            }
        }
    }

    /// Whether anybody waits for the supervisor.
    fn is_owed(&self) -> bool {
        let table = self.shared.lock();
        !table.slots.is_empty() || !table.files.is_empty()
    }

    fn on_message(&self, message: FromSupervisor, body: Vec<u8>) -> Result<(), Violation> {
        match message {
            FromSupervisor::Challenge { .. }
            | FromSupervisor::Welcome { .. }
            | FromSupervisor::Incompatible { .. }
            | FromSupervisor::Bye => Err(Violation("a frame of the handshake after it")),
            FromSupervisor::Pong { .. } => Ok(()),
            FromSupervisor::File { tag, answer } => {
                if let Some(waiter) = self.shared.lock().files.remove(&tag) {
                    // Whoever asked may be gone.
                    let _ = waiter.send((answer, body));
                }
                Ok(())
            }
            FromSupervisor::Started { id, .. } => self.with_slot(id, |slot| {
                slot.description = None;
                Ok(())
            }),
            FromSupervisor::LaunchFailed { id, stage, errno } => self.with_slot(id, |slot| {
                slot.fail(Ended::LaunchFailed { stage, errno });
                Ok(())
            }),
            FromSupervisor::Refused { id, reason } => self.with_slot(id, |slot| {
                slot.fail(Ended::Refused(reason));
                Ok(())
            }),
            FromSupervisor::Output {
                id, stream, sequence, ..
            } => self.with_slot(id, |slot| {
                if let Some(ack) = slot.output(stream, sequence, body)? {
                    self.shared.send(ack);
                }
                Ok(())
            }),
            FromSupervisor::StreamEnd {
                id,
                stream,
                next,
                total_bytes,
            } => self.with_slot(id, |slot| slot.stream_end(stream, next, total_bytes, false)),
            FromSupervisor::StreamMark {
                id,
                stream,
                next,
                total_bytes,
            } => self.with_slot(id, |slot| slot.stream_end(stream, next, total_bytes, true)),
            FromSupervisor::StdinTaken { id, through } => self.with_slot(id, |slot| {
                let stdin = &mut slot.stdin;
                let taken = through
                    .checked_sub(stdin.taken)
                    .filter(|n| *n <= stdin.untaken.len() as u64);
                let Some(taken) = taken else { return Ok(()) };
                stdin.untaken.drain(..usize::try_from(taken).unwrap_or(0));
                stdin.taken = through;
                Ok(())
            }),
            FromSupervisor::StdinClosed { id } => self.with_slot(id, |slot| {
                slot.stdin.closed = true;
                Ok(())
            }),
            FromSupervisor::Exited { id, exit } => self.with_slot(id, |slot| {
                slot.exited(exit);
                Ok(())
            }),
            FromSupervisor::TreeGone { .. } => Ok(()),
        }
    }

    fn with_slot(
        &self,
        id: CommandId,
        change: impl FnOnce(&mut Slot) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let mut table = self.shared.lock();
        // Late news of a command that nobody cares for any more.
        let Some(slot) = table.slots.get_mut(&id) else {
            return Ok(());
        };
        change(slot)?;
        complete(&self.shared, slot);
        if slot.is_over() {
            table.slots.remove(&id);
        }
        drop(table);
        self.shared.progress.notify_waiters();
        Ok(())
    }
}

/// Passes the final word on as soon as it can be.
fn complete(shared: &Shared, slot: &mut Slot) {
    if slot.is_complete() && !slot.is_finished() {
        for frame in slot.closing_frames() {
            shared.send(frame);
        }
        slot.finish();
    }
}
