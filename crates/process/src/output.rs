//! One output stream: from a pipe or terminal to numbered chunks that are kept until acknowledged.

use crate::command::Outbox;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};
use stead_wire::{CommandId, FromSupervisor, MAX_CHUNK, OUTPUT_WINDOW, Stream};

/// Reads of one stream before others get their turn.
const READS_A_TURN: usize = 8;

/// What a chunk costs beside its bytes, so that single bytes do not cost more than the window allows.
const CHUNK_OVERHEAD: usize = 64;

struct Chunk {
    at_us: u64,
    bytes: Vec<u8>,
}

/// Why reading paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pumped {
    /// The pipe is empty.
    Empty,
    /// There may be more; others get their turn first.
    More,
    /// The window is full: the host must acknowledge first.
    Full,
    /// All writers are gone, or there never was a descriptor.
    End,
}

/// One output stream of a command.
pub struct Output {
    stream: Stream,
    pub(crate) fd: Option<OwnedFd>,
    /// Sequence of the front of `chunks`: all below it was acknowledged.
    first: u64,
    chunks: VecDeque<Chunk>,
    held_bytes: usize,
    /// Next sequence to send on the present connection.
    unsent: u64,
    /// Next sequence that was never sent on any connection: more than this no host can acknowledge.
    never_sent: u64,
    forwarded: u64,
    limit: u64,
    total: u64,
    last_at_us: u64,
    ended: bool,
    end_sent: bool,
    mark: Mark,
}

/// The word to the host that all before the leader's end is out, needed only while writers live on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    NotYet,
    Owed,
    Sent,
}

impl Output {
    pub fn new(stream: Stream, fd: Option<OwnedFd>, limit: Option<u64>) -> Self {
        Self {
            stream,
            ended: fd.is_none(),
            fd,
            first: 0,
            chunks: VecDeque::new(),
            held_bytes: 0,
            unsent: 0,
            never_sent: 0,
            forwarded: 0,
            limit: limit.unwrap_or(u64::MAX),
            total: 0,
            last_at_us: 0,
            end_sent: false,
            mark: Mark::NotYet,
        }
    }

    fn next(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }

    /// Reads what is there, as far as the window allows. With `strictly`, `Empty` is only said when the
    /// system said so; without, a short read is taken as the last one, which saves a call.
    pub fn pump(&mut self, scratch: &mut [u8; MAX_CHUNK], strictly: bool) -> Pumped {
        for _ in 0..READS_A_TURN {
            let Some(fd) = &self.fd else { return Pumped::End };
            if !self.has_window() {
                return Pumped::Full;
            }
            match rustix::io::read(fd, &mut scratch[..]) {
                Ok(0) => return Pumped::End,
                Ok(count) => {
                    self.take(&scratch[..count]);
                    if !strictly && count < MAX_CHUNK / 16 {
                        return Pumped::Empty;
                    }
                }
                Err(rustix::io::Errno::AGAIN) => return Pumped::Empty,
                Err(rustix::io::Errno::INTR) => {}
                // A terminal whose other side is closed says EIO.
                Err(_) => return Pumped::End,
            }
        }
        Pumped::More
    }

    /// Whether more may be read before the host acknowledges.
    pub fn has_window(&self) -> bool {
        self.held_bytes < OUTPUT_WINDOW
    }

    fn take(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = usize::try_from(self.limit - self.forwarded).unwrap_or(usize::MAX);
        let kept = &bytes[..bytes.len().min(room)];
        if kept.is_empty() {
            return;
        }
        self.forwarded += kept.len() as u64;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |t| t.as_micros());
        self.last_at_us = self.last_at_us.max(u64::try_from(now).unwrap_or(u64::MAX));
        // A busy stream coalesces by itself: what was never sent is still open.
        let last_is_open = self.never_sent < self.next();
        if last_is_open
            && let Some(last) = self.chunks.back_mut()
            && last.bytes.len() + kept.len() <= MAX_CHUNK
        {
            self.held_bytes += kept.len();
            last.bytes.extend_from_slice(kept);
            return;
        }
        self.held_bytes += kept.len() + CHUNK_OVERHEAD;
        self.chunks.push_back(Chunk {
            at_us: self.last_at_us,
            bytes: kept.to_vec(),
        });
    }

    /// No more will come; the descriptor is closed.
    pub fn end(&mut self) {
        self.fd = None;
        self.ended = true;
    }

    /// The leader has ended and the pipe was seen empty after that: all before is read.
    pub fn owe_mark(&mut self) {
        if self.mark == Mark::NotYet {
            self.mark = Mark::Owed;
        }
    }

    /// Drops what the host has. A number that was never sent is the host's mistake and ignored.
    pub fn acknowledge(&mut self, next: u64) {
        while self.first < next.min(self.never_sent) {
            if let Some(chunk) = self.chunks.pop_front() {
                self.held_bytes -= chunk.bytes.len() + CHUNK_OVERHEAD;
            }
            self.first += 1;
        }
        // A new connection acknowledges what an earlier one brought.
        self.unsent = self.unsent.max(self.first);
    }

    /// Everything that was not acknowledged is due again, on a new connection.
    pub fn rewind(&mut self) {
        self.unsent = self.first;
        self.end_sent = false;
        if self.mark == Mark::Sent {
            self.mark = Mark::Owed;
        }
    }

    /// First sequence that is not acknowledged.
    pub fn first_unacknowledged(&self) -> u64 {
        self.first
    }

    /// Whether the host has all, the end included.
    pub fn settled(&self) -> bool {
        self.end_sent && self.chunks.is_empty()
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Sends what is due, as far as there is room.
    pub fn flush(&mut self, id: CommandId, out: &mut dyn Outbox) {
        while self.unsent < self.next() && out.has_room() {
            let at = usize::try_from(self.unsent - self.first).unwrap_or(usize::MAX);
            let Some(chunk) = self.chunks.get(at) else { return };
            let message = FromSupervisor::Output {
                id,
                stream: self.stream,
                sequence: self.unsent,
                observed_at_us: chunk.at_us,
            };
            out.send(&message, &chunk.bytes);
            self.unsent += 1;
            self.never_sent = self.never_sent.max(self.unsent);
        }
        if self.unsent < self.next() {
            return;
        }
        let (stream, next, total_bytes) = (self.stream, self.next(), self.total);
        if self.ended && !self.end_sent {
            self.end_sent = true;
            out.send(
                &FromSupervisor::StreamEnd {
                    id,
                    stream,
                    next,
                    total_bytes,
                },
                &[],
            );
        } else if self.mark == Mark::Owed {
            self.mark = Mark::Sent;
            out.send(
                &FromSupervisor::StreamMark {
                    id,
                    stream,
                    next,
                    total_bytes,
                },
                &[],
            );
        }
    }
}
