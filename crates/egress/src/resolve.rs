//! From a name to its addresses, on the host side.

use crate::host::Host;
use async_trait::async_trait;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};

/// Resolves names. The proxy bounds the time, and judges every address.
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// All addresses of the name, in the order in which they should be tried.
    async fn resolve(&self, host: &Host) -> io::Result<Vec<IpAddr>>;
}

/// How many look-ups of one resolver run at once. A look-up that was given up still runs in the system until the
/// system's own limit ends it, so they have to be counted.
const LOOKUPS: usize = 16;

/// The resolver of the host's system (`getaddrinfo`). Names are asked for as absolute ones, so that the search
/// list of the host is never used.
#[derive(Debug, Clone)]
pub struct HostResolver {
    slots: Arc<Semaphore>,
}

impl Default for HostResolver {
    fn default() -> Self {
        Self {
            slots: Arc::new(Semaphore::new(LOOKUPS)),
        }
    }
}

#[async_trait]
impl Resolver for HostResolver {
    async fn resolve(&self, host: &Host) -> io::Result<Vec<IpAddr>> {
        let slot = Arc::clone(&self.slots)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let name = format!("{host}.");
        let (tell, told) = oneshot::channel();
        // A thread of its own and none of the runtime's: a look-up that hangs must not delay the runtime's end.
        std::thread::Builder::new()
            .name("stead-resolve".to_owned())
            .spawn(move || {
                let found = (name.as_str(), 0).to_socket_addrs();
                drop(slot);
                // Nobody waits for it any more when its time was over.
                let _ = tell.send(found.map(|found| found.map(|address| address.ip()).collect()));
            })?;
        told.await.map_err(io::Error::other)?
    }
}
