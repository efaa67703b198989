//! Providers out of process: an executable that speaks the provider protocol, JSON lines on its standard
//! input and output. docs/guides/provider-protocol.md has every message.

mod connection;
mod error;
mod inner;
mod message;
mod running;
mod start;

pub use error::ExternalError;

use crate::Provider;
use crate::files::Files;
use crate::process::Process;
use async_trait::async_trait;
use inner::{Inner, missing};
use message::{InstanceAnswer, ProbeAnswer, safe_text};
use serde_json::json;
use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead_types::{
    Availability, CommandLine, ComputeConfig, ComputeInstance, ExecuteError, FilesError, InstanceId,
    ListError, ProvisionError, ShutdownError,
};
use tokio::sync::oneshot;

/// The version of the protocol that this build speaks.
pub const VERSION: &str = "stead-provider/1";

/// Longest line in either direction, in bytes.
pub const MAX_LINE: usize = 1 << 20;

/// Output messages of one command that may be on the way unacknowledged.
pub const WINDOW: usize = 32;

/// A provider that is an executable. It is started by the first call, once for all calls, and again by
/// the call after it died; what ran under it is then lost. Dropping the provider ends it: its standard
/// input ends, and 2 s later it is killed.
pub struct ExternalProvider {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for ExternalProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExternalProvider({})", self.inner.name)
    }
}

impl ExternalProvider {
    /// A provider of this name, which is lower-cased; `command` is the program and its arguments. The
    /// program gets the environment of this process. Nothing is started yet.
    pub fn new<A: Into<OsString>>(name: &str, command: impl IntoIterator<Item = A>) -> Self {
        let inner = Inner {
            name: name.to_lowercase(),
            argv: command.into_iter().map(Into::into).collect(),
            deadline: Duration::from_secs(30),
            provision_deadline: Duration::from_secs(300),
            trust_isolation: false,
            connection: tokio::sync::Mutex::default(),
            timeouts: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        // Before the first call nobody else has it.
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            change(inner);
        }
        self
    }

    /// How long each request may take. Default 30 s. A probe has at most 10 s.
    pub fn deadline(self, after: Duration) -> Self {
        self.with(|inner| inner.deadline = after)
    }

    /// How long bringing up an instance may take. Default 300 s.
    pub fn provision_deadline(self, after: Duration) -> Self {
        self.with(|inner| inner.provision_deadline = after)
    }

    /// Takes the program's word for the isolation of its instances. Default: no; what it says to hold is
    /// then unknown, since this process did not see it hold.
    pub fn trust_isolation(self, trust: bool) -> Self {
        self.with(|inner| inner.trust_isolation = trust)
    }
}

/// An instance that nobody was told of yet.
struct Fresh {
    inner: Arc<Inner>,
    instance: Option<ComputeInstance>,
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let Some(instance) = self.instance.take() else {
            return;
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let inner = Arc::clone(&self.inner);
            runtime.spawn(async move { inner.give_up(&instance.id).await });
        }
    }
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct ListAnswer {
    instances: Vec<InstanceAnswer>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusAnswer {
    instance: Option<InstanceAnswer>,
}

#[async_trait]
impl Provider for ExternalProvider {
    fn name(&self) -> &str {
        &self.inner.name
    }

    async fn probe(&self) -> Availability {
        let limit = self.inner.deadline.min(Duration::from_secs(10));
        let asked = self.inner.ask::<ProbeAnswer>("probe", json!({}), limit);
        let late = ExternalError::TimedOut {
            op: "probe",
            seconds: limit.as_secs(),
        };
        match tokio::time::timeout(limit, asked).await.unwrap_or(Err(late)) {
            Ok(ProbeAnswer { available: true, .. }) => Availability::Available,
            Ok(ProbeAnswer { reason, remedy, .. }) => Availability::missing(
                "external_unavailable",
                safe_text(reason.as_deref().unwrap_or("the provider program says no more")),
                safe_text(
                    remedy
                        .as_deref()
                        .unwrap_or("Read the provider program's own documentation."),
                ),
            ),
            Err(error) => Availability::Unavailable(missing(&error)),
        }
    }

    // A task of its own: when the caller goes away, the instance is removed as soon as it is there.
    async fn provision(&self, config: ComputeConfig) -> Result<ComputeInstance, ProvisionError> {
        let (sender, receiver) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        tokio::spawn(async move {
            let result = inner.provision(config).await;
            let _ = sender.send(result.map(|instance| Fresh {
                inner,
                instance: Some(instance),
            }));
        });
        let failed = || ProvisionError::Failed {
            provider: self.inner.name.clone(),
            reason: "the attempt was broken off".to_owned(),
            source: None,
        };
        let mut fresh = receiver.await.unwrap_or_else(|_| Err(failed()))?;
        fresh.instance.take().ok_or_else(failed)
    }

    // As above: a process that nobody takes is dropped, and so ended.
    async fn spawn(
        &self,
        id: &InstanceId,
        command: CommandLine,
        config: ComputeConfig,
    ) -> Result<Process, ExecuteError> {
        let (sender, receiver) = oneshot::channel();
        let (inner, instance) = (Arc::clone(&self.inner), id.clone());
        tokio::spawn(async move {
            let _ = sender.send(inner.spawn(&instance, command, config).await);
        });
        receiver.await.unwrap_or_else(|_| {
            let reason = "its start was broken off".to_owned();
            Err(ExecuteError::Lost {
                instance: id.clone(),
                reason,
            })
        })
    }

    async fn shutdown(&self, id: &InstanceId) -> Result<(), ShutdownError> {
        self.inner.shutdown(id).await
    }

    async fn list_instances(&self) -> Result<Vec<ComputeInstance>, ListError> {
        let asked = self
            .inner
            .ask::<ListAnswer>("list", json!({}), self.inner.deadline)
            .await;
        let answer = asked.map_err(|error| self.inner.list_error(error))?;
        Ok(answer
            .instances
            .into_iter()
            .map(|instance| self.inner.instance(instance))
            .collect())
    }

    async fn status(&self, id: &InstanceId) -> Result<Option<ComputeInstance>, ListError> {
        let asked = self
            .inner
            .ask::<StatusAnswer>("status", json!({ "instance": id }), self.inner.deadline);
        let answer = asked.await.map_err(|error| self.inner.list_error(error))?;
        Ok(answer.instance.map(|instance| self.inner.instance(instance)))
    }

    async fn files(&self, _id: &InstanceId) -> Result<Box<dyn Files>, FilesError> {
        Err(FilesError::Unsupported {
            provider: self.inner.name.clone(),
        })
    }
}
