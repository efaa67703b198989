//! How the supervisor in a container is reached.

use super::engine::Engine;
use super::plan::{CONTROL_DIR, SUPERVISOR};
use crate::link::{Dial, Transport};
use async_trait::async_trait;
use std::io;

/// Through one exec whose streams are the connection.
pub struct DialRelay {
    pub engine: Engine,
    pub container: String,
}

/// The supervisor's socket, as its container sees it.
pub fn socket_inside() -> String {
    format!("{CONTROL_DIR}/s")
}

#[async_trait]
impl Dial for DialRelay {
    async fn dial(&self) -> io::Result<Transport> {
        let socket = socket_inside();
        let argv = [SUPERVISOR, "relay", &socket];
        match self.engine.exec_relay(&self.container, &argv, None).await {
            Ok(relay) => Ok(Transport::Stream(Box::new(relay.stream))),
            // The container is gone, or its first process is.
            Err(error) if matches!(error.status(), Some(404 | 409)) => {
                Err(io::Error::new(io::ErrorKind::NotFound, error))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
