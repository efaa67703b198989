//! What `local` can honour.

use super::NAME;
use stead_types::{ComputeConfig, NetworkPolicy, ProvisionError};
use stead_wire::TreeTracking;

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
pub fn check(config: &ComputeConfig) -> Result<(), ProvisionError> {
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
    if !config.mounts.is_empty() {
        return Err(unsupported("mounts", "it sees the host's files where they are"));
    }
    tree(config).map(drop)
}

/// The option `tree`: how trees are kept together. For tests and for finding faults.
pub fn tree(config: &ComputeConfig) -> Result<Option<TreeTracking>, ProvisionError> {
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

/// The name of a way to keep trees together, as the option has it.
pub fn tree_name(tree: TreeTracking) -> &'static str {
    match tree {
        TreeTracking::CgroupV2 => "cgroup2",
        TreeTracking::CgroupV1 => "cgroup1",
        TreeTracking::Reaper => "reaper",
    }
}
