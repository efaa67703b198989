//! Where connections of a place come from.

use std::future::Future;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};

/// A source of connections.
pub trait Listener: Send + 'static {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    /// Waits for the next one. Has to lose none when the future is dropped.
    fn accept(&mut self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

#[cfg(unix)]
impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&mut self) -> io::Result<UnixStream> {
        Ok(UnixListener::accept(self).await?.0)
    }
}

/// Whoever reaches this address is taken for the place: bind it only where nobody else is.
impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<TcpStream> {
        let (stream, _) = TcpListener::accept(self).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
