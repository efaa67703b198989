//! What flows through a command: its input, its outputs, and what of it the host has.

use super::{Command, Outbox};
use crate::input::Fed;
use crate::output::Pumped;
use crate::poll::{Interest, Part, Poller};
use crate::streams::reader_is_gone;
use std::time::Instant;
use stead_wire::{FromSupervisor, MAX_CHUNK, Stream};

impl Command {
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

    /// Ready without data to write means that the reader is gone.
    pub(super) fn stdin_ready(&mut self, poller: &Poller, out: &mut dyn Outbox) {
        if self.input.taken() == self.input.accepted()
            && let Some(fd) = &self.input.fd
            && reader_is_gone(fd)
        {
            self.input.close();
        }
        self.feed(poller, out);
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

    pub(super) fn report_input(&mut self, out: &mut dyn Outbox) {
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

    pub(super) fn pump(&mut self, at: usize, scratch: &mut [u8; MAX_CHUNK], poller: &Poller) {
        // With the leader gone the next empty read decides whether the stream is over.
        match self.outputs[at].pump(scratch, self.leader.is_some()) {
            Pumped::End => self.outputs[at].end(),
            Pumped::Full => self.listen(at, false, poller),
            Pumped::Empty | Pumped::More => self.listen(at, true, poller),
        }
    }

    /// When the tree is gone nobody writes any more: what is in the pipes is all there will be.
    pub(super) fn drain(&mut self, poller: &Poller) {
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
