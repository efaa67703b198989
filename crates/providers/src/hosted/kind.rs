//! What providers whose supervisor is a process of this host do not have in common.

use crate::state::{InstanceFolder, State};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use stead_types::{Availability, Axes, ComputeConfig, MemoryError, ProvisionError};
use stead_wire::TreeTracking;

/// One such provider.
#[async_trait::async_trait]
pub trait Kind: Send + Sync + std::fmt::Debug + 'static {
    /// The name under which it is registered.
    const NAME: &'static str;

    /// What is known of all instances without looking. What is unknown here is observed.
    const AXES: Axes;

    /// Whether a command gets the host's variables unless the configuration says otherwise.
    const INHERITS_ENV: bool;

    /// What the isolation rests on besides the kernel and this build, such as the version of a runtime. `None` while
    /// it is not known: then nothing that was observed counts. By default there is nothing else.
    fn version(&self) -> Option<String> {
        Some(String::new())
    }

    /// Whether instances could be made now. The folder for instances and the supervisor are there.
    async fn probe(&self, state: &State) -> Availability;

    /// Whether instances could be made with this configuration, asked right before one is. By default nobody asks
    /// again.
    async fn verify(&self, _state: &State, _config: &ComputeConfig) -> Availability {
        Availability::Available
    }

    /// Refuses what it cannot honour.
    fn check(&self, config: &ComputeConfig) -> Result<(), ProvisionError>;

    /// Refuses what would first have to be fetched from elsewhere: for a choice among providers. By default nothing
    /// has to be.
    fn at_hand(&self, _config: &ComputeConfig) -> Result<(), ProvisionError> {
        Ok(())
    }

    /// The whole environment of the supervisor of an instance, and so that of every command.
    fn env(&self, config: &ComputeConfig) -> Vec<(OsString, OsString)>;

    /// What its places are made from, fetched where it is not there yet. By default the host's own.
    async fn view(&self, config: &ComputeConfig) -> Result<View, ProvisionError> {
        Ok(View {
            env: self.env(config),
            ..View::default()
        })
    }

    /// Saves the memory of an instance. By default there is no way to.
    async fn save_memory(&self, _: &InstanceFolder, _: &Path) -> Result<(), MemoryError> {
        Err(MemoryError::Unsupported {
            provider: Self::NAME.to_owned(),
        })
    }

    /// Goes on from what was saved.
    async fn restore_memory(&self, _: &InstanceFolder, _: &Path) -> Result<(), MemoryError> {
        Err(MemoryError::Unsupported {
            provider: Self::NAME.to_owned(),
        })
    }

    /// Makes what an instance needs in its folder, and says how its supervisor is to serve it.
    fn start(
        &self,
        folder: &InstanceFolder,
        config: &ComputeConfig,
        view: &View,
    ) -> Result<Start, ProvisionError>;
}

/// What a place is made from.
#[derive(Debug, Default)]
pub struct View {
    /// The whole environment of the supervisor, and so that of every command.
    pub env: Vec<(OsString, OsString)>,
    /// As whom commands run when the configuration does not say; `None` is as the supervisor.
    pub user: Option<String>,
    /// Layers of an image as directories of the host, the top one first; none without an image.
    pub layers: Vec<PathBuf>,
    /// Kept open by the supervisor for as long as it lives: the layers are not removed meanwhile.
    pub lease: Option<OwnedFd>,
}

/// How a supervisor serves its instance.
#[derive(Debug, Default)]
pub struct Start {
    /// Working directory of commands, as they see it.
    pub workdir: PathBuf,
    /// `Some(false)` for what is known not to hold of this one, whatever was observed of others.
    pub cleared: Axes,
    /// How trees are kept together; as the supervisor finds without it.
    pub tree: Option<TreeTracking>,
    /// The file with its plan of confinement.
    pub plan: Option<PathBuf>,
    /// What its keeper has to do, where the supervisor is no process of this host but the first one of a place that
    /// a runtime makes. Nothing of `tree` and `plan` counts then.
    #[cfg(feature = "gvisor")]
    pub kept: Option<stead_confine::Kept>,
    /// Directories of its cgroups, for whoever has to clean up when it cannot.
    pub groups: Vec<PathBuf>,
    /// What is told of the instance besides.
    pub metadata: serde_json::Map<String, serde_json::Value>,
}
