//! Providers whose supervisor is a process of this host: `local`, and those that confine it.
//!
//! A supervisor process stands for each instance: it keeps the trees together without changing anything in the
//! caller's process, and it ends them when the caller is gone by whatever signal.

#[cfg(any(feature = "native", feature = "gvisor"))]
pub(crate) mod groups;
#[cfg(any(feature = "native", feature = "gvisor"))]
pub(crate) mod host_view;
#[cfg(feature = "gvisor")]
pub(crate) mod kept;
mod kind;
mod provision;
mod remove;

pub use kind::{Kind, Start, View};
#[cfg(feature = "gvisor")]
pub(crate) use provision::OWNER_GRACE_SECONDS;
pub(crate) use provision::failed;
#[cfg(feature = "gvisor")]
pub(crate) use remove::signal;

use crate::adopt::{self, adopt};
use crate::place::Place;
use crate::state::{InstanceFolder, Record, State};
use async_trait::async_trait;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_provider::{Files, Process, Provider};
use stead_types::{
    Availability, Axes, CommandLine, ComputeConfig, ComputeInstance, ExecResult, ExecuteError, FilesError,
    InstanceId, InstanceStatus, ListError, MemoryError, ProvisionError, ShutdownError,
};

/// A provider of one kind. See the module's documentation.
///
/// When it is dropped its links close, and each supervisor ends its instance because its owner is gone.
#[derive(Debug, Default)]
pub struct Hosted<K> {
    kind: K,
    /// Opened at the first use, so that making a provider cannot fail.
    state: Mutex<Option<State>>,
    state_dir: Option<std::path::PathBuf>,
    places: Arc<Mutex<HashMap<InstanceId, Entry>>>,
}

/// An instance of this process.
#[derive(Debug, Clone)]
enum Entry {
    Running(Box<Place>),
    /// Its removal failed.
    Error(ComputeInstance),
}

impl<K: Kind + Default> Hosted<K> {
    /// A provider that keeps its instances in the user's default folder.
    pub fn new() -> Self {
        Self::default()
    }

    /// A provider that keeps its instances in a folder of one's choice, which belongs to this user alone.
    pub fn with_state_dir(directory: impl Into<std::path::PathBuf>) -> Self {
        Self {
            state_dir: Some(directory.into()),
            ..Self::default()
        }
    }
}

impl<K: Kind> Hosted<K> {
    pub(crate) fn of_kind(kind: K, state_dir: Option<std::path::PathBuf>) -> Self {
        Self {
            kind,
            state: Mutex::default(),
            state_dir,
            places: Arc::default(),
        }
    }

    #[cfg(feature = "gvisor")]
    pub(crate) fn kind(&self) -> &K {
        &self.kind
    }

    fn state(&self) -> std::io::Result<State> {
        let mut slot = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = &*slot {
            return Ok(state.clone());
        }
        let state = match &self.state_dir {
            Some(directory) => State::open(directory.clone())?,
            None => State::open_default()?,
        };
        *slot = Some(state.clone());
        Ok(state)
    }

    fn places(&self) -> MutexGuard<'_, HashMap<InstanceId, Entry>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, id: &InstanceId) -> Option<Place> {
        match self.places().get(id) {
            Some(Entry::Running(place)) => Some((**place).clone()),
            Some(Entry::Error(_)) | None => None,
        }
    }

    /// Also an instance that was detached by a process that is gone: its supervisor still listens.
    async fn reach(&self, id: &InstanceId) -> Option<Place> {
        if let Some(place) = self.place(id) {
            return Some(place);
        }
        let state = self.state().ok()?;
        let place = adopt(
            &state,
            K::NAME,
            id,
            adopt::socket(&state, id).into_iter().collect(),
        )
        .await?;
        self.places()
            .insert(id.clone(), Entry::Running(Box::new(place.clone())));
        Some(place)
    }

    /// The folder of an instance of this provider.
    fn own_folder(&self, id: &InstanceId) -> Result<InstanceFolder, MemoryError> {
        let folder = self.state().ok().and_then(|state| state.find(id));
        let is_own = |folder: &InstanceFolder| {
            let record = folder.record();
            record.is_ok_and(|record| record.instance.provider == K::NAME)
        };
        folder
            .filter(is_own)
            .ok_or_else(|| MemoryError::NoInstance { instance: id.clone() })
    }

    fn list_failed(error: std::io::Error) -> ListError {
        let reason = error.to_string();
        ListError::Failed {
            provider: K::NAME.to_owned(),
            reason,
            source: Some(Box::new(error)),
        }
    }
}

#[async_trait]
impl<K: Kind> Provider for Hosted<K> {
    fn name(&self) -> &str {
        K::NAME
    }

    fn inherits_host_env(&self) -> bool {
        K::INHERITS_ENV
    }

    fn observed_axes(&self) -> Axes {
        match (self.state(), self.kind.version()) {
            (Ok(state), Some(version)) if K::AXES == Axes::UNKNOWN => state.observed(K::NAME, &version),
            _ => K::AXES,
        }
    }

    async fn keep_observed(&self, axes: Axes) {
        let Some(version) = self.kind.version().filter(|_| K::AXES == Axes::UNKNOWN) else {
            return;
        };
        let kept = self
            .state()
            .and_then(|state| state.keep_observed(K::NAME, &version, axes));
        if let Err(error) = kept {
            tracing::warn!(provider = K::NAME, %error, "what was observed could not be kept");
        }
    }

    fn check(&self, config: &ComputeConfig) -> Result<(), ProvisionError> {
        self.kind.check(config)?;
        self.kind.at_hand(config)
    }

    async fn probe(&self) -> Availability {
        if crate::supervisor::SUPERVISOR.is_empty() {
            return Availability::missing(
                "platform_unsupported",
                format!("this platform has no process control that {} could use", K::NAME),
                format!("Use {} on Linux, or choose another provider.", K::NAME),
            );
        }
        match self.state().and_then(|state| state.supervisor().map(|_| state)) {
            Ok(state) => self.kind.probe(&state).await,
            Err(error) => Availability::missing(
                "state_unusable",
                format!("the folder for live instances cannot be used: {error}"),
                "Set STEAD_STATE_DIR to a directory of your own with mode 0700.",
            ),
        }
    }

    async fn provision(&self, config: ComputeConfig) -> Result<ComputeInstance, ProvisionError> {
        self.kind.check(&config)?;
        let state = self
            .state()
            .map_err(|error| failed(K::NAME, "its folder cannot be used", error))?;
        if let Availability::Unavailable(missing) = self.kind.verify(&state, &config).await {
            let provider = K::NAME.to_owned();
            return Err(ProvisionError::Unavailable { provider, missing });
        }
        let place = provision::provision(&self.kind, &state, config, self.observed_axes()).await?;
        let instance = place.instance.clone();
        self.places()
            .insert(instance.id.clone(), Entry::Running(Box::new(place)));
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
        let entry = self.places().get(id).cloned();
        let link = match &entry {
            Some(Entry::Running(place)) => Some(place.link.clone()),
            Some(Entry::Error(_)) | None => None,
        };
        let failed = |error: std::io::Error| ShutdownError::StillThere {
            provider: K::NAME.to_owned(),
            instance: id.clone(),
            reason: error.to_string(),
            source: Some(Box::new(error)),
        };
        let Some(folder) = self.state().map_err(failed)?.find(id) else {
            self.places().remove(id);
            return Ok(());
        };
        match remove::remove(&folder, link.as_ref()).await {
            Ok(()) => {
                self.places().remove(id);
                Ok(())
            }
            Err(error) => {
                let instance = match entry {
                    Some(Entry::Running(place)) => Some(place.instance),
                    Some(Entry::Error(instance)) => Some(instance),
                    None => folder.record().ok().map(|record| record.instance),
                };
                if let Some(instance) = instance {
                    let instance = ComputeInstance {
                        status: InstanceStatus::Error,
                        ..instance
                    };
                    self.places().insert(id.clone(), Entry::Error(instance));
                }
                Err(failed(error))
            }
        }
    }

    async fn list_instances(&self) -> Result<Vec<ComputeInstance>, ListError> {
        let state = self.state().map_err(Self::list_failed)?;
        let records = state.instances().map_err(Self::list_failed)?;
        let own = records
            .into_iter()
            .filter(|(_, record)| record.instance.provider == K::NAME);
        Ok(own
            .map(|(folder, record)| self.with_status(&folder, record))
            .collect())
    }

    async fn status(&self, id: &InstanceId) -> Result<Option<ComputeInstance>, ListError> {
        let state = self.state().map_err(Self::list_failed)?;
        let Some(folder) = state.find(id) else {
            return Ok(None);
        };
        match folder.record() {
            Ok(record) if record.instance.provider == K::NAME => Ok(Some(self.with_status(&folder, record))),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Self::list_failed(error)),
        }
    }

    async fn files(&self, id: &InstanceId) -> Result<Box<dyn Files>, FilesError> {
        match self.reach(id).await {
            Some(place) => Ok(place.files()),
            None => Err(FilesError::NoInstance { instance: id.clone() }),
        }
    }

    async fn save_memory(&self, id: &InstanceId, image: &Path) -> Result<(), MemoryError> {
        let folder = self.own_folder(id)?;
        self.kind.save_memory(&folder, image).await
    }

    async fn restore_memory(&self, id: &InstanceId, image: &Path) -> Result<(), MemoryError> {
        let folder = self.own_folder(id)?;
        self.kind.restore_memory(&folder, image).await
    }

    async fn prune(&self) -> Result<Vec<InstanceId>, ListError> {
        let state = self.state().map_err(Self::list_failed)?;
        remove::prune(&state, K::NAME).await.map_err(Self::list_failed)
    }
}

impl<K: Kind> Hosted<K> {
    /// The record says how it was; whether it still is, its supervisor's process says.
    fn with_status(&self, folder: &InstanceFolder, record: Record) -> ComputeInstance {
        let mut instance = record.instance;
        let alive = record
            .supervisor
            .as_ref()
            .is_some_and(crate::state::ProcessIdentity::is_alive);
        let failed = matches!(self.places().get(&instance.id), Some(Entry::Error(_)));
        let runs = alive && !folder.is_parked();
        instance.status = match (failed, runs) {
            (true, _) => InstanceStatus::Error,
            (false, true) => InstanceStatus::Running,
            (false, false) => InstanceStatus::Stopped,
        };
        instance
    }
}
