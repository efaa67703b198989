//! The handshake of one connection. A peer that fails is closed without a word of what was wrong.

use crate::connection::Connection;
use std::time::{Duration, Instant};
use stead_process::Outbox;
use stead_wire::proof::Transcript;
use stead_wire::{FromSupervisor, GENERATION, Key, OLDEST_GENERATION, Role, ToSupervisor};

/// How long a peer may take to prove the key.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that has not proved the key yet.
#[derive(Debug)]
pub struct Pending {
    /// The connection.
    pub connection: Connection,
    /// When it is closed.
    pub deadline: Instant,
    transcript: Option<Transcript>,
}

/// Where a handshake is.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// More frames are needed.
    Waiting,
    /// The peer knows the key; this is its epoch.
    Proved(u64),
    /// The peer is to be closed.
    Failed,
}

impl Pending {
    /// A connection from which nothing was read yet.
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            deadline: Instant::now() + PATIENCE,
            transcript: None,
        }
    }

    /// Handles the frames that are there. `oldest_epoch` is the highest that was ever proved: one below
    /// it is refused for good.
    pub fn advance(&mut self, key: &Key, oldest_epoch: u64) -> Progress {
        while let Some(frame) = self.connection.next_frame() {
            let progress = match frame.message::<ToSupervisor>() {
                Ok(message) => self.on_message(&message, key, oldest_epoch),
                Err(_) => Progress::Failed,
            };
            if progress != Progress::Waiting {
                return progress;
            }
        }
        if self.connection.is_broken() {
            Progress::Failed
        } else {
            Progress::Waiting
        }
    }

    fn on_message(&mut self, message: &ToSupervisor, key: &Key, oldest_epoch: u64) -> Progress {
        match (message, &self.transcript) {
            (
                ToSupervisor::Hello {
                    oldest,
                    newest,
                    nonce,
                    epoch,
                },
                None,
            ) => {
                let generation = GENERATION.min(*newest);
                if generation < OLDEST_GENERATION.max(*oldest) {
                    let (oldest, newest) = (OLDEST_GENERATION, GENERATION);
                    self.connection
                        .send(&FromSupervisor::Incompatible { oldest, newest }, &[]);
                    return Progress::Failed;
                }
                let mut own = [0; 32];
                if getrandom::fill(&mut own).is_err() {
                    return Progress::Failed;
                }
                let transcript = Transcript {
                    host: *nonce,
                    supervisor: own,
                    generation,
                    epoch: *epoch,
                };
                let proof = transcript.prove(Role::Supervisor, key);
                self.transcript = Some(transcript);
                self.connection.send(
                    &FromSupervisor::Challenge {
                        generation,
                        nonce: own,
                        proof,
                    },
                    &[],
                );
                Progress::Waiting
            }
            (ToSupervisor::Proof { proof }, Some(transcript))
                if transcript.verify(Role::Host, key, proof) && transcript.epoch >= oldest_epoch =>
            {
                Progress::Proved(transcript.epoch)
            }
            _ => Progress::Failed,
        }
    }
}
