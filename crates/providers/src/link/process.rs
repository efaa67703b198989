//! A command that runs behind a link, as the provider contract has it.

use crate::link::slot::Ended;
use crate::link::{Link, Shared};
use std::sync::Arc;
use std::time::Duration;
use stead_provider::OutputChunk;
use stead_wire::{CommandId, SignalTarget, TerminalSize, ToSupervisor};
use tokio::sync::oneshot;

/// Input, a signal or a size has no receiver any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRunning(pub &'static str);

/// Ends a command when whoever waits for it is gone.
pub struct CancelOnDrop {
    shared: Arc<Shared>,
    id: CommandId,
    armed: bool,
}

impl CancelOnDrop {
    pub fn new(shared: Arc<Shared>, id: CommandId) -> Self {
        Self {
            shared,
            id,
            armed: true,
        }
    }

    /// It has ended.
    pub fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let mut table = self.shared.lock();
        let Some(slot) = table.slots.get_mut(&self.id) else {
            return;
        };
        // What it still holds is acknowledged, so that the supervisor is not kept waiting.
        for ack in slot.abandon() {
            self.shared.send(ack);
        }
        if slot.is_finished() {
            // Kept descendants live on; whatever they write is dropped.
            if slot.is_over() {
                table.slots.remove(&self.id);
            }
            return;
        }
        self.shared.send(ToSupervisor::Cancel {
            id: self.id,
            grace_ms: 0,
        });
    }
}

/// Writes standard input in parts, as the program takes it.
pub async fn write_stdin(shared: &Shared, id: CommandId, bytes: &[u8]) -> Result<(), NotRunning> {
    let mut rest = bytes;
    loop {
        // Before the look, so that what changes after it is not missed.
        let progress = shared.progress.notified();
        {
            let mut table = shared.lock();
            let slot = table
                .slots
                .get_mut(&id)
                .ok_or(NotRunning("the command has ended"))?;
            let stdin = &mut slot.stdin;
            if stdin.closed {
                return Err(NotRunning("it reads no more"));
            }
            if stdin.ended {
                return Err(NotRunning("its input was closed"));
            }
            if rest.is_empty() {
                return Ok(());
            }
            let part = &rest[..rest.len().min(stdin.room()).min(stead_wire::MAX_CHUNK)];
            if !part.is_empty() {
                let offset = stdin.offset();
                stdin.untaken.extend(part);
                shared.send_with(ToSupervisor::Stdin { id, offset }, part);
                rest = &rest[part.len()..];
                // It is with the supervisor: whether the program has ended since is another question.
                if rest.is_empty() {
                    return Ok(());
                }
                continue;
            }
        }
        progress.await;
    }
}

/// Ends standard input; ending it again, or after the program's end, is nothing.
pub fn close_stdin(shared: &Shared, id: CommandId) {
    let mut table = shared.lock();
    if let Some(slot) = table.slots.get_mut(&id)
        && !slot.stdin.ended
    {
        slot.stdin.ended = true;
        let offset = slot.stdin.offset();
        shared.send(ToSupervisor::StdinEnd { id, offset });
    }
}

/// A command with live input and output. Dropping the last handle ends its tree.
pub struct LinkProcess {
    link: Link,
    id: CommandId,
    done: Option<oneshot::Receiver<Ended>>,
    _guard: CancelOnDrop,
}

impl LinkProcess {
    pub(super) fn new(link: Link, id: CommandId, done: oneshot::Receiver<Ended>) -> Self {
        let guard = CancelOnDrop::new(Arc::clone(&link.shared), id);
        Self {
            link,
            id,
            done: Some(done),
            _guard: guard,
        }
    }

    /// Takes what will receive the end; `None` the second time.
    pub fn take_done(&mut self) -> Option<oneshot::Receiver<Ended>> {
        self.done.take()
    }

    /// Where the output can be taken from.
    pub fn output(&self) -> LinkOutput {
        LinkOutput {
            shared: Arc::clone(&self.link.shared),
            id: self.id,
        }
    }

    /// Writes standard input in parts, as the program takes it.
    pub async fn write_stdin(&self, bytes: &[u8]) -> Result<(), NotRunning> {
        write_stdin(&self.link.shared, self.id, bytes).await
    }

    /// Ends standard input; ending it again is nothing.
    pub fn close_stdin(&self) {
        close_stdin(&self.link.shared, self.id);
    }

    fn send_if_running(&self, message: ToSupervisor) -> Result<(), NotRunning> {
        let table = self.link.shared.lock();
        match table.slots.get(&self.id) {
            Some(slot) if !slot.is_finished() => self.link.shared.send(message),
            _ => return Err(NotRunning("the command has ended")),
        }
        drop(table);
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: u8, target: SignalTarget) -> Result<(), NotRunning> {
        self.send_if_running(ToSupervisor::Signal {
            id: self.id,
            signal,
            target,
        })
    }

    /// Changes the terminal's size.
    pub fn resize(&self, size: TerminalSize) -> Result<(), NotRunning> {
        self.send_if_running(ToSupervisor::Resize { id: self.id, size })
    }

    /// Ends the tree.
    pub fn cancel(&self, grace: Duration) {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.link.shared.send(ToSupervisor::Cancel {
            id: self.id,
            grace_ms,
        });
    }
}

/// The output of a command, chunk by chunk.
pub struct LinkOutput {
    shared: Arc<Shared>,
    id: CommandId,
}

impl LinkOutput {
    /// The next chunk, `None` when no more will come. Taking it makes room for more.
    pub async fn next(&mut self) -> Option<OutputChunk> {
        loop {
            let progress = self.shared.progress.notified();
            tokio::pin!(progress);
            // From here on nothing is missed.
            progress.as_mut().enable();
            {
                let mut table = self.shared.lock();
                let slot = table.slots.get_mut(&self.id)?;
                if let Some((chunk, ack)) = slot.take_chunk() {
                    if let Some(ack) = ack {
                        self.shared.send(ack);
                    }
                    if slot.is_over() {
                        table.slots.remove(&self.id);
                    }
                    return Some(chunk);
                }
                if slot.output_is_over() {
                    return None;
                }
            }
            progress.await;
        }
    }
}
