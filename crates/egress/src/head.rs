//! The head of a request, read so strictly that there is only one way to read it.
//!
//! hyper's own server is not used here, because it is lenient in what it takes from a client: it accepts lines that
//! end with LF alone, and of `Content-Length` beside `Transfer-Encoding` it silently drops the first. Both are
//! harmless in a server, and in a proxy they are how a second request is smuggled past the judge.
//!
//! What goes out to the host is never these bytes: hyper writes it anew from the parts.

use hyper::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use hyper::{Method, Version};

/// The most headers of a request. hyper's own default for answers is the same.
const MAX_HEADERS: usize = 100;

/// A head that was understood.
#[derive(Debug, Clone)]
pub struct Head {
    /// The method.
    pub method: Method,
    /// The target as it was written: graphic ASCII.
    pub target: String,
    /// HTTP/1.0 or HTTP/1.1.
    pub version: Version,
    /// The headers, in lower case.
    pub headers: HeaderMap,
}

/// How long the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes.
    Length(u64),
    /// In chunks, until the last one.
    Chunked,
}

/// Why the head was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// The limit came before its end.
    #[error("the head is too long")]
    TooLarge,
    /// What is wrong with it.
    #[error("{0}")]
    Malformed(&'static str),
}

/// Looks for the end of a head while it comes in. Every byte is looked at once, however small the pieces are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Scan {
    at: usize,
    line_start: usize,
}

impl Scan {
    /// The length of the head at the front of `bytes`, with the empty line; `None` when more bytes are needed:
    /// then the next call gets the same bytes and more. Looks at line ends alone, and refuses a wrong one as soon
    /// as it is there. `limit` is the most bytes of a head.
    ///
    /// # Errors
    /// A CR or LF without the other, nothing before the empty line, or no end within the limit.
    pub fn end(&mut self, bytes: &[u8], limit: usize) -> Result<Option<usize>, HeadError> {
        let seen = &bytes[..bytes.len().min(limit)];
        while let Some(byte) = seen.get(self.at) {
            let after_cr = self.at > 0 && seen[self.at - 1] == b'\r';
            match (byte, after_cr) {
                (b'\n', false) => return Err(HeadError::Malformed("a line ends with LF alone")),
                (b'\n', true) if self.at == 1 => return Err(HeadError::Malformed("the first line is empty")),
                (b'\n', true) if self.at - self.line_start == 1 => return Ok(Some(self.at + 1)),
                (b'\n', true) => self.line_start = self.at + 1,
                (_, true) => return Err(HeadError::Malformed("a CR is not followed by LF")),
                (_, false) => {}
            }
            self.at += 1;
        }
        if bytes.len() >= limit {
            return Err(HeadError::TooLarge);
        }
        Ok(None)
    }
}

impl Head {
    /// Reads a head whose end [`Scan`] found.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, HeadError> {
        let malformed = HeadError::Malformed;
        let text = bytes
            .strip_suffix(b"\r\n\r\n")
            .ok_or(malformed("the head has no end"))?;
        let mut lines = Lines(Some(text));
        let (method, target, version) = request_line(lines.next().unwrap_or_default())?;
        let mut headers = HeaderMap::new();
        for (count, line) in lines.enumerate() {
            if count == MAX_HEADERS {
                return Err(malformed("there are too many headers"));
            }
            let (name, value) = header(line)?;
            headers.append(name, value);
        }
        if headers.get_all(HOST).iter().count() > 1 {
            return Err(malformed("there is more than one Host"));
        }
        Ok(Self {
            method,
            target,
            version,
            headers,
        })
    }

    /// How long the body is.
    ///
    /// # Errors
    /// When two readers could come to different lengths.
    pub fn framing(&self) -> Result<Framing, HeadError> {
        let malformed = HeadError::Malformed;
        let mut codings = self.headers.get_all(TRANSFER_ENCODING).iter();
        let mut lengths = self.headers.get_all(CONTENT_LENGTH).iter();
        match (codings.next(), lengths.next()) {
            (Some(_), Some(_)) => Err(malformed("there are Transfer-Encoding and Content-Length")),
            (Some(_), None) if self.version != Version::HTTP_11 => {
                Err(malformed("Transfer-Encoding needs HTTP/1.1"))
            }
            (Some(coding), None)
                if codings.next().is_none() && coding.as_bytes().eq_ignore_ascii_case(b"chunked") =>
            {
                Ok(Framing::Chunked)
            }
            (Some(_), None) => Err(malformed("the Transfer-Encoding is not exactly chunked")),
            (None, Some(length)) if lengths.next().is_none() => decimal(length.as_bytes())
                .map(Framing::Length)
                .ok_or(malformed("the Content-Length is no number")),
            (None, Some(_)) => Err(malformed("there is more than one Content-Length")),
            (None, None) => Ok(Framing::Length(0)),
        }
    }
}

/// Digits alone: no sign, no list, no space.
fn decimal(text: &[u8]) -> Option<u64> {
    let digits = (1..=19).contains(&text.len()) && text.iter().all(u8::is_ascii_digit);
    digits
        .then(|| std::str::from_utf8(text).ok()?.parse().ok())
        .flatten()
}

fn request_line(line: &[u8]) -> Result<(Method, String, Version), HeadError> {
    let malformed = HeadError::Malformed("the request line is not METHOD TARGET HTTP/1.1");
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(malformed);
    };
    let method = Method::from_bytes(method).map_err(|_| malformed)?;
    let version = match version {
        b"HTTP/1.1" => Version::HTTP_11,
        b"HTTP/1.0" => Version::HTTP_10,
        _ => return Err(malformed),
    };
    if target.is_empty() || !target.iter().all(u8::is_ascii_graphic) {
        return Err(HeadError::Malformed("the target is not graphic ASCII"));
    }
    let target = String::from_utf8(target.to_vec()).map_err(|_| malformed)?;
    Ok((method, target, version))
}

fn header(line: &[u8]) -> Result<(HeaderName, HeaderValue), HeadError> {
    let malformed = HeadError::Malformed;
    if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
        return Err(malformed("a header goes on in the next line"));
    }
    let colon = line.iter().position(|byte| *byte == b':');
    let colon = colon.ok_or(malformed("a header has no colon"))?;
    // A blank before the colon is no part of a name, so that this refuses it too.
    let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| malformed("a header's name is damaged"))?;
    let value = trim_blanks(&line[colon + 1..]);
    let value =
        HeaderValue::from_bytes(value).map_err(|_| malformed("a header's value has control characters"))?;
    Ok((name, value))
}

/// Without the blanks around it, of which there are two kinds and no more (RFC 9110 section 5.6.3).
fn trim_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}

/// Lines between CRLFs, of which [`Scan`] made sure that there are no others.
struct Lines<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        let end = rest.windows(2).position(|pair| pair == b"\r\n");
        self.0 = end.map(|end| &rest[end + 2..]);
        Some(end.map_or(rest, |end| &rest[..end]))
    }
}
