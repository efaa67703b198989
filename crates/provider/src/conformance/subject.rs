//! What is tested: a provider, how to bring up a place with it, and what the place is like.

use super::case::Failure;
use super::place::Place;
use crate::Provider;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use stead_types::{ComputeConfig, ComputeInstance, InstanceId};

/// Breaks an instance from the outside, as a crash or an operator would: kills its supervisor, removes its
/// container behind the provider's back.
pub type BreakInstance = Arc<dyn Fn(InstanceId) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What the place is like. A wrong fact makes cases fail or skips them, never passes them.
#[derive(Debug, Clone)]
pub struct Facts {
    pub(super) scratch: PathBuf,
    pub(super) scratch_on_host: Option<PathBuf>,
    pub(super) shares_host_processes: bool,
    pub(super) has_shell: bool,
    pub(super) has_terminals: bool,
    pub(super) honours_memory_limit: bool,
    pub(super) outlives_memory_limit: bool,
    pub(super) honours_image: bool,
}

impl Facts {
    /// A place with a shell and terminals, whose processes and files are its own, and which honours image
    /// and memory limit, and outlives a process that goes beyond that. `scratch` is an absolute directory inside that commands can write to.
    pub fn new(scratch: impl Into<PathBuf>) -> Self {
        Self {
            scratch: scratch.into(),
            scratch_on_host: None,
            shares_host_processes: false,
            has_shell: true,
            has_terminals: true,
            honours_memory_limit: true,
            outlives_memory_limit: true,
            honours_image: true,
        }
    }

    /// Where the host sees the scratch directory, if it does.
    pub fn scratch_on_host(mut self, path: impl Into<PathBuf>) -> Self {
        self.scratch_on_host = Some(path.into());
        self
    }

    /// Whether the place's processes are processes of the host, seen and signalled as such.
    pub fn shares_host_processes(mut self, shares: bool) -> Self {
        self.shares_host_processes = shares;
        self
    }

    /// Whether there is a `/bin/sh`.
    pub fn has_shell(mut self, has: bool) -> Self {
        self.has_shell = has;
        self
    }

    /// Whether commands can have a terminal.
    pub fn has_terminals(mut self, has: bool) -> Self {
        self.has_terminals = has;
        self
    }

    /// Whether `resources.memory` is honoured. If not, it must be refused.
    pub fn honours_memory_limit(mut self, honours: bool) -> Self {
        self.honours_memory_limit = honours;
        self
    }

    /// Whether a place goes on after a process of it that used more memory than `resources.memory`. If not, the
    /// whole place ends, and says so.
    pub fn outlives_memory_limit(mut self, outlives: bool) -> Self {
        self.outlives_memory_limit = outlives;
        self
    }

    /// Whether `image` is honoured. If not, it must be refused.
    pub fn honours_image(mut self, honours: bool) -> Self {
        self.honours_image = honours;
        self
    }
}

/// A provider under test.
pub struct Subject {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) config: ComputeConfig,
    pub(super) facts: Facts,
    pub(super) without_shell: Option<ComputeConfig>,
    break_instance: Option<BreakInstance>,
    shared: tokio::sync::Mutex<Option<InstanceId>>,
    /// What the cases brought up and nobody has shut down yet.
    owned: Mutex<BTreeSet<InstanceId>>,
    ever: Mutex<BTreeSet<InstanceId>>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject")
            .field("provider", &self.provider.name())
            .finish_non_exhaustive()
    }
}

impl Subject {
    /// A provider, the configuration that every place is provisioned with, and what such a place is like.
    pub fn new(provider: Arc<dyn Provider>, config: ComputeConfig, facts: Facts) -> Self {
        Self {
            provider,
            config,
            facts,
            without_shell: None,
            break_instance: None,
            shared: tokio::sync::Mutex::default(),
            owned: Mutex::default(),
            ever: Mutex::default(),
        }
    }

    /// A configuration that gives a place without a shell, for the case that is about this.
    pub fn without_shell(mut self, config: ComputeConfig) -> Self {
        self.without_shell = Some(config);
        self
    }

    /// How to break an instance, for the cases that are about this.
    pub fn break_instance<F, B>(mut self, hook: F) -> Self
    where
        F: Fn(InstanceId) -> B + Send + Sync + 'static,
        B: Future<Output = ()> + Send + 'static,
    {
        self.break_instance = Some(Arc::new(move |id| Box::pin(hook(id))));
        self
    }

    pub(super) fn breaker(&self) -> Option<BreakInstance> {
        self.break_instance.clone()
    }

    /// Brings up an instance and remembers it, so that the end of the case removes it.
    pub(super) async fn provision(&self, config: ComputeConfig) -> Result<ComputeInstance, Failure> {
        let instance = self.provider.provision(config).await?;
        self.adopt(&instance.id);
        Ok(instance)
    }

    /// A place of its own for a case that changes or breaks it.
    pub(super) async fn fresh(&self) -> Result<Place<'_>, Failure> {
        self.fresh_with(self.config.clone()).await
    }

    pub(super) async fn fresh_with(&self, config: ComputeConfig) -> Result<Place<'_>, Failure> {
        Ok(Place::new(self, self.provision(config).await?.id))
    }

    /// The place that the harmless cases share.
    pub(super) async fn shared(&self) -> Result<Place<'_>, Failure> {
        let mut shared = self.shared.lock().await;
        if let Some(id) = shared.as_ref() {
            return Ok(Place::new(self, id.clone()));
        }
        let id = self.provision(self.config.clone()).await?.id;
        *shared = Some(id.clone());
        Ok(Place::new(self, id))
    }

    /// A path below the scratch directory that nothing has used yet.
    pub(super) fn fresh_path(&self) -> PathBuf {
        self.facts
            .scratch
            .join(format!("case-{}", InstanceId::generate()))
    }

    /// The same path as the host sees it.
    pub(super) fn on_host(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.facts.scratch).ok()?;
        self.facts.scratch_on_host.as_ref().map(|host| host.join(below))
    }

    pub(super) async fn shutdown(&self, id: &InstanceId) -> Result<(), Failure> {
        self.provider.shutdown(id).await?;
        lock(&self.owned).remove(id);
        Ok(())
    }

    /// Ids of what exists, without what says that another process owns it: on a shared engine others come and go.
    pub(super) async fn ids(&self) -> Result<BTreeSet<InstanceId>, Failure> {
        let own = u64::from(std::process::id());
        let others = |instance: &ComputeInstance| {
            let owner = instance.metadata.get("owner_pid").and_then(|pid| pid.as_u64());
            owner.is_some_and(|owner| owner != own)
        };
        let listed = self.provider.list_instances().await?;
        Ok(listed
            .into_iter()
            .filter(|instance| !others(instance))
            .map(|instance| instance.id)
            .collect())
    }

    /// Removes what the last case brought up; with `all` also the shared place, which a failed case may
    /// have harmed.
    pub(super) async fn clean_up(&self, all: bool) -> Result<(), Failure> {
        let mut shared = self.shared.lock().await;
        let keep = if all { None } else { shared.clone() };
        if all {
            *shared = None;
        }
        let ids: Vec<_> = lock(&self.owned)
            .iter()
            .filter(|id| Some(*id) != keep.as_ref())
            .cloned()
            .collect();
        let mut first = None;
        for id in ids {
            if let Err(failure) = self.shutdown(&id).await {
                first.get_or_insert(failure.during(&format!("clean-up of {id}")));
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Remembers an instance that a case brought up by itself.
    pub(super) fn adopt(&self, id: &InstanceId) {
        lock(&self.owned).insert(id.clone());
        lock(&self.ever).insert(id.clone());
    }

    /// All that the cases brought up since the subject was made.
    pub(super) fn ever_provisioned(&self) -> BTreeSet<InstanceId> {
        lock(&self.ever).clone()
    }
}

fn lock(ids: &Mutex<BTreeSet<InstanceId>>) -> std::sync::MutexGuard<'_, BTreeSet<InstanceId>> {
    // A set of ids is whole whatever happened to who held the lock.
    ids.lock().unwrap_or_else(PoisonError::into_inner)
}
