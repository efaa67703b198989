//! What of the host is mounted into a container.

use super::engine::ApiVersion;
use super::plan::{Access, unsupported};
use bollard::models::{Mount as EngineMount, MountBindOptions, MountType, MountVolumeOptions};
use std::path::{Component, Path, PathBuf};
use stead_types::{Mount, ProvisionError};

/// The supervisor's folder in a container.
pub const RUN_DIR: &str = "/run/stead";

/// The supervisor's file in a container.
pub const SUPERVISOR: &str = "/run/stead/bin/supervisor";

/// Where the supervisor makes its socket.
pub const CONTROL_DIR: &str = "/run/stead/ctl";

/// From this version on a read-only mount is read-only with all that is mounted below it.
const RECURSIVE_READ_ONLY: ApiVersion = ApiVersion(1, 44);

/// A mount of the configuration, with what its host path really is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedMount {
    /// As it was given.
    pub grant: Mount,
    /// The host path without links. This is what is mounted, so that what was checked is what is used.
    pub source: PathBuf,
}

impl GrantedMount {
    /// For an engine on another machine, whose paths cannot be resolved here.
    pub fn as_given(grant: &Mount) -> Self {
        Self {
            grant: grant.clone(),
            source: grant.host.clone(),
        }
    }

    /// For an engine on this machine.
    pub async fn resolve(grant: &Mount) -> Result<Self, ProvisionError> {
        let host = grant.host.clone();
        let resolved = tokio::task::spawn_blocking(move || std::fs::canonicalize(host)).await;
        let source = resolved
            .unwrap_or_else(|join| Err(join.into()))
            .map_err(|error| {
                let reason = format!("{} cannot be mounted: {error}", grant.host.display());
                unsupported("mounts", &reason)
            })?;
        Ok(Self {
            grant: grant.clone(),
            source,
        })
    }
}

/// All mounts of a container.
pub(super) fn all(
    access: &Access,
    granted: &[GrantedMount],
    api: ApiVersion,
) -> Result<Vec<EngineMount>, ProvisionError> {
    let mut mounts = match access {
        Access::Socket { supervisor, control } => vec![
            bind(supervisor, Path::new(SUPERVISOR), true, api)?,
            bind(control, Path::new(CONTROL_DIR), false, api)?,
        ],
        Access::ExecRelay => vec![private_volume()],
    };
    for mount in granted {
        let place = &mount.grant.place;
        check_place(place)?;
        mounts.push(bind(&mount.source, place, mount.grant.read_only, api)?);
    }
    Ok(mounts)
}

/// A volume without a name, gone with the container. An upload goes there, also when the root is read-only.
fn private_volume() -> EngineMount {
    EngineMount {
        target: Some(RUN_DIR.to_owned()),
        typ: Some(MountType::VOLUME),
        read_only: Some(false),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            ..MountVolumeOptions::default()
        }),
        ..EngineMount::default()
    }
}

/// A typed mount and not the engine's `a:b:ro`, in which a colon in a path means something else, and
/// which makes a folder where the source is missing.
fn bind(
    source: &Path,
    target: &Path,
    read_only: bool,
    api: ApiVersion,
) -> Result<EngineMount, ProvisionError> {
    let text = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| unsupported("mounts", &format!("{} is not UTF-8", path.display())))
    };
    // Where the engine cannot make all below read-only, nothing below is mounted.
    let options = MountBindOptions {
        non_recursive: (read_only && api < RECURSIVE_READ_ONLY).then_some(true),
        ..MountBindOptions::default()
    };
    Ok(EngineMount {
        source: Some(text(source)?),
        target: Some(text(target)?),
        typ: Some(MountType::BIND),
        read_only: Some(read_only),
        bind_options: (options != MountBindOptions::default()).then_some(options),
        ..EngineMount::default()
    })
}

fn check_place(place: &Path) -> Result<(), ProvisionError> {
    let refuse = |reason: &str| Err(unsupported("mounts", &format!("{}: {reason}", place.display())));
    if has_dots(place) {
        return refuse("it has a '..'");
    }
    if Path::new(RUN_DIR).starts_with(place) || place.starts_with(RUN_DIR) {
        return refuse("the supervisor's own folder is there or below");
    }
    Ok(())
}

/// Whether a path goes up, which makes every comparison of its start meaningless.
pub(super) fn has_dots(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}
