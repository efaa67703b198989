//! Places with the host's programs as their root view, whichever provider walls them in: what of a configuration they
//! can honour, and what policy it makes.

use super::failed;
use crate::grants::engine_sockets;
use crate::state::InstanceFolder;
use std::ffi::OsString;
use std::path::{Component, Path};
use stead_confine::{ControlGroup, Grant, Limits, Network, Policy};
use stead_types::{Axes, Axis, ComputeConfig, InheritEnv, NetworkPolicy, ProvisionError};

/// Where commands start, and the only directory besides those in memory that they can write.
pub const WORKSPACE: &str = "/workspace";

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

/// The environment of such a place.
pub fn env() -> Vec<(OsString, OsString)> {
    ENV.map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .to_vec()
}

/// A key that the provider cannot honour.
pub fn unsupported(provider: &str, key: &str, reason: &str) -> ProvisionError {
    ProvisionError::Unsupported {
        provider: provider.to_owned(),
        key: key.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Refuses what it cannot honour. `options` are those that the provider has besides the consent.
pub fn check(
    provider: &str,
    config: &ComputeConfig,
    is_root: bool,
    options: &[&str],
) -> Result<(), ProvisionError> {
    let unsupported = |key: &str, reason: &str| unsupported(provider, key, reason);
    config.check().map_err(|source| ProvisionError::Invalid {
        provider: provider.to_owned(),
        source,
    })?;
    if config.image.is_some() && !(cfg!(feature = "image") && provider == "native") {
        return Err(unsupported("image", "its programs are the host's"));
    }
    if matches!(config.inherit_env, Some(InheritEnv::All | InheritEnv::Minimal)) {
        return Err(unsupported(
            "inherit_env",
            "a place gets nothing of the host's environment",
        ));
    }
    if matches!(config.network, Some(NetworkPolicy::Allow { .. })) {
        return Err(unsupported(
            "network",
            "it has none or the host's; a list needs the proxy, which is not built yet",
        ));
    }
    if let Some(user) = &config.user
        && !is_root
        && !matches!(user.as_str(), "root" | "0" | "root:root" | "0:0")
    {
        return Err(unsupported(
            "user",
            "an ordinary user's places have one user, which is their root",
        ));
    }
    if let Some(user) = config.user.as_deref().filter(|user| is_outside(user)) {
        return Err(ProvisionError::User {
            provider: provider.to_owned(),
            user: user.to_owned(),
            reason: "a place has the numbers below 65536".to_owned(),
        });
    }
    config
        .mounts
        .iter()
        .try_for_each(|mount| check_place(provider, &mount.place))?;
    let known = |name: &str| name == CONSENT || options.contains(&name);
    if let Some(other) = config.options.keys().find(|name| !known(name)) {
        let all = [options, &[CONSENT]].concat().join(", ");
        return Err(option(provider, other, &format!("there is only: {all}")));
    }
    consent(provider, config).map(drop)
}

/// Whether a number in `uid` or `uid:gid` is none of the place's.
fn is_outside(user: &str) -> bool {
    user.split(':')
        .any(|part| part.parse::<u64>().is_ok_and(|number| number >= 65_536))
}

/// Directories that the place makes for itself.
const OWN: [&str; 4] = ["/dev", "/proc", "/sys", "/run/stead"];

fn check_place(provider: &str, place: &Path) -> Result<(), ProvisionError> {
    let refuse = |reason: &str| {
        Err(unsupported(
            provider,
            "mounts",
            &format!("{}: {reason}", place.display()),
        ))
    };
    if place.components().any(|part| part == Component::ParentDir) {
        return refuse("it has a '..'");
    }
    if place.components().count() < 2 {
        return refuse("the root of a place is its own");
    }
    if OWN.iter().any(|own| place.starts_with(own)) {
        return refuse("the place has its own there");
    }
    Ok(())
}

/// The option by which a caller says that a place may be weaker than one expects.
const CONSENT: &str = "i_accept_weaker_isolation";

/// An option with a wrong value.
pub fn option(provider: &str, option: &str, reason: &str) -> ProvisionError {
    ProvisionError::Option {
        provider: provider.to_owned(),
        option: option.to_owned(),
        reason: reason.to_owned(),
    }
}

fn consent(provider: &str, config: &ComputeConfig) -> Result<bool, ProvisionError> {
    match config.options.get(CONSENT) {
        None => Ok(false),
        Some(value) => value
            .as_bool()
            .ok_or_else(|| option(provider, CONSENT, "it is true or false")),
    }
}

/// What is known not to hold of a place with these grants. Without consent such a grant is refused.
pub fn weakened(provider: &str, config: &ComputeConfig, grants: &[Grant]) -> Result<Axes, ProvisionError> {
    let consent = consent(provider, config)?;
    let sockets = engine_sockets();
    let mut axes = Axes::UNKNOWN;
    if config.network == Some(NetworkPolicy::Full) {
        axes.set(Axis::NetworkRestricted, Some(false));
    }
    for (mount, grant) in config.mounts.iter().zip(grants) {
        let Some(lost) = crate::grants::weakened(&mount.host, &grant.host, &sockets) else {
            continue;
        };
        if !consent {
            return Err(ProvisionError::WeakerIsolation {
                provider: provider.to_owned(),
                option: format!("mounts={}", grant.host.display()),
            });
        }
        lost.iter().for_each(|axis| axes.set(*axis, Some(false)));
    }
    Ok(axes)
}

/// The policy of an instance, whose limits `groups` hold.
pub fn policy(
    provider: &str,
    folder: &InstanceFolder,
    config: &ComputeConfig,
    groups: Vec<ControlGroup>,
) -> Result<Policy, ProvisionError> {
    Ok(Policy {
        hostname: hostname(folder),
        stage: folder.path().join("root"),
        workspace: folder.work(),
        image: None,
        grants: grants(provider, config)?,
        network: match config.network {
            Some(NetworkPolicy::Full) => Network::Full,
            _ => Network::None,
        },
        limits: Limits {
            disk: config.resources.disk,
            open_files: None,
        },
        groups,
    })
}

/// Short enough for a prompt, and unlike those of its neighbours: the end of the id is random.
fn hostname(folder: &InstanceFolder) -> String {
    let id = folder.id().to_string();
    let tail: Vec<char> = id.chars().rev().take(12).collect();
    tail.into_iter().rev().collect()
}

fn grants(provider: &str, config: &ComputeConfig) -> Result<Vec<Grant>, ProvisionError> {
    let grant = |mount: &stead_types::Mount| {
        let host = mount.host.canonicalize().map_err(|error| {
            failed(
                provider,
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
