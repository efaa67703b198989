//! The greeting of TLS (ClientHello), as far as it says which host it is for.
//!
//! ```text
//! record    type 22, version 3.x, length        5 bytes
//! message   type 1, length                      4 bytes, the whole of the record
//! hello     version, random, session, suites, compression, extensions
//! ```
//!
//! The whole greeting has to be in one record. It may come in as many pieces as the network likes, but one that
//! is spread over records is refused: no client needs that, and what reads only the first record would miss the
//! name (RFC 8446 section 5.1 allows it, and it is used to get around filters).

use std::collections::BTreeSet;

/// The longest record (RFC 8446 section 5.1), in bytes.
const MAX_RECORD: usize = 1 << 14;
/// The most bytes that are ever needed for a decision: a record with its head.
pub const MAX_HELLO: usize = 5 + MAX_RECORD;

const SERVER_NAME: u16 = 0;
/// Encrypted ClientHello (RFC 9849), and the draft before it, which encrypted only the name.
const ENCRYPTED: [u16; 2] = [0xfe0d, 0xffce];

/// What the greeting says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The name in the clear, as it was written. `None` when there is none.
    pub server_name: Option<String>,
    /// Whether there is an encrypted greeting inside. Browsers also send one filled with chance, which cannot be
    /// told apart.
    pub encrypted: bool,
}

/// Why it is no greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The first byte is not that of a record with a handshake.
    #[error("not TLS")]
    NotTls,
    /// It is spread over more than one record.
    #[error("it is in pieces")]
    Fragmented,
    /// It breaks a rule of TLS.
    #[error("{0}")]
    Malformed(&'static str),
}

/// How far the bytes go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed; never more than [`MAX_HELLO`] altogether.
    More,
    /// The greeting is whole. What follows it is not looked at.
    Whole(Hello),
}

/// Reads the beginning of a stream. Refuses as early as it can.
///
/// # Errors
/// What makes it no greeting that is let through.
pub fn parse(bytes: &[u8]) -> Result<Step, HelloError> {
    let malformed = HelloError::Malformed;
    match bytes {
        [] => return Ok(Step::More),
        [22, rest @ ..] => match rest {
            [] | [3] => {}
            [3, minor, ..] if *minor <= 4 => {}
            _ => return Err(malformed("the version of the record is unknown")),
        },
        _ => return Err(HelloError::NotTls),
    }
    let [_, _, _, high, low, rest @ ..] = bytes else {
        return Ok(Step::More);
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    if length > MAX_RECORD {
        return Err(malformed("the record is too long"));
    }
    if length < 4 {
        return Err(HelloError::Fragmented);
    }
    message_fits(rest, length)?;
    match rest.get(..length) {
        None => Ok(Step::More),
        Some(record) => hello(&record[4..]).map(Step::Whole),
    }
}

/// Whether the message that begins the record is a greeting, and is exactly as long as the record.
fn message_fits(record: &[u8], length: usize) -> Result<(), HelloError> {
    match record.first() {
        None | Some(1) => {}
        Some(_) => return Err(HelloError::Malformed("the first message is no ClientHello")),
    }
    let [_, high, middle, low, ..] = record else {
        return Ok(());
    };
    let message = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
    match message + 4 {
        whole if whole > length => Err(HelloError::Fragmented),
        whole if whole < length => Err(HelloError::Malformed("the record has more than the ClientHello")),
        _ => Ok(()),
    }
}

fn hello(body: &[u8]) -> Result<Hello, HelloError> {
    let malformed = HelloError::Malformed;
    let mut rest = Reader(body);
    let fixed = (|| {
        let version = rest.take(2)?;
        rest.take(32)?;
        let session = rest.sized8()?;
        let suites = rest.sized16()?;
        let compression = rest.sized8()?;
        let fits = version[0] == 3 && session.len() <= 32 && !compression.is_empty();
        (fits && !suites.is_empty() && suites.len() % 2 == 0).then_some(())
    })();
    fixed.ok_or(malformed("its fixed part is damaged"))?;
    let mut found = Hello {
        server_name: None,
        encrypted: false,
    };
    if rest.0.is_empty() {
        return Ok(found);
    }
    let extensions = rest.sized16().filter(|_| rest.0.is_empty());
    let mut extensions = Reader(extensions.ok_or(malformed("its extensions have another length"))?);
    let mut seen = BTreeSet::new();
    while !extensions.0.is_empty() {
        let extension = extensions.u16().zip(extensions.sized16());
        let (kind, content) = extension.ok_or(malformed("an extension is damaged"))?;
        if !seen.insert(kind) {
            return Err(malformed("an extension is there twice"));
        }
        if kind == SERVER_NAME {
            found.server_name = Some(server_name(content).ok_or(malformed("its name is damaged"))?);
        }
        found.encrypted |= ENCRYPTED.contains(&kind);
    }
    Ok(found)
}

/// One name, of the only kind there is (RFC 6066 section 3).
fn server_name(content: &[u8]) -> Option<String> {
    let mut content = Reader(content);
    let mut list = Reader(content.sized16()?);
    let kind = list.take(1)?;
    let name = list.sized16()?;
    let only = content.0.is_empty() && list.0.is_empty() && kind == [0];
    (only && !name.is_empty() && name.is_ascii())
        .then(|| String::from_utf8(name.to_vec()).ok())
        .flatten()
}

/// Takes bytes from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn sized8(&mut self) -> Option<&'a [u8]> {
        let length = self.take(1)?[0];
        self.take(usize::from(length))
    }

    fn sized16(&mut self) -> Option<&'a [u8]> {
        let length = self.u16()?;
        self.take(usize::from(length))
    }
}
