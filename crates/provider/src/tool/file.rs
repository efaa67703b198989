//! A place as a file declares it, in TOML or JSON:
//!
//! ```toml
//! provider = "docker"
//! image = "alpine:3.20"
//! network = "none"
//! strict = true
//!
//! [tools.log]
//! argv = ["git", "log", "-n", "{{ n }}"]
//! timeout = "10s"
//! ```

use super::command::ToolCommand;
use super::error::ToolError;
use super::place::ToolPlace;
use super::template::TemplateError;
use crate::Provider;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stead_types::error::Code;
use stead_types::size::{parse_duration, parse_size};
use stead_types::{
    ComputeConfig, EnvMap, InheritEnv, InvalidInput, Mount, NetworkPolicy, Resources, Timeout,
};

/// A declared place. Unknown keys are errors.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceFile {
    /// Name of a registered provider.
    pub provider: String,
    /// See [`ComputeConfig::image`].
    #[serde(default)]
    pub image: Option<String>,
    /// See [`ComputeConfig::workdir`].
    #[serde(default)]
    pub workdir: Option<PathBuf>,
    /// See [`ComputeConfig::env`].
    #[serde(default)]
    pub env: EnvMap,
    /// See [`ComputeConfig::inherit_env`]. Default here: minimal, where the provider runs on the host.
    #[serde(default)]
    pub inherit_env: Option<InheritEnv>,
    /// See [`ComputeConfig::network`]: `"none"`, `"full"`, a list of domains, or a table with `mode`.
    #[serde(default, deserialize_with = "network")]
    pub network: Option<NetworkPolicy>,
    /// See [`ComputeConfig::user`].
    #[serde(default)]
    pub user: Option<String>,
    /// See [`ComputeConfig::mounts`].
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Whether tools without a command are refused. Default: no.
    #[serde(default)]
    pub strict: bool,
    /// When a call is ended, unless its tool says otherwise: seconds, or text like `"500ms"`. Default 60 s.
    #[serde(default, deserialize_with = "duration")]
    pub timeout: Option<Duration>,
    /// See [`ComputeConfig::resources`]; sizes are bytes or text like `"512MiB"`.
    #[serde(default)]
    pub resources: PlaceResources,
    /// See [`ComputeConfig::options`].
    #[serde(default)]
    pub options: serde_json::Map<String, serde_json::Value>,
    /// The tools.
    #[serde(default)]
    pub tools: BTreeMap<String, ToolEntry>,
}

/// Limits as a file writes them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlaceResources {
    /// See [`Resources::cpu`].
    #[serde(default)]
    pub cpu: Option<f64>,
    /// See [`Resources::memory`].
    #[serde(default, deserialize_with = "size")]
    pub memory: Option<u64>,
    /// See [`Resources::pids`].
    #[serde(default)]
    pub pids: Option<u64>,
    /// See [`Resources::disk`].
    #[serde(default, deserialize_with = "size")]
    pub disk: Option<u64>,
}

/// A declared tool: `command` (shell text) or `argv` (a list), exactly one of them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolEntry {
    /// Shell text with placeholders; see [`ToolCommand::shell`].
    #[serde(default)]
    pub command: Option<String>,
    /// Arguments with placeholders; see [`ToolCommand::argv`].
    #[serde(default)]
    pub argv: Option<Vec<String>>,
    /// Text for standard input with placeholders. Default: empty and closed.
    #[serde(default)]
    pub stdin: Option<String>,
    /// Seconds, or text like `"500ms"`. Default: the place's.
    #[serde(default, deserialize_with = "duration")]
    pub timeout: Option<Duration>,
    /// Variables on top of the place's.
    #[serde(default)]
    pub env: EnvMap,
}

/// Why a declared place is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceFileError {
    /// A key that belongs to no tool.
    #[error("the place's configuration is invalid")]
    Config {
        /// Which rule.
        source: InvalidInput,
    },
    /// A tool has neither `command` nor `argv`, or both.
    #[error("tool '{tool}' needs exactly one of command and argv")]
    OneCommand {
        /// The tool.
        tool: String,
    },
    /// A tool's template or settings.
    #[error("the command of tool '{tool}' cannot be declared")]
    Tool {
        /// The tool.
        tool: String,
        /// What is wrong.
        source: TemplateError,
    },
}

impl Code for PlaceFileError {
    fn code(&self) -> &'static str {
        match self {
            Self::Config { .. } | Self::OneCommand { .. } => "place_file_invalid",
            Self::Tool { source, .. } => source.code(),
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Config { .. } => "Correct the value.".to_owned(),
            Self::OneCommand { tool } => {
                format!("Give [tools.{tool}] either command (shell text) or argv (a list).")
            }
            Self::Tool { source, .. } => source.remedy(),
        }
    }
}

impl PlaceFile {
    /// The configuration of the instance, checked.
    pub fn config(&self) -> Result<ComputeConfig, PlaceFileError> {
        let PlaceResources {
            cpu,
            memory,
            pids,
            disk,
        } = self.resources;
        let config = ComputeConfig {
            image: self.image.clone(),
            workdir: self.workdir.clone(),
            env: self.env.clone(),
            inherit_env: self.inherit_env,
            network: self.network.clone(),
            user: self.user.clone(),
            mounts: self.mounts.clone(),
            timeout: self.timeout.map(Timeout::After),
            resources: Resources {
                cpu,
                memory,
                pids,
                disk,
            },
            options: self.options.clone(),
            ..ComputeConfig::default()
        };
        config
            .check()
            .map_err(|source| PlaceFileError::Config { source })?;
        Ok(config)
    }

    /// The commands of all tools, checked.
    pub fn commands(&self) -> Result<Vec<(String, ToolCommand)>, PlaceFileError> {
        self.tools
            .iter()
            .map(|(tool, entry)| Ok((tool.clone(), entry.command(tool)?)))
            .collect()
    }

    /// The place, on the provider that `provider` was resolved to. Nothing is brought up yet.
    pub fn place(&self, provider: Arc<dyn Provider>) -> Result<ToolPlace, PlaceFileError> {
        let place = ToolPlace::new(provider)
            .config(self.config()?)
            .strict(self.strict);
        for (tool, command) in self.commands()? {
            place.set_command(&tool, command).map_err(|error| match error {
                ToolError::Template { tool, source } => PlaceFileError::Tool { tool, source },
                // Declaring has no other way to fail.
                other => PlaceFileError::Tool {
                    tool,
                    source: TemplateError::Settings {
                        reason: other.to_string(),
                    },
                },
            })?;
        }
        Ok(place)
    }
}

impl ToolEntry {
    fn command(&self, tool: &str) -> Result<ToolCommand, PlaceFileError> {
        let bad = |source| PlaceFileError::Tool {
            tool: tool.to_owned(),
            source,
        };
        let mut command = match (&self.command, &self.argv) {
            (Some(text), None) => ToolCommand::shell(text).map_err(bad)?,
            (None, Some(argv)) => ToolCommand::argv(argv).map_err(bad)?,
            (None, None) | (Some(_), Some(_)) => {
                return Err(PlaceFileError::OneCommand {
                    tool: tool.to_owned(),
                });
            }
        };
        if let Some(text) = &self.stdin {
            command = command.stdin(text).map_err(bad)?;
        }
        if let Some(after) = self.timeout {
            command = command.timeout(after);
        }
        for (name, value) in self.env.iter() {
            command = command.env(name, value);
        }
        command.check().map_err(bad)?;
        Ok(command)
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or text with a unit")]
enum Written {
    Whole(u64),
    Decimal(f64),
    Text(String),
}

fn network<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NetworkPolicy>, D::Error> {
    use serde::de::Error;
    let policy = match Option::<serde_json::Value>::deserialize(deserializer)? {
        None | Some(serde_json::Value::Null) => return Ok(None),
        Some(serde_json::Value::String(text)) => text.parse().map_err(D::Error::custom)?,
        Some(list @ serde_json::Value::Array(_)) => NetworkPolicy::Allow {
            domains: serde_json::from_value(list).map_err(D::Error::custom)?,
        },
        Some(table) => serde_json::from_value(table).map_err(D::Error::custom)?,
    };
    policy.check().map_err(D::Error::custom)?;
    Ok(Some(policy))
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let read = match Option::<Written>::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Written::Whole(seconds)) => Ok(Duration::from_secs(seconds)),
        Some(Written::Decimal(seconds)) => parse_duration(&seconds.to_string()),
        Some(Written::Text(text)) => parse_duration(&text),
    };
    read.map(Some).map_err(serde::de::Error::custom)
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let read = match Option::<Written>::deserialize(deserializer)? {
        None => return Ok(None),
        Some(Written::Whole(bytes)) => Ok(bytes),
        Some(Written::Decimal(bytes)) => parse_size(&bytes.to_string()),
        Some(Written::Text(text)) => parse_size(&text),
    };
    read.map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
