//! What `native` can honour.

use super::NAME;
use stead_types::{ComputeConfig, InheritEnv, NetworkPolicy, ProvisionError};

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
    if let Some(option) = config.options.keys().next() {
        return Err(ProvisionError::Option {
            provider: NAME.to_owned(),
            option: option.clone(),
            reason: "it has no options".to_owned(),
        });
    }
    Ok(())
}
