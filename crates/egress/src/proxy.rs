//! The proxy of one place.

use crate::connection;
use crate::dial::{Dialer, HostDialer};
use crate::event::EgressEvent;
use crate::gate::Gate;
use crate::limits::Limits;
use crate::listen::Listener;
use crate::policy::Policy;
use crate::resolve::{HostResolver, Resolver};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};

/// How long nothing is accepted after that failed, which it does when the process has no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// The proxy of one place, not started yet.
pub struct Proxy {
    policy: Policy,
    resolver: Arc<dyn Resolver>,
    dialer: Arc<dyn Dialer>,
    events: mpsc::Sender<EgressEvent>,
    limits: Limits,
}

impl Proxy {
    /// With the host's resolver and connections, and the default limits.
    ///
    /// Each decision goes to `events` before it has an effect. When the channel is full, the place waits; when
    /// its receiver is gone, nothing is let out.
    pub fn new(policy: Policy, events: mpsc::Sender<EgressEvent>) -> Self {
        Self {
            policy,
            resolver: Arc::new(HostResolver::default()),
            dialer: Arc::new(HostDialer),
            events,
            limits: Limits::default(),
        }
    }

    /// Another resolver. What it answers is judged like the host's.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolver>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Other connections, for a program that reaches the internet by another way. It gets judged addresses alone,
    /// and has to refuse this machine's own ones itself, as [`HostDialer`] does. Nothing in a configuration leads here.
    #[must_use]
    pub fn dialer(mut self, dialer: Arc<dyn Dialer>) -> Self {
        self.dialer = dialer;
        self
    }

    /// Other limits.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves what comes from the listener, in a task of the current runtime, until it is ended.
    ///
    /// # Panics
    /// Outside of a tokio runtime with IO and time.
    pub fn start<L: Listener>(self, listener: L) -> Running {
        let gate = Arc::new(Gate {
            policy: self.policy,
            resolver: self.resolver,
            dialer: self.dialer,
            events: self.events,
            limits: self.limits,
        });
        let (stop, stopped) = oneshot::channel();
        Running {
            stop: Some(stop),
            task: Some(tokio::spawn(serve(gate, listener, stopped))),
        }
    }
}

/// A proxy that serves. Dropping it ends it and every connection, without waiting.
#[derive(Debug)]
pub struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Running {
    /// Ends every connection, and returns when they are gone and the listener is closed.
    pub async fn shutdown(mut self) {
        drop(self.stop.take());
        if let Some(task) = self.task.take() {
            // The task fails only when the runtime ends, and then everything is gone too.
            let _ = task.await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn serve<L: Listener>(gate: Arc<Gate>, mut listener: L, mut stopped: oneshot::Receiver<()>) {
    // Dropped with this task, and then it ends all of them.
    let mut connections = JoinSet::new();
    let slots = Arc::new(Semaphore::new(gate.limits.connections));
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            Some(ended) = connections.join_next() => note(ended),
            served = accept(&gate, &mut listener, &slots) => {
                if let Some(served) = served {
                    connections.spawn(served);
                }
            }
        }
    }
    drop(listener);
    connections.shutdown().await;
}

/// A panic of one connection ends that connection alone, and is seen.
fn note(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection of a place ended by a panic");
    }
}

/// Waits for a free slot, and only then for a connection.
async fn accept<L: Listener>(
    gate: &Arc<Gate>,
    listener: &mut L,
    slots: &Arc<Semaphore>,
) -> Option<impl Future<Output = ()> + Send + 'static + use<L>> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok(stream) => {
            let gate = Arc::clone(gate);
            Some(async move {
                connection::serve(gate, stream).await;
                drop(slot);
            })
        }
        Err(error) => {
            tracing::warn!(%error, "no connection of a place could be accepted");
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}
