//! Frames: `u32 length | u16 head length | head | body`, both numbers little endian.
//!
//! The length counts all that follows it. The head is one postcard-encoded message; the body carries
//! bulk bytes (output, standard input, file content), so that those are never copied through the encoder.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest frame, without its length field. Both sides refuse more.
pub const MAX_FRAME: usize = 1 << 20;

/// The largest frame before the peer has proved that it knows the key.
pub const MAX_HANDSHAKE_FRAME: usize = 256;

const LENGTH_BYTES: usize = 4;
const HEAD_LENGTH_BYTES: usize = 2;

/// What was wrong with bytes that should have been a frame. After any of these the connection is
/// useless, because the place of the next frame is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The announced length is above the limit.
    #[error("a frame of {length} bytes is over the limit of {limit}")]
    TooLarge {
        /// Announced length.
        length: usize,
        /// The limit in force.
        limit: usize,
    },
    /// The frame is shorter than its own head.
    #[error("a frame is shorter than its head")]
    Short,
    /// The head is no message of this generation, or has bytes left over.
    #[error("a frame's head is no message of this generation")]
    UnknownMessage,
    /// A message to send does not fit into a head.
    #[error("a message does not fit into a frame's head")]
    HeadTooLarge,
}

/// One frame as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    head: Vec<u8>,
    /// The bulk bytes.
    pub body: Vec<u8>,
}

impl Frame {
    /// Reads the head as a message; a head with bytes left over is refused.
    pub fn message<T: DeserializeOwned>(&self) -> Result<T, FrameError> {
        match postcard::take_from_bytes::<T>(&self.head) {
            Ok((message, [])) => Ok(message),
            _ => Err(FrameError::UnknownMessage),
        }
    }
}

/// Appends one frame to `out`. On an error `out` is as it was.
pub fn encode<T: Serialize>(message: &T, body: &[u8], out: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES + HEAD_LENGTH_BYTES]);
    let result = encode_into(message, body, start, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn encode_into<T: Serialize>(
    message: &T,
    body: &[u8],
    start: usize,
    out: &mut Vec<u8>,
) -> Result<(), FrameError> {
    let head_at = start + LENGTH_BYTES + HEAD_LENGTH_BYTES;
    let taken = std::mem::take(out);
    *out = postcard::to_extend(message, taken).map_err(|_| FrameError::HeadTooLarge)?;
    let head = out.len() - head_at;
    let head_length = u16::try_from(head).map_err(|_| FrameError::HeadTooLarge)?;
    let length = HEAD_LENGTH_BYTES + head + body.len();
    if length > MAX_FRAME {
        return Err(FrameError::TooLarge {
            length,
            limit: MAX_FRAME,
        });
    }
    // MAX_FRAME fits u32, so the cast cannot cut.
    out[start..start + LENGTH_BYTES].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + LENGTH_BYTES..head_at].copy_from_slice(&head_length.to_le_bytes());
    out.extend_from_slice(body);
    Ok(())
}

/// Cuts a byte stream into frames. Holds at most one frame and what was read beyond it.
#[derive(Debug)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that were already given out.
    consumed: usize,
    limit: usize,
}

impl FrameDecoder {
    /// A decoder that refuses frames above `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: Vec::new(),
            consumed: 0,
            limit: limit.min(MAX_FRAME),
        }
    }

    /// Changes the limit for the frames that were not given out yet.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(MAX_FRAME);
    }

    /// Takes bytes as they came from the peer.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame; `None` when more bytes are needed.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let pending = &self.buffer[self.consumed..];
        let Some(length) = pending.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.limit {
            return Err(FrameError::TooLarge {
                length,
                limit: self.limit,
            });
        }
        let Some(rest) = pending[LENGTH_BYTES..].get(..length) else {
            return Ok(None);
        };
        let head_length = rest.first_chunk::<HEAD_LENGTH_BYTES>().ok_or(FrameError::Short)?;
        let head_length = usize::from(u16::from_le_bytes(*head_length));
        let rest = &rest[HEAD_LENGTH_BYTES..];
        let head = rest.get(..head_length).ok_or(FrameError::Short)?.to_vec();
        let body = rest[head_length..].to_vec();
        self.consumed += LENGTH_BYTES + length;
        if self.consumed == self.buffer.len() {
            self.buffer.clear();
            self.consumed = 0;
            // A single large frame must not make every idle connection large for good.
            self.buffer.shrink_to(128 * 1024);
        }
        Ok(Some(Frame { head, body }))
    }

    /// How many bytes are held that are not yet a whole frame.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{CommandId, Stream, ToSupervisor};
    use proptest::prelude::*;

    fn ack() -> ToSupervisor {
        ToSupervisor::Ack {
            id: CommandId([7; 16]),
            stream: Stream::Stdout,
            next: 9,
        }
    }

    #[test]
    fn a_frame_survives_any_split() {
        let mut bytes = Vec::new();
        encode(&ack(), b"body", &mut bytes).unwrap();
        encode(&ToSupervisor::Shutdown, b"", &mut bytes).unwrap();
        for cut in 0..=bytes.len() {
            let mut decoder = FrameDecoder::new(MAX_FRAME);
            let mut got = Vec::new();
            for part in [&bytes[..cut], &bytes[cut..]] {
                decoder.push(part);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    got.push((frame.message::<ToSupervisor>().unwrap(), frame.body));
                }
            }
            assert_eq!(
                got,
                vec![(ack(), b"body".to_vec()), (ToSupervisor::Shutdown, Vec::new())]
            );
            assert_eq!(decoder.pending(), 0);
        }
    }

    #[test]
    fn an_oversized_frame_is_refused_before_it_arrives() {
        let mut decoder = FrameDecoder::new(16);
        decoder.push(&17u32.to_le_bytes());
        assert_eq!(
            decoder.next_frame(),
            Err(FrameError::TooLarge {
                length: 17,
                limit: 16
            })
        );
    }

    #[test]
    fn too_large_a_body_leaves_the_output_untouched() {
        let mut out = b"before".to_vec();
        let body = vec![0; MAX_FRAME];
        assert!(matches!(
            encode(&ack(), &body, &mut out),
            Err(FrameError::TooLarge { .. })
        ));
        assert_eq!(out, b"before");
    }

    #[test]
    fn bytes_after_a_message_in_the_head_are_refused() {
        let mut bytes = Vec::new();
        encode(&ToSupervisor::Shutdown, b"x", &mut bytes).unwrap();
        // Claim that the body's byte belongs to the head.
        bytes[4] += 1;
        let mut decoder = FrameDecoder::new(MAX_FRAME);
        decoder.push(&bytes);
        let frame = decoder.next_frame().unwrap().unwrap();
        assert_eq!(frame.message::<ToSupervisor>(), Err(FrameError::UnknownMessage));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_an_error(bytes: Vec<u8>) {
            let mut decoder = FrameDecoder::new(64);
            decoder.push(&bytes);
            while let Ok(Some(frame)) = decoder.next_frame() {
                let _ = frame.message::<ToSupervisor>();
                let _ = frame.message::<crate::message::FromSupervisor>();
            }
        }
    }
}
