//! Configuration of an instance and of one command in it.

use crate::command::{InvalidInput, check_nul};
use crate::env::EnvMap;
use crate::network::NetworkPolicy;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Default of [`ComputeConfig::timeout`], as the source document has it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Default of [`ComputeConfig::grace`]: time between SIGTERM and SIGKILL.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// Default of [`ComputeConfig::max_output_bytes`], for each stream.
pub const DEFAULT_MAX_OUTPUT: u64 = 10 << 20;

/// What a command reads as standard input, unless it is empty and closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stdin {
    /// These bytes and then the end.
    Bytes(Vec<u8>),
    /// What the caller of `spawn` writes, until it closes it. Not for `execute`.
    Stream,
}

/// When a command is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timeout {
    /// After so long.
    After(Duration),
    /// Not by us.
    Never,
}

/// Limits of an instance. What is `None` is the provider's default.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Processors; 0.5 is half of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Bytes of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Processes and threads at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Bytes of the writable layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
}

impl Resources {
    /// The names of the limits that are asked for.
    pub fn named(&self) -> impl Iterator<Item = &'static str> {
        [
            ("cpu", self.cpu.is_some()),
            ("memory", self.memory.is_some()),
            ("pids", self.pids.is_some()),
            ("disk", self.disk.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, asked)| asked.then_some(name))
    }

    /// Refuses limits that mean nothing.
    pub fn check(&self) -> Result<(), InvalidInput> {
        let out = |what: &str, reason: &str| {
            Err(InvalidInput::OutOfRange {
                what: what.to_owned(),
                reason: reason.to_owned(),
            })
        };
        match self {
            // Sandbox declarations have the same range.
            Self { cpu: Some(cpu), .. } if !(0.001..=1024.0).contains(cpu) => out("cpu", "0.001 to 1024"),
            Self {
                memory: Some(..6_291_456),
                ..
            } => out("memory", "at least 6 MiB, as container engines need"),
            Self {
                memory: Some(bytes), ..
            } if i64::try_from(*bytes).is_err() => out("memory", "too large"),
            Self { pids: Some(pids), .. } if !(1..=4_194_304).contains(pids) => out("pids", "1 to 4194304"),
            Self { disk: Some(0), .. } => out("disk", "at least 1"),
            _ => Ok(()),
        }
    }
}

/// A directory or file of the host that the caller grants to a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Absolute path on the host.
    pub host: PathBuf,
    /// Absolute path in the place.
    pub place: PathBuf,
    /// Whether the place may only read.
    #[serde(default)]
    pub read_only: bool,
}

/// Which variables of the host a `local` command gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InheritEnv {
    /// All of the calling process.
    All,
    /// PATH, HOME, LANG, TERM, USER and TMPDIR.
    Minimal,
    /// None.
    None,
}

/// What becomes of the rest of a command's tree when its leader exits by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Descendants {
    /// It is killed before the result is returned.
    #[default]
    Sweep,
    /// It lives until it ends or the instance goes.
    Keep,
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub cols: u16,
}

/// Configuration of an instance, or of one command. Given to `provision` it holds for every command of
/// the instance; given to `execute` it overrides that key by key: `env` merges, the rest replaces.
///
/// What a provider cannot honour is an error at provision, never ignored; the same holds for an
/// instance's keys (image, resources, network, mounts, detached, inherit_env, options) given to `execute`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ComputeConfig {
    /// Image, where the provider has such a concept.
    pub image: Option<String>,
    /// Working directory, absolute in the place.
    pub workdir: Option<PathBuf>,
    /// Environment for every command.
    pub env: EnvMap,
    /// When a command is ended. Default [`DEFAULT_TIMEOUT`].
    pub timeout: Option<Timeout>,
    /// Standard input. Default: empty and closed.
    pub stdin: Option<Stdin>,
    /// Limits of the instance.
    pub resources: Resources,
    /// What the place may reach. Default: the provider's, and they differ: `native` gives none, `docker` the
    /// engine's default network, `local` always has the host's. Say [`NetworkPolicy::None`] for code that one
    /// did not write; the command `stead run` does so by itself.
    pub network: Option<NetworkPolicy>,
    /// Bytes that are kept of each stream. Default [`DEFAULT_MAX_OUTPUT`].
    pub max_output_bytes: Option<u64>,
    /// `name`, `uid`, `name:group` or `uid:gid`. Default: the image's, or the caller.
    pub user: Option<String>,
    /// Provider-specific JSON, passed through untouched.
    pub options: serde_json::Map<String, serde_json::Value>,
    /// Time between SIGTERM and SIGKILL. Default [`DEFAULT_GRACE`].
    pub grace: Option<Duration>,
    /// What becomes of descendants. Default [`Descendants::Sweep`].
    pub descendants: Option<Descendants>,
    /// Which variables of the host a `local` command gets. Default [`InheritEnv::All`] for the library.
    pub inherit_env: Option<InheritEnv>,
    /// What the caller grants of the host.
    pub mounts: Vec<Mount>,
    /// Whether the instance outlives the process that provisioned it. Default: no; then it is gone
    /// within 60 s of that process's end, by whatever signal.
    pub detached: bool,
    /// A terminal instead of pipes, for `spawn` and `execute`.
    pub tty: Option<TerminalSize>,
}

impl ComputeConfig {
    /// The default configuration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Self::image`].
    pub fn image(mut self, image: impl Into<String>) -> Self {
        self.image = Some(image.into());
        self
    }

    /// Sets [`Self::workdir`].
    pub fn workdir(mut self, workdir: impl Into<PathBuf>) -> Self {
        self.workdir = Some(workdir.into());
        self
    }

    /// Sets one variable of [`Self::env`].
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.set(name, value);
        self
    }

    /// Sets [`Self::timeout`].
    pub fn timeout(mut self, after: Duration) -> Self {
        self.timeout = Some(Timeout::After(after));
        self
    }

    /// Sets [`Self::stdin`].
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(Stdin::Bytes(bytes.into()));
        self
    }

    /// Sets [`Self::network`].
    pub fn network(mut self, policy: NetworkPolicy) -> Self {
        self.network = Some(policy);
        self
    }

    /// Sets [`Self::user`].
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets one of [`Self::options`].
    pub fn option(mut self, name: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }

    /// Checks what holds whatever the provider.
    pub fn check(&self) -> Result<(), InvalidInput> {
        self.env.check()?;
        self.resources.check()?;
        if let Some(workdir) = &self.workdir {
            check_path("the working directory", workdir)?;
        }
        for mount in &self.mounts {
            check_path("a mount's host path", &mount.host)?;
            check_path("a mount's place path", &mount.place)?;
        }
        if let Some(network) = &self.network {
            network.check()?;
        }
        if let Some(user) = &self.user {
            if user.is_empty() {
                return Err(InvalidInput::OutOfRange {
                    what: "the user".to_owned(),
                    reason: "a name or a number; leave it out for the default".to_owned(),
                });
            }
            check_nul("the user", user.as_ref())?;
        }
        if self.timeout == Some(Timeout::After(Duration::ZERO)) {
            let reason = "more than zero".to_owned();
            return Err(InvalidInput::OutOfRange {
                what: "timeout".to_owned(),
                reason,
            });
        }
        Ok(())
    }

    /// The configuration of one command: this one, with `command`'s keys on top.
    pub fn overridden_by(&self, command: &ComputeConfig) -> ComputeConfig {
        let mut env = self.env.clone();
        env.merge(&command.env);
        let mut options = self.options.clone();
        options.extend(command.options.clone());
        ComputeConfig {
            image: command.image.clone().or_else(|| self.image.clone()),
            workdir: command.workdir.clone().or_else(|| self.workdir.clone()),
            env,
            timeout: command.timeout.or(self.timeout),
            stdin: command.stdin.clone().or_else(|| self.stdin.clone()),
            resources: self.resources,
            network: command.network.clone().or_else(|| self.network.clone()),
            max_output_bytes: command.max_output_bytes.or(self.max_output_bytes),
            user: command.user.clone().or_else(|| self.user.clone()),
            options,
            grace: command.grace.or(self.grace),
            descendants: command.descendants.or(self.descendants),
            inherit_env: command.inherit_env.or(self.inherit_env),
            mounts: self.mounts.clone(),
            detached: self.detached,
            tty: command.tty.or(self.tty),
        }
    }

    /// The first key that belongs to an instance and not to a command, if any is given.
    pub fn instance_key(&self) -> Option<&'static str> {
        [
            ("image", self.image.is_some()),
            ("resources", self.resources != Resources::default()),
            ("network", self.network.is_some()),
            ("mounts", !self.mounts.is_empty()),
            ("detached", self.detached),
            ("inherit_env", self.inherit_env.is_some()),
            ("options", !self.options.is_empty()),
        ]
        .into_iter()
        .find_map(|(name, given)| given.then_some(name))
    }
}

fn check_path(what: &str, path: &Path) -> Result<(), InvalidInput> {
    check_nul(what, path.as_os_str())?;
    if !path.is_absolute() {
        return Err(InvalidInput::RelativePath {
            path: path.display().to_string(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_overrides_key_by_key() {
        let instance = ComputeConfig::new()
            .env("A", "1")
            .env("B", "2")
            .workdir("/a")
            .image("x");
        let command = ComputeConfig::new().env("B", "3").timeout(Duration::from_secs(1));
        let both = instance.overridden_by(&command);
        assert_eq!(both.env, [("A", "1"), ("B", "3")].into_iter().collect());
        assert_eq!(both.workdir, Some("/a".into()));
        assert_eq!(both.timeout, Some(Timeout::After(Duration::from_secs(1))));
        assert_eq!(instance.overridden_by(&ComputeConfig::new()), instance);
    }

    #[test]
    fn bad_values_are_refused() {
        assert_eq!(ComputeConfig::new().workdir("/a").check(), Ok(()));
        assert!(ComputeConfig::new().workdir("a").check().is_err());
        assert!(ComputeConfig::new().workdir("/a\0").check().is_err());
        assert!(ComputeConfig::new().env("A=", "").check().is_err());
        assert!(ComputeConfig::new().timeout(Duration::ZERO).check().is_err());
        for cpu in [0.0, -1.0, f64::NAN, f64::INFINITY, 2000.0] {
            assert!(
                Resources {
                    cpu: Some(cpu),
                    ..Resources::default()
                }
                .check()
                .is_err(),
                "{cpu}"
            );
        }
        assert!(
            Resources {
                memory: Some(1),
                ..Resources::default()
            }
            .check()
            .is_err()
        );
        assert!(
            Resources {
                pids: Some(0),
                ..Resources::default()
            }
            .check()
            .is_err()
        );
    }
}
