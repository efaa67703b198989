//! Frames on their way to the supervisor.
//!
//! A frame is put in whole, under a lock and without waiting, so that a caller that is dropped never leaves
//! half a frame. On a socket it is also written at once when nothing is waiting: no other task has to be
//! woken for a short command.

use crate::link::transport::Transport;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_wire::{FrameError, ToSupervisor, frame};
use tokio::io::{AsyncWrite, AsyncWriteExt, WriteHalf};
use tokio::net::UnixStream;
use tokio::sync::Notify;

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    socket: Option<Arc<UnixStream>>,
    /// Counts connections, so that the writer of an old one cannot write for a new one.
    connection: u64,
    connected: bool,
}

/// What is to be sent on the present connection.
#[derive(Default)]
pub struct Outbox {
    state: Mutex<State>,
    more: Notify,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing is left half done under this lock, so what a panicking thread left is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with a new connection; whatever was waiting for the old one is dropped. Returns the writer,
    /// which ends with an error when the connection breaks or `disconnect` is called.
    pub fn connect(
        self: &Arc<Self>,
        socket: Option<Arc<UnixStream>>,
        half: Option<WriteHalf<Box<dyn super::transport::Duplex>>>,
    ) -> impl Future<Output = io::Result<()>> + use<> {
        let connection = {
            let mut state = self.lock();
            state.waiting.clear();
            state.socket = socket.clone();
            state.connected = true;
            state.connection += 1;
            state.connection
        };
        let outbox = Arc::clone(self);
        async move {
            match (socket, half) {
                (Some(socket), _) => outbox.write_socket(connection, &socket).await,
                (None, Some(half)) => outbox.write_stream(connection, half).await,
                (None, None) => Err(io::ErrorKind::NotConnected.into()),
            }
        }
    }

    /// Frames that are put in from now on go nowhere, until the next `connect`.
    pub fn disconnect(&self) {
        let mut state = self.lock();
        state.connected = false;
        state.socket = None;
        state.waiting = Vec::new();
        state.connection += 1;
        drop(state);
        self.more.notify_waiters();
        self.more.notify_one();
    }

    /// Puts in frames, all or none. Without a connection they are dropped, and the answer is `false`: whoever
    /// needs them said again after a reconnect keeps them.
    pub fn send(&self, frames: &[(ToSupervisor, &[u8])]) -> Result<bool, FrameError> {
        let mut state = self.lock();
        if !state.connected {
            return Ok(false);
        }
        let before = state.waiting.len();
        for (message, body) in frames {
            if let Err(error) = frame::encode(message, body, &mut state.waiting) {
                state.waiting.truncate(before);
                return Err(error);
            }
        }
        if before == 0
            && let Some(socket) = state.socket.clone()
        {
            // An error is found again by the writer and the reader.
            if let Ok(written) = socket.try_write(&state.waiting) {
                state.waiting.drain(..written);
            }
        }
        let rest = !state.waiting.is_empty();
        drop(state);
        if rest {
            self.more.notify_one();
        }
        Ok(true)
    }

    async fn write_socket(&self, connection: u64, socket: &UnixStream) -> io::Result<()> {
        loop {
            if self.is_idle(connection)? {
                self.more.notified().await;
                continue;
            }
            socket.writable().await?;
            let mut state = self.lock();
            if state.connection != connection {
                return Err(io::ErrorKind::NotConnected.into());
            }
            match socket.try_write(&state.waiting) {
                Ok(written) => drop(state.waiting.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn write_stream(&self, connection: u64, mut half: impl AsyncWrite + Unpin) -> io::Result<()> {
        loop {
            if self.is_idle(connection)? {
                self.more.notified().await;
                continue;
            }
            let taken = std::mem::take(&mut self.lock().waiting);
            half.write_all(&taken).await?;
            half.flush().await?;
        }
    }

    fn is_idle(&self, connection: u64) -> io::Result<bool> {
        let state = self.lock();
        if state.connection != connection {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(state.waiting.is_empty())
    }
}

/// The halves of a transport as the link uses them.
pub enum Reader {
    /// A socket, which the outbox also writes to.
    Socket(Arc<UnixStream>),
    /// The reading half of a stream.
    Stream(tokio::io::ReadHalf<Box<dyn super::transport::Duplex>>),
}

impl Reader {
    /// Reads what is there; 0 is the end.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Reader::Stream(half) => tokio::io::AsyncReadExt::read(half, buffer).await,
            Reader::Socket(socket) => loop {
                socket.readable().await?;
                match socket.try_read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    result => return result,
                }
            },
        }
    }
}

/// Splits a transport into the reader and what [`Outbox::connect`] takes.
#[expect(
    clippy::type_complexity,
    reason = "two options of which exactly one is set, used in one place"
)]
pub fn split(
    transport: Transport,
) -> (
    Reader,
    Option<Arc<UnixStream>>,
    Option<WriteHalf<Box<dyn super::transport::Duplex>>>,
) {
    match transport {
        Transport::Socket(socket) => (Reader::Socket(Arc::clone(&socket)), Some(socket), None),
        Transport::Stream(stream) => {
            let (read, write) = tokio::io::split(stream);
            (Reader::Stream(read), None, Some(write))
        }
    }
}
