//! The host's half of the handshake.

use crate::link::Greeting;
use crate::link::outbox::{Reader, split};
use crate::link::transport::{Duplex, Transport};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use stead_wire::proof::Transcript;
use stead_wire::{
    CommandReport, Frame, FrameDecoder, FrameError, FromSupervisor, GENERATION, Key, MAX_FRAME,
    OLDEST_GENERATION, Role, ToSupervisor, frame,
};
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio::net::UnixStream;

/// How long a supervisor may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why no link came about.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection broke.
    #[error("the connection to the supervisor broke: {0}")]
    Io(#[from] io::Error),
    /// What answered does not know the key of the instance.
    #[error("what answered at the supervisor's address does not know the instance's key")]
    Impostor,
    /// No generation of the protocol is common.
    #[error(
        "the supervisor speaks protocol {oldest} to {newest}, this build {OLDEST_GENERATION} to {GENERATION}"
    )]
    Incompatible {
        /// Its oldest generation.
        oldest: u16,
        /// Its newest generation.
        newest: u16,
    },
    /// What came is no frame of the handshake.
    #[error("the supervisor's handshake is broken: {0}")]
    Protocol(String),
    /// No answer.
    #[error("the supervisor did not answer within {} s", PATIENCE.as_secs())]
    TimedOut,
    /// No random numbers.
    #[error("the system gave no random numbers: {0}")]
    Random(String),
}

impl From<FrameError> for HandshakeError {
    fn from(error: FrameError) -> Self {
        Self::Protocol(error.to_string())
    }
}

/// A connection on which frames can be read and the writer begun.
pub struct FramedReader {
    pub reader: Reader,
    pub decoder: FrameDecoder,
}

impl FramedReader {
    /// The next frame; `None` is the end of the stream.
    pub async fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Frame>, ReadError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(Some(frame));
            }
            let count = self.reader.read(buffer).await?;
            if count == 0 {
                return Ok(None);
            }
            self.decoder.push(&buffer[..count]);
        }
    }
}

/// Why no frame could be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl From<ReadError> for HandshakeError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Io(error) => Self::Io(error),
            ReadError::Frame(error) => error.into(),
        }
    }
}

/// What the writing side of a connection is.
pub enum Writer {
    Socket(Arc<UnixStream>),
    Stream(WriteHalf<Box<dyn Duplex>>),
}

impl Writer {
    async fn write(&mut self, message: &ToSupervisor) -> Result<(), HandshakeError> {
        let mut bytes = Vec::new();
        frame::encode(message, &[], &mut bytes)?;
        match self {
            Writer::Stream(half) => {
                half.write_all(&bytes).await?;
                half.flush().await?;
            }
            Writer::Socket(socket) => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    socket.writable().await?;
                    match socket.try_write(rest) {
                        Ok(count) => rest = &rest[count..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Does the handshake, in bounded time.
pub async fn perform(
    transport: Transport,
    key: &Key,
    epoch: u64,
) -> Result<(FramedReader, Writer, Greeting, Vec<CommandReport>), HandshakeError> {
    match tokio::time::timeout(PATIENCE, exchange(transport, key, epoch)).await {
        Ok(result) => result,
        Err(_) => Err(HandshakeError::TimedOut),
    }
}

async fn exchange(
    transport: Transport,
    key: &Key,
    epoch: u64,
) -> Result<(FramedReader, Writer, Greeting, Vec<CommandReport>), HandshakeError> {
    let (reader, socket, half) = split(transport);
    let mut writer = match (socket, half) {
        (Some(socket), _) => Writer::Socket(socket),
        (None, Some(half)) => Writer::Stream(half),
        (None, None) => return Err(io::Error::from(io::ErrorKind::NotConnected).into()),
    };
    let mut reader = FramedReader {
        reader,
        decoder: FrameDecoder::new(stead_wire::MAX_HANDSHAKE_FRAME),
    };
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|error| HandshakeError::Random(error.to_string()))?;
    let hello = ToSupervisor::Hello {
        oldest: OLDEST_GENERATION,
        newest: GENERATION,
        nonce,
        epoch,
    };
    writer.write(&hello).await?;
    let transcript = match receive(&mut reader).await? {
        FromSupervisor::Challenge {
            generation,
            nonce: theirs,
            proof,
        } => {
            let transcript = Transcript {
                host: nonce,
                supervisor: theirs,
                generation,
                epoch,
            };
            let spoken = (OLDEST_GENERATION..=GENERATION).contains(&generation);
            if !spoken || !transcript.verify(Role::Supervisor, key, &proof) {
                return Err(HandshakeError::Impostor);
            }
            transcript
        }
        FromSupervisor::Incompatible { oldest, newest } => {
            return Err(HandshakeError::Incompatible { oldest, newest });
        }
        _ => return Err(HandshakeError::Protocol("no challenge came".to_owned())),
    };
    // Only what knows the key is allowed larger frames.
    reader.decoder.set_limit(MAX_FRAME);
    writer
        .write(&ToSupervisor::Proof {
            proof: transcript.prove(Role::Host, key),
        })
        .await?;
    match receive(&mut reader).await? {
        FromSupervisor::Welcome {
            tree,
            pid,
            problem,
            commands,
        } => Ok((reader, writer, Greeting { tree, pid, problem }, commands)),
        _ => Err(HandshakeError::Protocol("no welcome came".to_owned())),
    }
}

async fn receive(reader: &mut FramedReader) -> Result<FromSupervisor, HandshakeError> {
    let mut buffer = vec![0; 16 * 1024];
    match reader.next(&mut buffer).await? {
        Some(frame) => Ok(frame.message()?),
        None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
    }
}
