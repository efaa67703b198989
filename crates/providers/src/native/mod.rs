//! `native`: a place made of the kernel's own means, with the host's programs and nothing else of the host. No
//! daemon, no image, no root needed.

mod groups;
mod host;
mod options;

use crate::hosted::{Hosted, Kind, Start, failed};
use crate::state::{InstanceFolder, State};
use groups::Hierarchies;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use stead_confine::{Grant, Host, Limits, Network, Plan, Policy, UserNamespace, compile};
use stead_types::{Availability, Axes, ComputeConfig, NetworkPolicy, ProvisionError};

/// The name under which this provider is registered.
pub const NAME: &str = "native";

/// Where commands start, and the only directory besides those in memory that they can write.
const WORKSPACE: &str = "/workspace";

/// What a command finds in its environment besides what it is given.
const ENV: [(&str, &str); 4] = [
    (
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ),
    ("HOME", "/root"),
    ("LANG", "C.UTF-8"),
    ("USER", "root"),
];

/// Runs commands in places made of namespaces.
pub type NativeProvider = Hosted<Native>;

/// The kind of [`NativeProvider`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Native {
    #[cfg(feature = "attack-tests")]
    alter: Option<fn(&mut Plan)>,
}

#[cfg(feature = "attack-tests")]
impl NativeProvider {
    /// A provider whose plans are altered before they are carried out, so that an attack test can be seen to fail.
    pub fn with_altered_plans(state_dir: impl Into<PathBuf>, alter: fn(&mut Plan)) -> Self {
        Self::of_kind(Native { alter: Some(alter) }, Some(state_dir.into()))
    }
}

#[async_trait::async_trait]
impl Kind for Native {
    const NAME: &'static str = NAME;
    // Nobody has looked yet.
    const AXES: Axes = Axes::UNKNOWN;
    const INHERITS_ENV: bool = false;

    async fn probe(&self, _: &State) -> Availability {
        host::probe()
    }

    fn check(&self, config: &ComputeConfig) -> Result<(), ProvisionError> {
        options::check(config, rustix::process::geteuid().is_root())
    }

    fn env(&self, _: &ComputeConfig) -> Vec<(OsString, OsString)> {
        ENV.map(|(name, value)| (OsString::from(name), OsString::from(value)))
            .to_vec()
    }

    fn start(&self, folder: &InstanceFolder, config: &ComputeConfig) -> Result<Start, ProvisionError> {
        let made = |error: io::Error| failed(NAME, "its folder could not be made", error);
        let host = Host::look(
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let hierarchies = Hierarchies::look().map_err(|error| failed(NAME, "the cgroups", error))?;
        let name = format!("stead-{}", folder.id());
        let groups = groups::plan(&config.resources, &hierarchies, &name)?;
        let grants = grants(config)?;
        let cleared = options::weakened(config, &grants)?;
        let policy = Policy {
            hostname: hostname(folder),
            stage: folder.path().join("root"),
            workspace: folder.work(),
            grants,
            network: match config.network {
                Some(NetworkPolicy::Full) => Network::Full,
                _ => Network::None,
            },
            limits: Limits {
                disk: config.resources.disk,
                open_files: None,
            },
            groups,
        };
        let plan = compile(&policy, &host);
        #[cfg(feature = "attack-tests")]
        let plan = self.altered(plan);
        directory(&policy.stage, &plan).map_err(made)?;
        directory(&policy.workspace, &plan).map_err(made)?;
        let bytes = postcard::to_allocvec(&plan).map_err(|error| made(io::Error::other(error)))?;
        let file = folder.path().join("plan");
        crate::supervisor::write_private(&file, &bytes).map_err(made)?;
        Ok(Start {
            workdir: config.workdir.clone().unwrap_or_else(|| WORKSPACE.into()),
            cleared,
            tree: None,
            plan: Some(file),
            groups: plan.groups.iter().map(|group| group.path.clone()).collect(),
            metadata: metadata(&plan),
        })
    }
}

#[cfg(feature = "attack-tests")]
impl Native {
    fn altered(self, mut plan: Plan) -> Plan {
        if let Some(alter) = self.alter {
            alter(&mut plan);
        }
        plan
    }
}

/// Makes a directory that belongs to the place's root.
fn directory(path: &Path, plan: &Plan) -> io::Result<()> {
    std::fs::DirBuilder::new().mode(0o755).create(path)?;
    match &plan.users {
        UserNamespace::Last { uids, gids } => chown(path, Some(uids.outside), Some(gids.outside)),
        UserNamespace::First { .. } => Ok(()),
    }
}

/// Short enough for a prompt, and unlike those of its neighbours: the end of the id is random.
fn hostname(folder: &InstanceFolder) -> String {
    let id = folder.id().to_string();
    let tail: Vec<char> = id.chars().rev().take(12).collect();
    tail.into_iter().rev().collect()
}

fn grants(config: &ComputeConfig) -> Result<Vec<Grant>, ProvisionError> {
    let grant = |mount: &stead_types::Mount| {
        let host = mount.host.canonicalize().map_err(|error| {
            failed(
                NAME,
                &format!("the mount's host path {}", mount.host.display()),
                error,
            )
        })?;
        Ok(Grant {
            host,
            place: mount.place.clone(),
            read_only: mount.read_only,
        })
    };
    config.mounts.iter().map(grant).collect()
}

fn metadata(plan: &Plan) -> serde_json::Map<String, serde_json::Value> {
    let mut metadata = serde_json::Map::new();
    let users = match plan.users {
        UserNamespace::First { .. } => "the caller alone",
        UserNamespace::Last { .. } => "a range of its own",
    };
    metadata.insert("users".to_owned(), users.into());
    let paths: Vec<PathBuf> = plan.groups.iter().map(|group| group.path.clone()).collect();
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    metadata.insert("cgroups".to_owned(), paths.into());
    metadata
}
