//! The one instance of a place.
//!
//! ```text
//!            first call                 attempt ends well
//!   Empty ──────────────▶ Starting ─────────────────────▶ Up(id)
//!     ▲                      │ attempt fails                 │ a call sees it die, or shutdown
//!     └──────────────────────┴──────────────◀────────────────┘ (its id stays in `remains` until it is gone)
//! ```
//!
//! The attempt is a task of its own, so that a caller who goes away takes nothing from the others, and
//! the instance is known to the slot the moment it exists.

use crate::Provider;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_types::{Availability, ComputeConfig, InstanceId, Missing, ProvisionError, ShutdownError};
use tokio::runtime::Handle;

/// Longest that a probe may take.
pub(crate) const PROBE_LIMIT: Duration = Duration::from_secs(15);

/// Why there is no instance.
#[derive(Debug, Clone)]
pub(super) enum StartError {
    Unavailable(Missing),
    Provision(Arc<ProvisionError>),
    Aborted,
}

type Attempt = Shared<BoxFuture<'static, Result<InstanceId, StartError>>>;

enum State {
    Empty,
    Starting(Attempt),
    Up(InstanceId),
}

struct Inner {
    state: State,
    /// Instances that must go, or of which it is not confirmed that they are gone.
    remains: Vec<InstanceId>,
    /// The place was dropped: what comes up now goes at once.
    closed: bool,
    /// Where the attempts run; used to release when the place is dropped outside of it.
    runtime: Option<Handle>,
}

pub(super) struct Slot {
    provider: Arc<dyn Provider>,
    inner: Mutex<Inner>,
}

impl Slot {
    pub(super) fn new(provider: Arc<dyn Provider>) -> Arc<Self> {
        let inner = Inner {
            state: State::Empty,
            remains: Vec::new(),
            closed: false,
            runtime: None,
        };
        Arc::new(Self {
            provider,
            inner: Mutex::new(inner),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that can panic runs under the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The instance; brings it up when there is none. Concurrent callers share one attempt.
    pub(super) async fn get(self: &Arc<Self>, config: &ComputeConfig) -> Result<InstanceId, StartError> {
        let attempt = {
            let mut inner = self.lock();
            match &inner.state {
                State::Up(id) => return Ok(id.clone()),
                State::Starting(attempt) if attempt.peek().is_none() => attempt.clone(),
                // Empty, or an attempt whose task ended without a word.
                State::Empty | State::Starting(_) => {
                    let attempt = self.start(config.clone());
                    inner.runtime = Some(Handle::current());
                    inner.state = State::Starting(attempt.clone());
                    attempt
                }
            }
        };
        attempt.await
    }

    fn start(self: &Arc<Self>, config: ComputeConfig) -> Attempt {
        let slot = Arc::clone(self);
        let task = tokio::spawn(async move {
            let result = slot.provision(config).await;
            slot.finish(result).await
        });
        async move { task.await.unwrap_or(Err(StartError::Aborted)) }
            .boxed()
            .shared()
    }

    async fn provision(&self, config: ComputeConfig) -> Result<InstanceId, StartError> {
        let probe = tokio::time::timeout(PROBE_LIMIT, self.provider.probe());
        match probe.await.unwrap_or_else(|_| probe_timed_out()) {
            Availability::Available => {}
            Availability::Unavailable(missing) => return Err(StartError::Unavailable(missing)),
        }
        match self.provider.provision(config).await {
            Ok(instance) => Ok(instance.id),
            Err(ProvisionError::Unavailable { missing, .. }) => Err(StartError::Unavailable(missing)),
            Err(error) => Err(StartError::Provision(Arc::new(error))),
        }
    }

    async fn finish(&self, result: Result<InstanceId, StartError>) -> Result<InstanceId, StartError> {
        let closed = {
            let mut inner = self.lock();
            inner.state = match &result {
                Ok(id) if !inner.closed => State::Up(id.clone()),
                Ok(_) | Err(_) => State::Empty,
            };
            inner.closed
        };
        if let (true, Ok(id)) = (closed, &result) {
            self.remove(id).await;
        }
        result
    }

    /// A call saw this instance die: the next call gets a new one. Its rest is cleared away.
    pub(super) fn died(self: &Arc<Self>, id: &InstanceId) {
        let mut inner = self.lock();
        if !matches!(&inner.state, State::Up(up) if up == id) {
            return;
        }
        inner.state = State::Empty;
        inner.remains.push(id.clone());
        drop(inner);
        let (slot, id) = (Arc::clone(self), id.clone());
        tokio::spawn(async move { slot.remove(&id).await });
    }

    async fn remove(&self, id: &InstanceId) {
        match self.provider.shutdown(id).await {
            Ok(()) => self.lock().remains.retain(|other| other != id),
            Err(error) => {
                tracing::warn!(instance = %id, provider = self.provider.name(), %error, "instance not removed");
            }
        }
    }

    /// Removes all instances. What could not be removed is kept for the next time.
    pub(super) async fn shutdown(&self) -> Result<(), ShutdownError> {
        loop {
            let attempt = {
                let mut inner = self.lock();
                match std::mem::replace(&mut inner.state, State::Empty) {
                    State::Empty => break,
                    State::Up(id) => {
                        inner.remains.push(id);
                        break;
                    }
                    State::Starting(attempt) => {
                        // An attempt that ended has set the state itself, unless its task was broken off.
                        if attempt.peek().is_some() {
                            break;
                        }
                        inner.state = State::Starting(attempt.clone());
                        attempt
                    }
                }
            };
            let _ = attempt.await;
        }
        let ids = self.lock().remains.clone();
        let mut first = Ok(());
        for id in ids {
            match self.provider.shutdown(&id).await {
                Ok(()) => self.lock().remains.retain(|other| *other != id),
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }

    /// The place is gone: releases what there is, on the runtime that brought it up.
    pub(super) fn close(self: &Arc<Self>) {
        let mut inner = self.lock();
        inner.closed = true;
        if let State::Up(id) = &inner.state {
            let id = id.clone();
            inner.remains.push(id);
            inner.state = State::Empty;
        }
        if inner.remains.is_empty() {
            return;
        }
        let runtime = inner.runtime.clone().or_else(|| Handle::try_current().ok());
        let ids = inner.remains.clone();
        drop(inner);
        let slot = Arc::clone(self);
        match runtime {
            Some(runtime) => drop(runtime.spawn(async move {
                for id in ids {
                    slot.remove(&id).await;
                }
            })),
            None => tracing::warn!(
                provider = self.provider.name(),
                "no runtime to release the place on"
            ),
        }
    }
}

pub(crate) fn probe_timed_out() -> Availability {
    Availability::missing(
        "probe_timed_out",
        format!(
            "it did not say within {} s whether it can be used",
            PROBE_LIMIT.as_secs()
        ),
        "Make sure that what the provider needs answers, and try again.",
    )
}
