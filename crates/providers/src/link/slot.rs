//! What the host knows of one command that is with the supervisor.

use bytes::Bytes;
use std::collections::VecDeque;
use stead_provider::OutputChunk;
use stead_wire::{CommandId, Exit, LaunchStage, Refusal, STDIN_WINDOW, Stream, ToSupervisor};
use tokio::sync::oneshot;

/// How a command ended, in the protocol's words.
#[derive(Debug, Clone)]
pub enum Ended {
    /// It ran.
    Exited {
        /// The final word.
        exit: Exit,
        /// Everything the program wrote to each stream.
        total_bytes: [u64; 2],
        /// What was collected, for `execute`.
        collected: [Vec<u8>; 2],
    },
    /// It did not run.
    LaunchFailed {
        /// What failed.
        stage: LaunchStage,
        /// The system's error number.
        errno: i32,
    },
    /// The supervisor refused it; nothing ran.
    Refused(Refusal),
    /// The connection is gone for good: it ran or may have.
    Lost(String),
}

/// One output stream as received.
#[derive(Debug, Default)]
struct Received {
    /// Sequence of the next chunk.
    next: u64,
    /// All below is acknowledged.
    acknowledged: u64,
    unacknowledged_bytes: usize,
    /// Of those, handed out from the queue.
    taken_bytes: usize,
    /// Set by the end of the stream or the mark that all before the leader's end is there.
    total: Option<u64>,
    ended: bool,
}

/// Where output goes.
#[derive(Debug)]
pub enum Sink {
    /// Kept until the end.
    Collect([Vec<u8>; 2]),
    /// Handed out chunk by chunk; acknowledged when it was taken.
    Queue(VecDeque<(u64, OutputChunk)>),
}

/// Standard input that the program has not taken yet, kept for a reconnect.
#[derive(Debug, Default)]
pub struct Stdin {
    /// Offset of the front of `unaccepted`.
    pub taken: u64,
    /// Sent and not taken.
    pub untaken: VecDeque<u8>,
    /// The end was sent.
    pub ended: bool,
    /// The program reads no more.
    pub closed: bool,
}

impl Stdin {
    /// Bytes that may be sent now.
    pub fn room(&self) -> usize {
        usize::try_from(STDIN_WINDOW)
            .unwrap_or(usize::MAX)
            .saturating_sub(self.untaken.len())
    }

    /// Offset of the next byte to send.
    pub fn offset(&self) -> u64 {
        self.taken + self.untaken.len() as u64
    }
}

/// One command.
#[derive(Debug)]
pub struct Slot {
    id: CommandId,
    /// The encoded description, until the supervisor is known to have it.
    pub description: Option<Vec<u8>>,
    received: [Received; 2],
    pub sink: Sink,
    pub stdin: Stdin,
    exit: Option<Exit>,
    done: Option<oneshot::Sender<Ended>>,
    /// Nobody waits any more: only the end is awaited, to release it.
    pub abandoned: bool,
}

/// The peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Violation(pub &'static str);

/// Acknowledge when so much is waiting, so that the supervisor never runs out of window.
const ACKNOWLEDGE_AT: usize = stead_wire::OUTPUT_WINDOW / 4;

impl Slot {
    /// A command that was not sent yet, and where its end will be told.
    pub fn new(id: CommandId, description: Vec<u8>, sink: Sink) -> (Self, oneshot::Receiver<Ended>) {
        let (done, receiver) = oneshot::channel();
        let slot = Self {
            id,
            description: Some(description),
            received: Default::default(),
            sink,
            stdin: Stdin::default(),
            exit: None,
            done: Some(done),
            abandoned: false,
        };
        (slot, receiver)
    }

    /// Takes a chunk. Returns an acknowledgement when one is due.
    pub fn output(
        &mut self,
        stream: Stream,
        sequence: u64,
        bytes: Vec<u8>,
    ) -> Result<Option<ToSupervisor>, Violation> {
        let received = &mut self.received[stream.index()];
        if sequence < received.next {
            // Sent again after a reconnect.
            return Ok(None);
        }
        if sequence > received.next || received.ended {
            return Err(Violation("a chunk is missing"));
        }
        if bytes.is_empty() || bytes.len() > stead_wire::MAX_CHUNK {
            return Err(Violation("a chunk of a forbidden size"));
        }
        if received.unacknowledged_bytes > stead_wire::OUTPUT_WINDOW {
            return Err(Violation("more output than the window allows"));
        }
        received.next += 1;
        received.unacknowledged_bytes += bytes.len();
        if self.abandoned {
            return Ok(Some(self.acknowledge(stream)));
        }
        match &mut self.sink {
            Sink::Collect(collected) => {
                collected[stream.index()].extend_from_slice(&bytes);
                let due = self.received[stream.index()].unacknowledged_bytes >= ACKNOWLEDGE_AT;
                Ok(due.then(|| self.acknowledge(stream)))
            }
            Sink::Queue(queue) => {
                queue.push_back((
                    sequence,
                    OutputChunk {
                        stream: public(stream),
                        bytes: Bytes::from(bytes),
                    },
                ));
                Ok(None)
            }
        }
    }

    /// The next chunk of the queue, and the acknowledgement that is due because it was taken.
    pub fn take_chunk(&mut self) -> Option<(OutputChunk, Option<ToSupervisor>)> {
        let Sink::Queue(queue) = &mut self.sink else {
            return None;
        };
        let (sequence, chunk) = queue.pop_front()?;
        let stream = wire(chunk.stream);
        let received = &mut self.received[stream.index()];
        received.taken_bytes += chunk.bytes.len();
        // Some at a time, and always when nothing is left: the supervisor may be waiting for it.
        let due = received.taken_bytes >= ACKNOWLEDGE_AT || sequence + 1 == received.next;
        let ack = due.then(|| {
            received.acknowledged = sequence + 1;
            received.unacknowledged_bytes -= received.taken_bytes;
            received.taken_bytes = 0;
            ToSupervisor::Ack {
                id: self.id,
                stream,
                next: sequence + 1,
            }
        });
        Some((chunk, ack))
    }

    /// Nobody wants it any more: its output is dropped as it comes.
    pub fn abandon(&mut self) -> [ToSupervisor; 2] {
        self.abandoned = true;
        self.sink = Sink::Queue(VecDeque::new());
        Stream::ALL.map(|stream| self.acknowledge(stream))
    }

    fn acknowledge(&mut self, stream: Stream) -> ToSupervisor {
        let received = &mut self.received[stream.index()];
        received.acknowledged = received.next;
        received.unacknowledged_bytes = 0;
        received.taken_bytes = 0;
        ToSupervisor::Ack {
            id: self.id,
            stream,
            next: received.next,
        }
    }

    /// The end of a stream, or with `is_mark` all up to the leader's end.
    pub fn stream_end(
        &mut self,
        stream: Stream,
        next: u64,
        total: u64,
        is_mark: bool,
    ) -> Result<(), Violation> {
        let received = &mut self.received[stream.index()];
        if next < received.next && is_mark {
            return Ok(());
        }
        if next != received.next {
            return Err(Violation("the end of a stream does not match its chunks"));
        }
        if !is_mark || received.total.is_none() {
            received.total = Some(total);
        }
        received.ended |= !is_mark;
        Ok(())
    }

    /// No more output will come, or all that came was taken and nobody will send more.
    pub fn output_is_over(&self) -> bool {
        let empty = matches!(&self.sink, Sink::Queue(queue) if queue.is_empty());
        empty && self.received.iter().all(|received| received.ended)
    }

    /// The leader's end.
    pub fn exited(&mut self, exit: Exit) {
        self.exit = Some(exit);
        self.description = None;
    }

    /// Whether the final word can be passed on: the exit, and for `execute` all that was written before it.
    pub fn is_complete(&self) -> bool {
        let all_there = self.received.iter().all(|received| received.total.is_some());
        self.exit.is_some() && (all_there || self.abandoned)
    }

    /// What is sent when it is complete: everything is acknowledged that is ours already, and the rest of
    /// a queue will be when it is taken.
    pub fn closing_frames(&mut self) -> Vec<ToSupervisor> {
        let mut frames = Vec::with_capacity(3);
        if self.abandoned || matches!(self.sink, Sink::Collect(_)) {
            for stream in Stream::ALL {
                if self.received[stream.index()].acknowledged < self.received[stream.index()].next {
                    frames.push(self.acknowledge(stream));
                }
            }
        }
        frames.push(ToSupervisor::Release { id: self.id });
        frames
    }

    /// Passes the final word on, once.
    pub fn finish(&mut self) {
        if let (Some(done), Some(exit)) = (self.done.take(), self.exit.clone()) {
            let total_bytes = [0, 1].map(|at| self.received[at].total.unwrap_or(0));
            let collected = match &mut self.sink {
                Sink::Collect(collected) => {
                    // What kept descendants still write is nobody's.
                    self.abandoned = true;
                    std::mem::take(collected)
                }
                Sink::Queue(_) => Default::default(),
            };
            // Nobody may be waiting any more.
            let _ = done.send(Ended::Exited {
                exit,
                total_bytes,
                collected,
            });
        }
    }

    /// Whether the final word was passed on.
    pub fn is_finished(&self) -> bool {
        self.done.is_none()
    }

    /// Whether nothing more can come for it.
    pub fn is_over(&self) -> bool {
        let ended = self.received.iter().all(|received| received.ended);
        let untaken = matches!(&self.sink, Sink::Queue(queue) if !queue.is_empty());
        self.is_finished() && ended && (!untaken || self.abandoned)
    }

    /// It ended without having run, or is lost.
    pub fn fail(&mut self, ended: Ended) {
        self.stdin.closed = true;
        self.received
            .iter_mut()
            .for_each(|received| received.ended = true);
        if let Some(done) = self.done.take() {
            let _ = done.send(ended);
        }
    }

    /// What a reconnected supervisor is told: how far we are. Its own report says what it does not have.
    pub fn resume(&mut self, known: Option<&stead_wire::CommandReport>) -> Resume {
        let Some(report) = known else {
            return match &self.description {
                // It was never started, or not admitted: the id makes sure that it does not run twice.
                Some(description) => Resume::StartAgain(description.clone()),
                None => Resume::Lost,
            };
        };
        self.description = None;
        let mut frames = Vec::new();
        // What a queue holds is acknowledged when it is taken; what comes again until then is dropped.
        if self.abandoned || matches!(self.sink, Sink::Collect(_)) {
            frames.extend(Stream::ALL.map(|stream| (self.acknowledge(stream), Vec::new())));
        }
        let id = self.id;
        let accepted = report.stdin_accepted.clamp(self.stdin.taken, self.stdin.offset());
        let skip = usize::try_from(accepted - self.stdin.taken).unwrap_or(usize::MAX);
        let rest: Vec<u8> = self.stdin.untaken.iter().skip(skip).copied().collect();
        for (at, part) in rest.chunks(stead_wire::MAX_CHUNK).enumerate() {
            let offset = accepted + (at * stead_wire::MAX_CHUNK) as u64;
            frames.push((ToSupervisor::Stdin { id, offset }, part.to_vec()));
        }
        if self.stdin.ended {
            frames.push((
                ToSupervisor::StdinEnd {
                    id,
                    offset: self.stdin.offset(),
                },
                Vec::new(),
            ));
        }
        if let Some(exit) = &report.exit {
            self.exit = Some(exit.clone());
        }
        Resume::Frames(frames)
    }
}

/// What to do with a command after a reconnect.
#[derive(Debug)]
pub enum Resume {
    /// Send these.
    Frames(Vec<(ToSupervisor, Vec<u8>)>),
    /// Send this description again under the same id.
    StartAgain(Vec<u8>),
    /// The supervisor knew it and does not know it any more.
    Lost,
}

fn public(stream: Stream) -> stead_types::Stream {
    match stream {
        Stream::Stdout => stead_types::Stream::Stdout,
        Stream::Stderr => stead_types::Stream::Stderr,
    }
}

fn wire(stream: stead_types::Stream) -> Stream {
    match stream {
        stead_types::Stream::Stdout => Stream::Stdout,
        stead_types::Stream::Stderr => Stream::Stderr,
    }
}
