//! The body of a request, piece by piece.
//!
//! ```text
//! Size ──digits CRLF──► Data(n) ──n bytes──► DataEnd ──CRLF──► Size
//!   └──0 CRLF──► Last ──CRLF──► End                Length(n) ──n bytes──► End
//! ```
//!
//! Extensions of chunks and trailers are refused: no client of a proxy that does not offer them sends them, and
//! readers differ in where they end.

use crate::head::Framing;
use bytes::{Buf, Bytes, BytesMut};

/// The most digits of a chunk's size: 2^60 bytes, and no leading zeros without end.
const MAX_DIGITS: usize = 15;

/// Takes the body out of what was read.
#[derive(Debug, Clone)]
pub struct Decoder {
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Length(u64),
    Size,
    Data(u64),
    DataEnd,
    Last,
    End,
}

/// What the next bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// More bytes are needed.
    More,
    /// A piece of the content, not empty.
    Data(Bytes),
    /// The body is over; what is left belongs to the next request.
    End,
}

/// The chunks are damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a chunk of the body is damaged")]
pub struct BodyError;

impl Decoder {
    /// At the first byte of a body.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
        };
        Self { state }
    }

    /// Takes the next piece from the front of `input`.
    ///
    /// # Errors
    /// The chunks are damaged; nothing after it can be trusted.
    pub fn next(&mut self, input: &mut BytesMut) -> Result<Piece, BodyError> {
        loop {
            self.state = match self.state {
                State::Length(0) | State::End => {
                    self.state = State::End;
                    return Ok(Piece::End);
                }
                State::Data(0) => State::DataEnd,
                State::Length(left) | State::Data(left) => {
                    if input.is_empty() {
                        return Ok(Piece::More);
                    }
                    let count = usize::try_from(left).unwrap_or(usize::MAX).min(input.len());
                    let left = left - count as u64;
                    self.state = match self.state {
                        State::Data(_) => State::Data(left),
                        _ => State::Length(left),
                    };
                    return Ok(Piece::Data(input.split_to(count).freeze()));
                }
                State::Size => match size(input)? {
                    None => return Ok(Piece::More),
                    Some(0) => State::Last,
                    Some(size) => State::Data(size),
                },
                State::DataEnd | State::Last => {
                    if !line_end(input)? {
                        return Ok(Piece::More);
                    }
                    match self.state {
                        State::Last => State::End,
                        _ => State::Size,
                    }
                }
            };
        }
    }

    /// Whether the whole body was taken.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::End | State::Length(0))
    }
}

/// Takes a line with a size, hexadecimal digits alone.
fn size(input: &mut BytesMut) -> Result<Option<u64>, BodyError> {
    let digits = input.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    if digits > MAX_DIGITS {
        return Err(BodyError);
    }
    match &input[digits..] {
        [] | [b'\r'] if digits > 0 || input.is_empty() => return Ok(None),
        [b'\r', b'\n', ..] if digits > 0 => {}
        _ => return Err(BodyError),
    }
    let text = std::str::from_utf8(&input[..digits]).map_err(|_| BodyError)?;
    let size = u64::from_str_radix(text, 16).map_err(|_| BodyError)?;
    input.advance(digits + 2);
    Ok(Some(size))
}

/// Takes CRLF; `false` when it is not whole yet.
fn line_end(input: &mut BytesMut) -> Result<bool, BodyError> {
    match &input[..] {
        [] | [b'\r'] => Ok(false),
        [b'\r', b'\n', ..] => {
            input.advance(2);
            Ok(true)
        }
        _ => Err(BodyError),
    }
}
