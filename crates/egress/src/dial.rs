//! From an address that was judged to a connection.

use async_trait::async_trait;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UdpSocket};

/// A connection in both directions.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Connects to an address. It gets only addresses that were judged, and must go to this very one.
#[async_trait]
pub trait Dialer: Send + Sync + 'static {
    /// Connects.
    async fn dial(&self, to: SocketAddr) -> Result<Box<dyn Io>, DialError>;
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The address is one of this machine, whatever its range.
    #[error("{to} is an address of this machine")]
    OwnMachine {
        /// The address.
        to: SocketAddr,
    },
    /// The system could not connect.
    #[error("no connection to {to}")]
    Failed {
        /// The address.
        to: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

/// Connects by TCP from the host. Refuses the host's own addresses: a service that listens on all of them, behind
/// a firewall that only looks at what comes in, is as private as one on loopback.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostDialer;

#[async_trait]
impl Dialer for HostDialer {
    async fn dial(&self, to: SocketAddr) -> Result<Box<dyn Io>, DialError> {
        if is_own(to).await {
            return Err(DialError::OwnMachine { to });
        }
        let failed = |source| DialError::Failed { to, source };
        let stream = TcpStream::connect(to).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        Ok(Box::new(stream))
    }
}

/// Whether the system would reach this address from the same one, which it does for its own addresses alone.
/// Connecting a UDP socket only chooses the route: nothing is sent.
async fn is_own(to: SocketAddr) -> bool {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let Ok(socket) = UdpSocket::bind((any, 0)).await else {
        // Without a socket there will be no connection either.
        return false;
    };
    // No route: connecting will say so.
    socket.connect(to).await.is_ok() && socket.local_addr().is_ok_and(|from| from.ip() == to.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_address_of_this_machine_is_refused_though_somebody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        // The control: it can be connected to.
        TcpStream::connect(to).await.unwrap();
        assert!(matches!(
            HostDialer.dial(to).await,
            Err(DialError::OwnMachine { .. })
        ));
    }
}
