//! Standard input: a bounded buffer between the host and the program.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use stead_wire::STDIN_WINDOW;

/// VEOF as terminals have it unless a program changes it: Ctrl-D.
const VEOF: u8 = 4;

/// Standard input of a command.
pub struct Input {
    pub(crate) fd: Option<OwnedFd>,
    buffer: VecDeque<u8>,
    /// Bytes that were accepted from the host, from the start of the stream.
    accepted: u64,
    /// Length of the whole stream, once the host has said it.
    end_at: Option<u64>,
    terminal: bool,
    was_closed: bool,
}

/// What a write to the program gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fed {
    /// All that is there was written.
    Idle,
    /// The program does not read now.
    Blocked,
    /// The program reads no more, or the stream is complete.
    Closed,
}

impl Input {
    pub fn new(fd: Option<OwnedFd>, terminal: bool) -> Self {
        Self {
            was_closed: fd.is_none(),
            fd,
            buffer: VecDeque::new(),
            accepted: 0,
            end_at: None,
            terminal,
        }
    }

    /// Takes bytes that begin at `offset`; what was accepted already is skipped. `false` when they begin
    /// behind what is there, or are more than the window allows: the host's mistake.
    pub fn accept(&mut self, offset: u64, bytes: &[u8]) -> bool {
        if self.fd.is_none() {
            // Closed already; the host is told so and may not have read it yet.
            return true;
        }
        let Some(skip) = self.accepted.checked_sub(offset) else {
            return false;
        };
        let fresh = bytes
            .get(usize::try_from(skip).unwrap_or(usize::MAX)..)
            .unwrap_or(&[]);
        if self.buffer.len() as u64 + fresh.len() as u64 > STDIN_WINDOW {
            return false;
        }
        if self
            .end_at
            .is_none_or(|end| self.accepted + fresh.len() as u64 <= end)
        {
            self.buffer.extend(fresh);
            self.accepted += fresh.len() as u64;
        }
        true
    }

    /// The stream ends at `offset`.
    pub fn finish(&mut self, offset: u64) -> bool {
        if self.fd.is_none() || self.end_at.is_some() {
            return true;
        }
        if offset != self.accepted {
            return false;
        }
        self.end_at = Some(offset);
        if self.terminal {
            self.buffer.push_back(VEOF);
        }
        true
    }

    /// Writes as much as the program takes.
    pub fn feed(&mut self) -> Fed {
        loop {
            let Some(fd) = &self.fd else { return Fed::Closed };
            let (front, _) = self.buffer.as_slices();
            if front.is_empty() {
                // A terminal stays open: its end was typed.
                if self.end_at.is_some() && !self.terminal {
                    self.fd = None;
                    continue;
                }
                return Fed::Idle;
            }
            match rustix::io::write(fd, front) {
                Ok(count) => drop(self.buffer.drain(..count)),
                Err(rustix::io::Errno::AGAIN) => return Fed::Blocked,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.close(),
            }
        }
    }

    /// Gives up the stream.
    pub fn close(&mut self) {
        self.fd = None;
        self.buffer = VecDeque::new();
    }

    /// Bytes that the program has taken.
    pub fn taken(&self) -> u64 {
        self.accepted - (self.buffer.len() as u64).min(self.accepted)
    }

    /// Bytes that were accepted.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// A new host has heard nothing yet.
    pub fn rewind(&mut self) {
        self.was_closed = false;
    }

    /// True once, when the stream has just closed.
    pub fn newly_closed(&mut self) -> bool {
        let newly = self.fd.is_none() && !self.was_closed;
        self.was_closed |= newly;
        newly
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn repeats_are_skipped_and_holes_are_refused() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut input = Input::new(Some(write), false);
        assert!(input.accept(0, b"abc"));
        assert!(input.accept(1, b"bcde"));
        assert!(!input.accept(6, b"x"));
        assert!(!input.finish(9));
        assert!(input.finish(5));
        assert_eq!(input.feed(), Fed::Closed);
        assert!(input.newly_closed());
        assert!(!input.newly_closed());
        let mut got = [0; 16];
        assert_eq!(rustix::io::read(&read, &mut got).unwrap(), 5);
        assert_eq!(&got[..5], b"abcde");
    }

    #[test]
    fn the_window_bounds_what_is_held() {
        let (_read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut input = Input::new(Some(write), false);
        let window = vec![0; usize::try_from(STDIN_WINDOW).unwrap()];
        assert!(input.accept(0, &window));
        assert!(!input.accept(STDIN_WINDOW, b"x"));
        assert_eq!(input.feed(), Fed::Blocked);
        assert!(input.taken() > 0 && input.taken() < STDIN_WINDOW);
    }

    #[test]
    fn a_reader_that_is_gone_closes_the_stream() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let mut input = Input::new(Some(write), false);
        drop(read);
        assert!(input.accept(0, b"abc"));
        assert_eq!(input.feed(), Fed::Closed);
        assert!(input.accept(3, b"more"), "late input is no mistake");
    }
}
