//! An instance that was detached, found again by another process.

use crate::link::{Dial, DialPath, Link};
use crate::place::Place;
use crate::state::{ProcessIdentity, State};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;
use stead_types::{ComputeConfig, Descendants, InstanceId, TerminalSize, Timeout};

/// What provision said for every command of an instance; whoever adopts it says the same. Working directory
/// and user are the supervisor's own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CommandDefaults {
    env: Vec<(OsString, OsString)>,
    /// The inner `None` is a command that is never ended.
    timeout: Option<Option<Duration>>,
    grace: Option<Duration>,
    max_output_bytes: Option<u64>,
    descendants: Option<Descendants>,
    tty: Option<TerminalSize>,
}

impl CommandDefaults {
    /// Of an instance that outlives its owner; nothing of any other, because nobody will ask.
    pub fn of_detached(config: &ComputeConfig) -> Self {
        if !config.detached {
            return Self::default();
        }
        Self {
            env: config
                .env
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            timeout: config.timeout.map(|timeout| match timeout {
                Timeout::After(after) => Some(after),
                Timeout::Never => None,
            }),
            grace: config.grace,
            max_output_bytes: config.max_output_bytes,
            descendants: config.descendants,
            tty: config.tty,
        }
    }
}

impl From<CommandDefaults> for ComputeConfig {
    fn from(defaults: CommandDefaults) -> Self {
        Self {
            env: defaults.env.into_iter().collect(),
            timeout: defaults
                .timeout
                .map(|timeout| timeout.map_or(Timeout::Never, Timeout::After)),
            grace: defaults.grace,
            max_output_bytes: defaults.max_output_bytes,
            descendants: defaults.descendants,
            tty: defaults.tty,
            ..Self::default()
        }
    }
}

/// Connects to the supervisor of an instance that was detached, in the first of these ways that answers. A newer
/// connection fences the older, so one that has another living owner is left alone.
pub async fn adopt(
    state: &State,
    provider: &str,
    id: &InstanceId,
    ways: Vec<Arc<dyn Dial>>,
) -> Option<Place> {
    let folder = state.find(id)?;
    let record = folder.record().ok()?;
    let is_own = record.owner == ProcessIdentity::current().ok()?;
    if record.instance.provider != provider || !record.detached || (record.owner.is_alive() && !is_own) {
        return None;
    }
    for dial in ways {
        let Ok(transport) = dial.dial().await else {
            continue;
        };
        let link = Link::establish(transport, dial, folder.key().ok()?, 1)
            .await
            .ok()?;
        return Some(Place {
            instance: record.instance,
            config: record.commands.into(),
            link,
        });
    }
    None
}

/// Through the socket in the instance's folder.
pub fn socket(state: &State, id: &InstanceId) -> Option<Arc<dyn Dial>> {
    Some(Arc::new(DialPath(state.find(id)?.socket())))
}
