//! `local`: a process group of the host, as the calling user, with no isolation at all, and it says so.

use crate::hosted::{Hosted, Kind, Start, View};
use crate::state::{InstanceFolder, State};
use std::ffi::OsString;
use std::sync::Once;
use stead_types::{Availability, Axes, ComputeConfig, InheritEnv, NetworkPolicy, ProvisionError};
use stead_wire::TreeTracking;

/// The name under which this provider is registered.
pub const NAME: &str = "local";

/// What `minimal` leaves of the host's environment.
const MINIMAL: [&str; 6] = ["PATH", "HOME", "LANG", "TERM", "USER", "TMPDIR"];

/// Runs commands on the host.
pub type LocalProvider = Hosted<Local>;

/// The kind of [`LocalProvider`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Local {
    /// Whether nothing is said of the missing isolation: where that is what is looked at.
    quiet: bool,
}

impl LocalProvider {
    /// A provider that does not warn: the doctor's, whose attempts are meant to succeed here.
    pub(crate) fn quiet(state_dir: Option<std::path::PathBuf>) -> Self {
        Self::of_kind(Local { quiet: true }, state_dir)
    }
}

#[async_trait::async_trait]
impl Kind for Local {
    const NAME: &'static str = NAME;
    const AXES: Axes = Axes::NONE;
    const INHERITS_ENV: bool = true;

    async fn probe(&self, _: &State) -> Availability {
        Availability::Available
    }

    fn check(&self, config: &ComputeConfig) -> Result<(), ProvisionError> {
        check(config)
    }

    fn env(&self, config: &ComputeConfig) -> Vec<(OsString, OsString)> {
        inherited(config.inherit_env.unwrap_or(InheritEnv::All))
    }

    fn start(
        &self,
        folder: &InstanceFolder,
        config: &ComputeConfig,
        _: &View,
    ) -> Result<Start, ProvisionError> {
        if !self.quiet {
            warn_once();
        }
        Ok(Start {
            workdir: config.workdir.clone().unwrap_or_else(|| folder.work()),
            cleared: Axes::NONE,
            tree: tree(config)?,
            ..Start::default()
        })
    }
}

/// Says once in the life of the process that nothing is isolated.
fn warn_once() {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            provider = NAME,
            "local runs commands on this host with no isolation"
        );
    });
}

fn inherited(which: InheritEnv) -> Vec<(OsString, OsString)> {
    let wanted = |name: &OsString| match which {
        InheritEnv::All => true,
        InheritEnv::Minimal => MINIMAL.iter().any(|minimal| name == minimal),
        InheritEnv::None => false,
    };
    std::env::vars_os().filter(|(name, _)| wanted(name)).collect()
}

fn unsupported(key: &str, reason: &str) -> ProvisionError {
    ProvisionError::Unsupported {
        provider: NAME.to_owned(),
        key: key.to_owned(),
        reason: reason.to_owned(),
    }
}

fn option(option: &str, reason: impl Into<String>) -> ProvisionError {
    ProvisionError::Option {
        provider: NAME.to_owned(),
        option: option.to_owned(),
        reason: reason.into(),
    }
}

/// Refuses what a process of the host cannot have.
fn check(config: &ComputeConfig) -> Result<(), ProvisionError> {
    config.check().map_err(|source| ProvisionError::Invalid {
        provider: NAME.to_owned(),
        source,
    })?;
    if config.image.is_some() {
        return Err(unsupported("image", "it runs on the host's own files"));
    }
    if let Some(limit) = config.resources.named().next() {
        return Err(unsupported(&format!("resources.{limit}"), "it sets no limits"));
    }
    match &config.network {
        None | Some(NetworkPolicy::Full) => {}
        Some(NetworkPolicy::None | NetworkPolicy::Allow { .. }) => {
            return Err(unsupported(
                "network",
                "it has the host's network and cannot restrict it",
            ));
        }
    }
    if config.user.is_some() {
        return Err(unsupported("user", "its commands run as the calling user"));
    }
    // What is on the host is not made up: a typing error must not leave a directory there.
    if let Some(workdir) = config.workdir.as_ref().filter(|workdir| !workdir.is_dir()) {
        return Err(ProvisionError::Workdir {
            provider: NAME.to_owned(),
            workdir: workdir.display().to_string(),
            reason: "there is no such directory on this host".to_owned(),
        });
    }
    if !config.mounts.is_empty() {
        return Err(unsupported("mounts", "it sees the host's files where they are"));
    }
    tree(config).map(drop)
}

/// The option `tree`: how trees are kept together. For tests and for finding faults.
fn tree(config: &ComputeConfig) -> Result<Option<TreeTracking>, ProvisionError> {
    for name in config.options.keys() {
        if name != "tree" {
            return Err(option(name, "the only option is 'tree'"));
        }
    }
    let Some(value) = config.options.get("tree") else {
        return Ok(None);
    };
    match value.as_str() {
        Some("auto") => Ok(None),
        Some("cgroup2") => Ok(Some(TreeTracking::CgroupV2)),
        Some("cgroup1") => Ok(Some(TreeTracking::CgroupV1)),
        Some("reaper") => Ok(Some(TreeTracking::Reaper)),
        _ => Err(option("tree", "it is one of auto, cgroup2, cgroup1, reaper")),
    }
}
