//! A connection from a host: frames in, frames out, both bounded.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use stead_process::{Interest, Outbox, Part, Poller, Token};
use stead_wire::{Frame, FrameDecoder, FromSupervisor, MAX_HANDSHAKE_FRAME, frame};

/// Bulk output is sent while less than this is waiting.
const ROOM: usize = 256 * 1024;

/// A host that lets more than this pile up does not read; it is closed.
const MAX_WAITING: usize = 16 << 20;

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
    token: Token,
    decoder: FrameDecoder,
    waiting: Vec<u8>,
    /// Bytes at the front of `waiting` that are written.
    written: usize,
    wants_write: bool,
    broken: bool,
    /// Whether the host wants output already.
    ready: bool,
}

impl Connection {
    /// Takes over a stream; until the peer has proved the key only small frames are accepted.
    pub fn new(stream: UnixStream, key: u32, poller: &Poller) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let token = Token {
            key,
            part: Part::Connection,
        };
        poller.add(&stream, token, Interest::Read)?;
        let decoder = FrameDecoder::new(MAX_HANDSHAKE_FRAME);
        Ok(Self {
            stream,
            token,
            decoder,
            waiting: Vec::new(),
            written: 0,
            wants_write: false,
            broken: false,
            ready: false,
        })
    }

    /// Its key in the poller.
    pub fn key(&self) -> u32 {
        self.token.key
    }

    /// The host has said what it has.
    pub fn set_ready(&mut self) {
        self.ready = true;
    }

    /// Whether it is of no more use.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Gives up on the peer.
    pub fn give_up(&mut self) {
        self.broken = true;
    }

    /// The peer has proved the key.
    pub fn accept_large_frames(&mut self) {
        self.decoder.set_limit(frame::MAX_FRAME);
    }

    /// Reads what is there.
    pub fn fill(&mut self) {
        let mut buffer = [0; 64 * 1024];
        // A few reads a turn, so that one peer cannot keep us from everything else.
        for _ in 0..8 {
            match (&self.stream).read(&mut buffer) {
                Ok(0) => return self.give_up(),
                Ok(count) => {
                    self.decoder.push(&buffer[..count]);
                    if count < buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.give_up(),
            }
            if self.decoder.pending() > frame::MAX_FRAME {
                return;
            }
        }
    }

    /// The next whole frame. A frame that breaks the rules ends the connection.
    pub fn next_frame(&mut self) -> Option<Frame> {
        if self.broken {
            return None;
        }
        match self.decoder.next_frame() {
            Ok(frame) => frame,
            Err(_) => {
                self.give_up();
                None
            }
        }
    }

    /// Writes what is waiting, as far as the peer takes it.
    pub fn flush(&mut self, poller: &Poller) {
        while self.written < self.waiting.len() && !self.broken {
            match rustix::net::send(
                &self.stream,
                &self.waiting[self.written..],
                rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT,
            ) {
                Ok(count) => self.written += count,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.give_up(),
            }
        }
        if self.written == self.waiting.len() {
            self.waiting.clear();
            self.waiting.shrink_to(ROOM);
            self.written = 0;
        } else if self.written > ROOM {
            self.waiting.drain(..self.written);
            self.written = 0;
        }
        let wants_write = !self.waiting.is_empty();
        if wants_write != self.wants_write {
            self.wants_write = wants_write;
            let interest = if wants_write {
                Interest::Both
            } else {
                Interest::Read
            };
            if poller.change(&self.stream, self.token, interest).is_err() {
                self.give_up();
            }
        }
    }

    /// Whether everything is with the peer.
    pub fn is_flushed(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Outbox for Connection {
    fn has_room(&self) -> bool {
        self.ready && self.waiting.len() - self.written < ROOM
    }

    fn send(&mut self, message: &FromSupervisor, body: &[u8]) {
        let encoded = frame::encode(message, body, &mut self.waiting);
        if encoded.is_err() || self.waiting.len() > MAX_WAITING {
            self.give_up();
        }
    }
}

/// Where messages go: to the host, if there is one.
impl Outbox for Host {
    fn has_room(&self) -> bool {
        self.0.as_ref().is_some_and(Connection::has_room)
    }

    fn send(&mut self, message: &FromSupervisor, body: &[u8]) {
        if let Some(connection) = &mut self.0 {
            connection.send(message, body);
        }
    }
}

/// The host that has proved the key, if one is connected.
#[derive(Debug, Default)]
pub struct Host(pub Option<Connection>);
