//! What `native` can honour.

use super::NAME;
use crate::grants::engine_sockets;
use std::path::{Component, Path};
use stead_confine::Grant;
use stead_types::{Axes, Axis, ComputeConfig, InheritEnv, NetworkPolicy, ProvisionError};

fn unsupported(key: &str, reason: &str) -> ProvisionError {
    ProvisionError::Unsupported {
        provider: NAME.to_owned(),
        key: key.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Refuses what it cannot honour.
pub fn check(config: &ComputeConfig, is_root: bool) -> Result<(), ProvisionError> {
    config.check().map_err(|source| ProvisionError::Invalid {
        provider: NAME.to_owned(),
        source,
    })?;
    if config.image.is_some() {
        return Err(unsupported(
            "image",
            "its programs are the host's; images are not built yet",
        ));
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
            provider: NAME.to_owned(),
            user: user.to_owned(),
            reason: "a place has the numbers below 65536".to_owned(),
        });
    }
    config
        .mounts
        .iter()
        .try_for_each(|mount| check_place(&mount.place))?;
    consent(config).map(drop)
}

/// Whether a number in `uid` or `uid:gid` is none of the place's.
fn is_outside(user: &str) -> bool {
    user.split(':')
        .any(|part| part.parse::<u64>().is_ok_and(|number| number >= 65_536))
}

/// Directories that the place makes for itself.
const OWN: [&str; 3] = ["/dev", "/proc", "/sys"];

fn check_place(place: &Path) -> Result<(), ProvisionError> {
    let refuse = |reason: &str| Err(unsupported("mounts", &format!("{}: {reason}", place.display())));
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

fn consent(config: &ComputeConfig) -> Result<bool, ProvisionError> {
    let option = |option: &str, reason: &str| ProvisionError::Option {
        provider: NAME.to_owned(),
        option: option.to_owned(),
        reason: reason.to_owned(),
    };
    if let Some(other) = config.options.keys().find(|name| *name != CONSENT) {
        return Err(option(other, "the only option is i_accept_weaker_isolation"));
    }
    match config.options.get(CONSENT) {
        None => Ok(false),
        Some(value) => value
            .as_bool()
            .ok_or_else(|| option(CONSENT, "it is true or false")),
    }
}

/// What is known not to hold of a place with these grants. Without consent such a grant is refused.
pub fn weakened(config: &ComputeConfig, grants: &[Grant]) -> Result<Axes, ProvisionError> {
    let consent = consent(config)?;
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
                provider: NAME.to_owned(),
                option: format!("mounts={}", grant.host.display()),
            });
        }
        lost.iter().for_each(|axis| axes.set(*axis, Some(false)));
    }
    Ok(axes)
}
