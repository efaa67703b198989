//! What bounds one place.

use std::time::Duration;

/// The bounds of one proxy. The defaults suit a place that installs packages and calls interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections of the place at once; further ones wait in the queue of the socket. Default 256.
    pub connections: usize,
    /// Bytes in the head of a request, and of an answer (there at least 8 KiB). Default 32 KiB.
    pub head_bytes: usize,
    /// From the start of a connection, or from the end of the last answer, until the head of the next request is
    /// whole; and from the answer to `CONNECT` until the greeting is. Default 30 s.
    pub first_bytes: Duration,
    /// Until a name is resolved. Default 5 s.
    pub resolve: Duration,
    /// Until a connection to the host stands, over all its addresses. Default 10 s.
    pub connect: Duration,
    /// Without a byte in any direction, also when one side reads too slowly. Default 5 min.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            head_bytes: 32 * 1024,
            first_bytes: Duration::from_secs(30),
            resolve: Duration::from_secs(5),
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(300),
        }
    }
}
