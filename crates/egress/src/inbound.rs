//! What a place sends.

use crate::activity::Activity;
use crate::event::Reason;
use crate::head::{Head, HeadError, Scan};
use crate::limits::Limits;
use bytes::{Buf, BytesMut};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, ReadHalf};
use tokio::time::timeout;

/// How many bytes are read at once.
pub(crate) const READ: usize = 16 * 1024;

/// How long, and for how many bytes, a connection that was refused is still read, so that closing it does not
/// take the answer away from a client that is still sending.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 256 * 1024;

/// The reading side of a connection, with what was read and not used yet.
pub(crate) struct Inbound<S> {
    stream: ReadHalf<S>,
    pub(crate) buffer: BytesMut,
}

impl<S: AsyncRead> Inbound<S> {
    pub(crate) fn new(stream: ReadHalf<S>) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// Reads once, at most [`READ`] bytes. 0 at the end.
    pub(crate) async fn fill(&mut self) -> io::Result<usize> {
        self.buffer.reserve(READ);
        let mut limited = (&mut self.stream).take(READ as u64);
        limited.read_buf(&mut self.buffer).await
    }

    /// The same, as a sign of life.
    pub(crate) async fn fill_and_touch(&mut self, activity: &Activity) -> io::Result<usize> {
        let count = self.fill().await?;
        activity.touch();
        Ok(count)
    }

    /// The next head. `None` when the place closed the connection between two requests, or broke it.
    pub(crate) async fn head(&mut self, limits: &Limits) -> Result<Option<Head>, Reason> {
        let reading = async {
            let mut scan = Scan::default();
            loop {
                if let Some(length) = scan.end(&self.buffer, limits.head_bytes)? {
                    let head = Head::parse(&self.buffer[..length])?;
                    self.buffer.advance(length);
                    return Ok(Some(head));
                }
                match self.fill().await {
                    Ok(0) if !self.buffer.is_empty() => {
                        return Err(HeadError::Malformed("the head ends in the middle"));
                    }
                    Ok(0) | Err(_) => return Ok(None),
                    Ok(_) => {}
                }
            }
        };
        match timeout(limits.first_bytes, reading).await {
            Ok(Ok(head)) => Ok(head),
            Ok(Err(HeadError::TooLarge)) => Err(Reason::RequestTooLarge),
            Ok(Err(HeadError::Malformed(what))) => Err(Reason::RequestInvalid(what)),
            // Silence between two requests is no mistake.
            Err(_) if self.buffer.is_empty() => Ok(None),
            Err(_) => Err(Reason::FirstBytesMissing),
        }
    }

    /// Reads what still comes, for a while, and forgets it.
    pub(crate) async fn linger(&mut self) {
        let draining = async {
            let mut count = 0;
            while count < LINGER_BYTES {
                self.buffer.clear();
                match self.fill().await {
                    Ok(0) | Err(_) => return,
                    Ok(more) => count += more,
                }
            }
        };
        // Over or not, the connection ends now.
        let _ = timeout(LINGER, draining).await;
    }

    pub(crate) fn parts(&mut self) -> (&mut ReadHalf<S>, &mut BytesMut) {
        (&mut self.stream, &mut self.buffer)
    }
}
