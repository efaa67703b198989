//! What the targets of both directions of the codec share, and the oracle of the template target.

pub mod layer;

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use stead_wire::{Frame, FrameDecoder, FrameError, MAX_FRAME, MAX_HANDSHAKE_FRAME, frame};

/// All frames of `bytes`, which come in pieces of `piece`, and what ended the stream.
fn frames(bytes: &[u8], piece: usize, limit: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = FrameDecoder::new(limit);
    let mut frames = Vec::new();
    for part in bytes.chunks(piece.max(1)) {
        decoder.push(part);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
        assert!(decoder.pending() <= bytes.len(), "more is held than came");
    }
    (frames, None)
}

/// One frame around `head`, made by hand, so that bytes reach the message without a lucky length.
fn framed(head: &[u8], body: &[u8]) -> Vec<u8> {
    let head_length = u16::try_from(head.len()).expect("inputs are short");
    let length = u32::try_from(2 + head.len() + body.len()).expect("inputs are short");
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(&head_length.to_le_bytes());
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(body);
    bytes
}

/// The bytes mean the same in any pieces; a message that is understood is understood the same after it
/// was encoded again, and then its bytes no longer change. `each` sees every message with its body.
///
/// With an odd `mode` the bytes are one message's, otherwise a whole stream's.
pub fn codec<T>(mode: u8, piece: u8, bytes: &[u8], each: impl Fn(&T, &[u8]))
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let stream = if mode & 1 == 1 {
        framed(bytes, b"body")
    } else {
        bytes.to_vec()
    };
    let limit = if mode & 2 == 2 {
        MAX_HANDSHAKE_FRAME
    } else {
        MAX_FRAME
    };
    let whole = frames(&stream, stream.len(), limit);
    assert_eq!(
        whole,
        frames(&stream, usize::from(piece), limit),
        "the pieces matter"
    );
    for received in &whole.0 {
        let Ok(message) = received.message::<T>() else {
            continue;
        };
        each(&message, &received.body);
        let mut once = Vec::new();
        frame::encode(&message, &received.body, &mut once).expect("it came as a frame");
        let (mut again, error) = frames(&once, once.len(), MAX_FRAME);
        let again = again.pop().expect("one frame");
        assert_eq!(error, None);
        assert_eq!(again.message::<T>().as_ref(), Ok(&message));
        assert_eq!(again.body, received.body);
        let mut twice = Vec::new();
        frame::encode(&again.message::<T>().expect("just seen"), &again.body, &mut twice).expect("it fits");
        assert_eq!(once, twice);
    }
}

/// The value of a word that is made of single-quoted strings and escaped single quotes only; `None` when
/// it has anything else. Written apart from the crate's quoting, to judge it.
pub fn unquoted(word: &str) -> Option<String> {
    let (mut value, mut rest) = (String::new(), word);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(r"\'") {
            value.push('\'');
            rest = after;
        } else {
            let (inside, after) = rest.strip_prefix('\'')?.split_once('\'')?;
            value.push_str(inside);
            rest = after;
        }
    }
    Some(value)
}

/// Whether shell text that has only the plainest constructs is, at its end, outside of every quote and
/// escape. `None` for text with anything else. Written apart from the crate's scanner, to judge it.
pub fn ends_bare(text: &str) -> Option<bool> {
    if text.contains(['$', '`', '#', '[', '(', ')']) || text.contains("<<") {
        return None;
    }
    let (mut quote, mut characters) = (None, text.chars());
    let mut escaped = false;
    while let Some(c) = characters.next() {
        escaped = false;
        match (quote, c) {
            (None, '\\') | (Some('"'), '\\') => escaped = characters.next().is_none(),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
    }
    Some(quote.is_none() && !escaped)
}
