//! The `docker` provider.

use super::PROVIDER;
use super::address::Address;
use super::container::{Listed, Phase};
use super::dial::DialRelay;
use super::engine::{Deadlines, Engine};
use super::error::EngineError;
use super::image::{EnvSecrets, PullProgress, SecretSource};
use super::labels::InstanceLabels;
use super::options::Options;
use super::plan;
use super::provision::{self, Brought};
use crate::adopt::{self, adopt};
use crate::guard::Guarded;
use crate::link::Dial;
use crate::place::Place;
use crate::state::{ProcessIdentity, State, boot_id};
use async_trait::async_trait;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_provider::{Files, Process, Provider};
use stead_types::{
    Availability, Axes, CommandLine, ComputeConfig, ComputeInstance, ExecResult, ExecuteError, FilesError,
    InstanceId, InstanceStatus, ListError, ProvisionError, ShutdownError,
};

/// What is told of the progress of a pull.
pub type Progress = Arc<dyn Fn(PullProgress) + Send + Sync>;

/// What a provider was made with.
pub(super) struct Settings {
    pub engine: Engine,
    pub secrets: Arc<dyn SecretSource>,
    pub progress: Progress,
    /// Never mount the supervisor, as if the engine were elsewhere.
    pub relay_only: bool,
}

/// Runs commands in containers of a Docker engine, or of Podman's socket that speaks like one.
pub struct DockerProvider {
    settings: Settings,
    state_dir: Option<PathBuf>,
    entries: Mutex<HashMap<InstanceId, Entry>>,
}

/// An instance of this process.
struct Entry {
    place: Place,
    status: InstanceStatus,
    /// Released when the instance is gone.
    guarded: Option<Guarded>,
}

impl std::fmt::Debug for DockerProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DockerProvider")
            .field("engine", &self.settings.engine)
            .finish_non_exhaustive()
    }
}

impl Default for DockerProvider {
    fn default() -> Self {
        Self::with_engine(Engine::new(None, Deadlines::default()))
    }
}

impl DockerProvider {
    /// The engine that `DOCKER_HOST` names, else that of one of the usual sockets.
    pub fn new() -> Self {
        Self::default()
    }

    /// The engine at an address.
    pub fn at(address: Address) -> Self {
        Self::with_engine(Engine::new(Some(address), Deadlines::default()))
    }

    /// An engine with deadlines of one's choice.
    pub fn with_engine(engine: Engine) -> Self {
        let progress: Progress = Arc::new(|progress| {
            tracing::info!(provider = PROVIDER, layer = progress.layer, "{}", progress.status);
        });
        let settings = Settings {
            engine,
            secrets: Arc::new(EnvSecrets),
            progress,
            relay_only: false,
        };
        Self {
            settings,
            state_dir: None,
            entries: Mutex::default(),
        }
    }

    /// Where the passwords of registries are looked up. Default: variables of this process.
    pub fn secrets(mut self, secrets: Arc<dyn SecretSource>) -> Self {
        self.settings.secrets = secrets;
        self
    }

    /// Who is told of the progress of a pull. Default: the log.
    pub fn progress(mut self, progress: Progress) -> Self {
        self.settings.progress = progress;
        self
    }

    /// Keeps the folders of instances here instead of in the user's default folder.
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(directory.into());
        self
    }

    /// Always uploads the supervisor and reaches it by one exec, as with an engine on another machine.
    pub fn relay_only(mut self) -> Self {
        self.settings.relay_only = true;
        self
    }

    fn state(&self) -> std::io::Result<State> {
        match &self.state_dir {
            Some(directory) => State::open(directory.clone()),
            None => State::open_default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<InstanceId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn reach(&self, id: &InstanceId) -> Option<Place> {
        let known = self.entries().get(id).map(|entry| entry.place.clone());
        if known.is_some() {
            return known;
        }
        let state = self.state().ok()?;
        let relay: Arc<dyn Dial> = Arc::new(DialRelay {
            engine: self.settings.engine.clone(),
            container: provision::name_of(id)?,
        });
        let ways = adopt::socket(&state, id).into_iter().chain([relay]).collect();
        let place = adopt(&state, PROVIDER, id, ways).await?;
        let entry = Entry {
            place: place.clone(),
            status: InstanceStatus::Running,
            guarded: None,
        };
        self.entries().insert(id.clone(), entry);
        Some(place)
    }

    fn describe(&self, labels: &InstanceLabels, phase: Phase, image: Option<&str>) -> ComputeInstance {
        let entries = self.entries();
        let own = entries.get(&labels.instance);
        let recorded = || {
            let folder = self.state().ok()?.find(&labels.instance)?;
            folder.record().ok().map(|record| record.instance)
        };
        let mut instance = own
            .map(|entry| entry.place.instance.clone())
            .or_else(recorded)
            .unwrap_or_else(|| {
                let mut metadata = serde_json::Map::new();
                metadata.insert("image".to_owned(), image.unwrap_or_default().into());
                metadata.insert("detached".to_owned(), labels.detached.into());
                metadata.insert(
                    "owner_pid".to_owned(),
                    labels.owner.as_ref().map(|owner| owner.pid).into(),
                );
                ComputeInstance {
                    id: labels.instance.clone(),
                    provider: PROVIDER.to_owned(),
                    status: InstanceStatus::Running,
                    created_at: labels.created_at.unwrap_or(time::OffsetDateTime::UNIX_EPOCH),
                    isolation: Axes::UNKNOWN,
                    metadata,
                }
            });
        instance.status = match own.map(|entry| entry.status) {
            Some(InstanceStatus::Error) => InstanceStatus::Error,
            _ => phase.status(),
        };
        instance
    }

    /// Whether nobody will ever want this container again.
    fn is_left(&self, listed: &Listed, engine_is_here: bool) -> bool {
        let Some(owner) = &listed.labels.owner else {
            return listed.phase != Phase::Running;
        };
        let Ok(pid) = i32::try_from(owner.pid) else {
            return false;
        };
        let same_boot = boot_id().is_ok_and(|boot| boot == owner.boot_id);
        let identity = ProcessIdentity {
            pid,
            start_time: owner.start,
            boot_id: owner.boot_id.clone(),
        };
        match (same_boot, listed.phase) {
            // The owner ran on another machine, or before a reboot: then what ran has ended.
            (false, phase) => engine_is_here && phase != Phase::Running,
            (true, Phase::Running) => !listed.labels.detached && !identity.is_alive(),
            (true, _) => !identity.is_alive(),
        }
    }

    /// Folders of instances whose container is gone and whose owner is too.
    async fn prune_folders(&self, kept: &[InstanceId]) -> std::io::Result<()> {
        for (folder, record) in self.state()?.instances()? {
            let ours = record.instance.provider == PROVIDER && !kept.contains(&record.instance.id);
            if ours && !record.owner.is_alive() {
                folder.remove()?;
            }
        }
        Ok(())
    }
}

fn list_failed(error: EngineError) -> ListError {
    let reason = error.whole();
    ListError::Failed {
        provider: PROVIDER.to_owned(),
        reason,
        source: Some(Box::new(error)),
    }
}

fn state_failed(error: std::io::Error) -> ListError {
    let reason = error.to_string();
    ListError::Failed {
        provider: PROVIDER.to_owned(),
        reason,
        source: Some(Box::new(error)),
    }
}

#[async_trait]
impl Provider for DockerProvider {
    fn name(&self) -> &str {
        PROVIDER
    }

    async fn probe(&self) -> Availability {
        if crate::supervisor::SUPERVISOR.is_empty() {
            return Availability::missing(
                "platform_unsupported",
                "there is no supervisor for this platform that a container could run",
                "Use docker from Linux, or choose another provider.",
            );
        }
        self.settings.engine.probe().await
    }

    fn observed_axes(&self) -> Axes {
        match (self.settings.engine.known_facts(), self.state()) {
            (Some(facts), Ok(state)) => state.observed(PROVIDER, &facts.identity()),
            (None, _) | (_, Err(_)) => Axes::UNKNOWN,
        }
    }

    async fn keep_observed(&self, axes: Axes) {
        let Ok(facts) = self.settings.engine.facts().await else {
            return;
        };
        let kept = self
            .state()
            .and_then(|state| state.keep_observed(PROVIDER, &facts.identity(), axes));
        if let Err(error) = kept {
            tracing::warn!(provider = PROVIDER, %error, "what was observed could not be kept");
        }
    }

    fn check(&self, config: &ComputeConfig) -> Result<(), ProvisionError> {
        plan::check(config, &Options::parse(&config.options)?)
    }

    async fn provision(&self, config: ComputeConfig) -> Result<ComputeInstance, ProvisionError> {
        let state = self
            .state()
            .map_err(|error| provision::failed("the folder for live instances", error))?;
        let Brought { place, guarded } = provision::provision(&self.settings, state, config).await?;
        let instance = place.instance.clone();
        let entry = Entry {
            place,
            status: InstanceStatus::Running,
            guarded,
        };
        self.entries().insert(instance.id.clone(), entry);
        Ok(instance)
    }

    async fn spawn(
        &self,
        id: &InstanceId,
        command: CommandLine,
        config: ComputeConfig,
    ) -> Result<Process, ExecuteError> {
        let place = self
            .reach(id)
            .await
            .ok_or_else(|| ExecuteError::NoInstance { instance: id.clone() })?;
        place.spawn(command, config)
    }

    async fn execute(
        &self,
        id: &InstanceId,
        command: CommandLine,
        config: ComputeConfig,
    ) -> Result<ExecResult, ExecuteError> {
        let place = self
            .reach(id)
            .await
            .ok_or_else(|| ExecuteError::NoInstance { instance: id.clone() })?;
        place.execute(command, config).await
    }

    async fn shutdown(&self, id: &InstanceId) -> Result<(), ShutdownError> {
        // An id that we cannot have made names no container.
        let Some(name) = provision::name_of(id) else {
            return Ok(());
        };
        if let Err(error) = self.settings.engine.remove_container(&name).await {
            if let Some(entry) = self.entries().get_mut(id) {
                entry.status = InstanceStatus::Error;
            }
            let reason = error.whole();
            let source: Option<stead_types::error::Source> = Some(Box::new(error));
            return Err(ShutdownError::StillThere {
                provider: PROVIDER.to_owned(),
                instance: id.clone(),
                reason,
                source,
            });
        }
        let folder = self.state().ok().and_then(|state| state.find(id));
        // The container is gone; a folder that stays is the guard's, or that of `prune`.
        let folder_gone = folder.is_none_or(|folder| folder.remove().is_ok());
        let entry = self.entries().remove(id);
        if let Some(guarded) = entry.and_then(|entry| entry.guarded).filter(|_| folder_gone) {
            guarded.release();
        }
        Ok(())
    }

    async fn list_instances(&self) -> Result<Vec<ComputeInstance>, ListError> {
        let listed = self
            .settings
            .engine
            .list_containers()
            .await
            .map_err(list_failed)?;
        Ok(listed
            .iter()
            .map(|listed| self.describe(&listed.labels, listed.phase, Some(&listed.image)))
            .collect())
    }

    async fn status(&self, id: &InstanceId) -> Result<Option<ComputeInstance>, ListError> {
        let Some(name) = provision::name_of(id) else {
            return Ok(None);
        };
        let found = self
            .settings
            .engine
            .inspect_container(&name)
            .await
            .map_err(list_failed)?;
        Ok(found.and_then(|found| {
            found
                .labels
                .map(|labels| self.describe(&labels, found.phase, None))
        }))
    }

    async fn files(&self, id: &InstanceId) -> Result<Box<dyn Files>, FilesError> {
        match self.reach(id).await {
            Some(place) => Ok(place.files()),
            None => Err(FilesError::NoInstance { instance: id.clone() }),
        }
    }

    async fn prune(&self) -> Result<Vec<InstanceId>, ListError> {
        let engine = &self.settings.engine;
        let here = engine
            .facts()
            .await
            .map(|facts| !facts.address.is_remote())
            .map_err(list_failed)?;
        let (mut removed, mut kept) = (Vec::new(), Vec::new());
        for listed in engine.list_containers().await.map_err(list_failed)? {
            if self.is_left(&listed, here) {
                engine
                    .remove_container(&listed.container)
                    .await
                    .map_err(list_failed)?;
                removed.push(listed.labels.instance);
            } else {
                kept.push(listed.labels.instance);
            }
        }
        self.prune_folders(&kept).await.map_err(state_failed)?;
        Ok(removed)
    }
}
