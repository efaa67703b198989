//! The byte stream below a link.

use async_trait::async_trait;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;

/// A stream that is not a socket of this host.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection to a supervisor, before anything was said on it.
pub enum Transport {
    /// A unix socket: can be written to at once, from wherever the caller is.
    Socket(Arc<UnixStream>),
    /// Anything else, such as the stream of an `exec` on an engine elsewhere.
    Stream(Box<dyn Duplex>),
}

impl From<UnixStream> for Transport {
    fn from(stream: UnixStream) -> Self {
        Self::Socket(Arc::new(stream))
    }
}

/// How a supervisor is reached again after its connection broke.
#[async_trait]
pub trait Dial: Send + Sync {
    /// A new connection.
    async fn dial(&self) -> io::Result<Transport>;
}

/// Dials a socket by its path.
#[derive(Debug, Clone)]
pub struct DialPath(pub PathBuf);

#[async_trait]
impl Dial for DialPath {
    async fn dial(&self) -> io::Result<Transport> {
        connect(&self.0).await.map(Transport::from)
    }
}

/// The longest path that a socket address takes, with a margin.
const MAX_SOCKET_PATH: usize = 100;

/// Connects to a socket, also when its path is longer than an address takes.
pub async fn connect(path: &std::path::Path) -> io::Result<UnixStream> {
    if path.as_os_str().len() <= MAX_SOCKET_PATH {
        return UnixStream::connect(path).await;
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = std::fs::File::open(directory)?;
    let short = PathBuf::from(format!(
        "/proc/self/fd/{}",
        std::os::fd::AsRawFd::as_raw_fd(&directory)
    ))
    .join(name);
    UnixStream::connect(short).await
}
