//! `native`: a place made of the kernel's own means, with the host's programs and nothing else of the host. No
//! daemon, no image, no root needed.

mod host;
#[cfg(feature = "image")]
mod image;

use crate::hosted::groups::{self, Hierarchies};
use crate::hosted::{Hosted, Kind, Start, View, failed, host_view};
use crate::state::{InstanceFolder, State};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use stead_confine::{Host, ImageRoot, Plan, Policy, UserNamespace, compile};
use stead_types::{Availability, Axes, ComputeConfig, ProvisionError};

/// The name under which this provider is registered.
pub const NAME: &str = "native";

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
        host_view::check(NAME, config, rustix::process::geteuid().is_root(), &[])
    }

    fn env(&self, _: &ComputeConfig) -> Vec<(OsString, OsString)> {
        host_view::env()
    }

    #[cfg(feature = "image")]
    fn at_hand(&self, config: &ComputeConfig) -> Result<(), ProvisionError> {
        config.image.as_deref().map_or(Ok(()), image::at_hand)
    }

    #[cfg(feature = "image")]
    async fn view(&self, config: &ComputeConfig) -> Result<View, ProvisionError> {
        match config.image.as_deref() {
            Some(name) => image::view(name, config).await,
            None => Ok(View {
                env: self.env(config),
                ..View::default()
            }),
        }
    }

    fn start(
        &self,
        folder: &InstanceFolder,
        config: &ComputeConfig,
        view: &View,
    ) -> Result<Start, ProvisionError> {
        let made = |error: io::Error| failed(NAME, "its folder could not be made", error);
        let host = Host::look(
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let hierarchies = Hierarchies::look().map_err(|error| failed(NAME, "the cgroups", error))?;
        let name = format!("stead-{}", folder.id());
        let groups = groups::plan(NAME, &config.resources, &hierarchies, &name)?;
        let image = (!view.layers.is_empty()).then(|| ImageRoot {
            layers: view.layers.clone(),
            changes: folder.path().join("changes"),
        });
        let policy = Policy {
            image,
            ..host_view::policy(NAME, folder, config, groups)?
        };
        let cleared = host_view::weakened(NAME, config, &policy.grants)?;
        let plan = compile(&policy, &host);
        #[cfg(feature = "attack-tests")]
        let plan = self.altered(plan);
        directory(&policy.stage, &plan).map_err(made)?;
        directory(&policy.workspace, &plan).map_err(made)?;
        if let Some(image) = &policy.image {
            directory(&image.changes, &plan).map_err(made)?;
        }
        let bytes = postcard::to_allocvec(&plan).map_err(|error| made(io::Error::other(error)))?;
        let file = folder.path().join("plan");
        crate::supervisor::write_private(&file, &bytes).map_err(made)?;
        Ok(Start {
            workdir: config
                .workdir
                .clone()
                .unwrap_or_else(|| host_view::WORKSPACE.into()),
            cleared,
            tree: None,
            plan: Some(file),
            groups: plan.groups.iter().map(|group| group.path.clone()).collect(),
            metadata: metadata(&plan),
            ..Start::default()
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
