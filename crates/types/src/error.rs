//! Errors: one enum an operation. Each variant says what it is about and carries its source; `code()` is
//! stable and has a page in docs/errors; `remedy()` says what to do.

use crate::command::InvalidInput;
use crate::instance::InstanceId;
use serde::Serialize;

/// The source of an error, kept whole.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// What every public error answers.
pub trait Code: std::error::Error {
    /// Stable, snake_case; docs/errors/CODE.md explains it.
    fn code(&self) -> &'static str;
    /// One sentence: what to do.
    fn remedy(&self) -> String;
    /// Whether the same call may pass later without any change.
    fn retryable(&self) -> bool {
        false
    }
}

/// Why a provider cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Stable, snake_case, as of errors.
    pub code: &'static str,
    /// What is missing, one sentence.
    pub reason: String,
    /// What to do about it, one sentence.
    pub remedy: String,
}

/// Whether a provider can be used here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Availability {
    /// It can.
    Available,
    /// It cannot.
    Unavailable(Missing),
}

impl Availability {
    /// Whether it can be used.
    pub fn is_available(&self) -> bool {
        matches!(self, Self::Available)
    }

    /// Shorthand for an unavailable provider.
    pub fn missing(code: &'static str, reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unavailable(Missing {
            code,
            reason: reason.into(),
            remedy: remedy.into(),
        })
    }
}

/// Why an instance could not be brought up. Nothing was left behind.
#[derive(Debug, thiserror::Error)]
pub enum ProvisionError {
    /// The provider cannot be used here.
    #[error("{provider} is not available: {}", .missing.reason)]
    Unavailable {
        /// The provider.
        provider: String,
        /// Why not.
        missing: Missing,
    },
    /// The configuration asks for what this provider cannot honour.
    #[error("{provider} cannot honour {key}: {reason}")]
    Unsupported {
        /// The provider.
        provider: String,
        /// The key.
        key: String,
        /// Why not.
        reason: String,
    },
    /// The configuration breaks a rule.
    #[error("the configuration for {provider} is invalid")]
    Invalid {
        /// The provider.
        provider: String,
        /// Which rule.
        source: InvalidInput,
    },
    /// An option of the provider is unknown or has a wrong value.
    #[error("{provider} does not take the option {option}: {reason}")]
    Option {
        /// The provider.
        provider: String,
        /// Its path in the options.
        option: String,
        /// What is wrong.
        reason: String,
    },
    /// An option weakens the isolation and the consent is missing.
    #[error("the option {option} of {provider} weakens the isolation")]
    WeakerIsolation {
        /// The provider.
        provider: String,
        /// The option.
        option: String,
    },
    /// The image is not there.
    #[error("{provider} has no image {image}")]
    ImageMissing {
        /// The provider.
        provider: String,
        /// The image.
        image: String,
    },
    /// The image could not be pulled.
    #[error("{provider} could not pull the image {image}: {reason}")]
    PullFailed {
        /// The provider.
        provider: String,
        /// The image.
        image: String,
        /// What the registry or the engine said.
        reason: String,
    },
    /// The user of the configuration does not exist in the place or cannot be taken on.
    #[error("{provider} cannot run as the user {user}: {reason}")]
    User {
        /// The provider.
        provider: String,
        /// The user.
        user: String,
        /// Why not.
        reason: String,
    },
    /// The working directory cannot be used.
    #[error("{provider} cannot use the working directory {workdir}: {reason}")]
    Workdir {
        /// The provider.
        provider: String,
        /// The directory.
        workdir: String,
        /// Why not.
        reason: String,
    },
    /// The place did not answer in time.
    #[error("{provider} did not bring up instance {instance} within {seconds} s")]
    TimedOut {
        /// The provider.
        provider: String,
        /// The instance, which was removed again.
        instance: InstanceId,
        /// The limit.
        seconds: u64,
    },
    /// Something else failed.
    #[error("{provider} failed to provision: {reason}")]
    Failed {
        /// The provider.
        provider: String,
        /// What failed.
        reason: String,
        /// Where it came from.
        source: Option<Source>,
    },
}

impl Code for ProvisionError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unavailable { missing, .. } => missing.code,
            Self::Unsupported { .. } => "config_unsupported",
            Self::Invalid { .. } => "config_invalid",
            Self::Option { .. } => "option_invalid",
            Self::WeakerIsolation { .. } => "weaker_isolation",
            Self::ImageMissing { .. } => "image_missing",
            Self::PullFailed { .. } => "image_pull_failed",
            Self::User { .. } => "user_invalid",
            Self::Workdir { .. } => "workdir_invalid",
            Self::TimedOut { .. } => "provision_timed_out",
            Self::Failed { .. } => "provision_failed",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Unavailable { missing, .. } => missing.remedy.clone(),
            Self::Unsupported { key, .. } => {
                format!("Leave {key} out, change it, or choose a provider that honours it.")
            }
            Self::Invalid { .. } => "Correct the value; nothing was started.".to_owned(),
            Self::Option { .. } => {
                "Correct or remove the option; docs/guides/providers.md has the list.".to_owned()
            }
            Self::WeakerIsolation { .. } => {
                "Remove the option, or set i_accept_weaker_isolation to true if that is what you want."
                    .to_owned()
            }
            Self::ImageMissing { image, .. } => {
                format!("Pull it (docker pull {image}) or set image_pull_policy to if_missing.")
            }
            Self::PullFailed { .. } => {
                "Check the image's name, the network and the registry's credentials.".to_owned()
            }
            Self::User { .. } => "Name a user that the image has, or a uid or uid:gid.".to_owned(),
            Self::Workdir { .. } => "Name a directory that exists there or can be made.".to_owned(),
            Self::TimedOut { .. } => "Try again; if it stays so, look at the provider's own log.".to_owned(),
            Self::Failed { .. } => {
                "Correct what the reason names, or try again; nothing was left behind.".to_owned()
            }
        }
    }

    fn retryable(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Unavailable { .. })
    }
}

/// Why a command has no result.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// No such instance.
    #[error("there is no instance {instance}")]
    NoInstance {
        /// The id.
        instance: InstanceId,
    },
    /// The command or its configuration breaks a rule. Nothing was started.
    #[error("the command for {instance} is invalid")]
    Invalid {
        /// The instance.
        instance: InstanceId,
        /// Which rule.
        source: InvalidInput,
    },
    /// A key that cannot be given for one command. Nothing was started.
    #[error("{key} cannot be given for one command of {instance}: {reason}")]
    Unsupported {
        /// The instance.
        instance: InstanceId,
        /// The key.
        key: String,
        /// Why.
        reason: String,
    },
    /// The command could not be started: its user, its working directory or the system's limits.
    #[error("the command on {instance} could not be started: {what}")]
    LaunchFailed {
        /// The instance.
        instance: InstanceId,
        /// What failed.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// Shell text was given, but the place has no `/bin/sh`.
    #[error("the place {instance} has no /bin/sh to run shell text")]
    NoShell {
        /// The instance.
        instance: InstanceId,
    },
    /// The supervisor or the instance died, or its answers cannot be trusted. The command ran or may
    /// have; its end is not known.
    #[error("the command on {instance} was lost: {reason}")]
    Lost {
        /// The instance.
        instance: InstanceId,
        /// What was seen.
        reason: String,
    },
    /// The command was ended because its caller asked for it.
    #[error("the command on {instance} was cancelled")]
    Cancelled {
        /// The instance.
        instance: InstanceId,
    },
    /// Part of the command's tree withstood SIGKILL.
    #[error("processes of the command on {instance} could not be ended")]
    TreeRemains {
        /// The instance.
        instance: InstanceId,
    },
    /// Input, a signal or a size came after the program's end, or there is nothing to receive it.
    #[error("the command on {instance} does not take this: {reason}")]
    NotRunning {
        /// The instance.
        instance: InstanceId,
        /// Why.
        reason: String,
    },
    /// The provider failed before the command was started.
    #[error("the command on {instance} was not started: {reason}")]
    Failed {
        /// The instance.
        instance: InstanceId,
        /// What failed.
        reason: String,
        /// Where it came from.
        source: Option<Source>,
    },
}

impl Code for ExecuteError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoInstance { .. } => "instance_not_found",
            Self::Invalid { .. } => "command_invalid",
            Self::Unsupported { .. } => "config_unsupported",
            Self::LaunchFailed { .. } => "launch_failed",
            Self::NoShell { .. } => "no_shell",
            Self::Lost { .. } => "command_lost",
            Self::Cancelled { .. } => "command_cancelled",
            Self::TreeRemains { .. } => "tree_remains",
            Self::NotRunning { .. } => "command_not_running",
            Self::Failed { .. } => "execute_failed",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::NoInstance { .. } => "List the instances; provision a new one.",
            Self::Invalid { .. } => "Correct the value; nothing was started.",
            Self::Unsupported { .. } => "Give it when the instance is provisioned.",
            Self::LaunchFailed { source, .. } if source.kind() == std::io::ErrorKind::WouldBlock => {
                "The place is full: allow it more processes (pids), or run less at once."
            }
            Self::LaunchFailed { .. } => "Name a user and a working directory that the place has.",
            Self::NoShell { .. } => "Give the command as an argument vector (argv) instead of shell text.",
            Self::Lost { .. } => "Decide whether it is safe to run it again; Stead does not do so by itself.",
            Self::Cancelled { .. } => "Nothing to do; run it again if it is still wanted.",
            Self::TreeRemains { .. } => "Shut the instance down, and look for processes stuck in the kernel.",
            Self::NotRunning { .. } => "Start a new command.",
            Self::Failed { .. } => "Read the source of the error; the command did not run.",
        }
        .to_owned()
    }
}

/// Why an instance could not be torn down. It is in status `error`, and a later shutdown tries again.
#[derive(Debug, thiserror::Error)]
pub enum ShutdownError {
    /// It may still be running.
    #[error("{provider} could not remove instance {instance}; it may still be running: {reason}")]
    StillThere {
        /// The provider.
        provider: String,
        /// The instance.
        instance: InstanceId,
        /// What was seen.
        reason: String,
        /// Where it came from.
        source: Option<Source>,
    },
}

impl Code for ShutdownError {
    fn code(&self) -> &'static str {
        match self {
            Self::StillThere { .. } => "shutdown_failed",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::StillThere { instance, .. } => {
                format!("Shut it down again (stead rm {instance}) when the provider answers.")
            }
        }
    }

    fn retryable(&self) -> bool {
        true
    }
}

/// Why instances could not be listed. Never the same as "there are none".
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The provider did not answer.
    #[error("{provider} could not list its instances: {reason}")]
    Failed {
        /// The provider.
        provider: String,
        /// What was seen.
        reason: String,
        /// Where it came from.
        source: Option<Source>,
    },
}

impl Code for ListError {
    fn code(&self) -> &'static str {
        match self {
            Self::Failed { .. } => "list_failed",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Failed { provider, .. } => format!("Make sure that {provider} answers, and list again."),
        }
    }

    fn retryable(&self) -> bool {
        true
    }
}

/// Why something with a file of a place failed.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// No such instance.
    #[error("there is no instance {instance}")]
    NoInstance {
        /// The id.
        instance: InstanceId,
    },
    /// The path is not absolute or has a NUL byte.
    #[error("the path for {instance} is invalid")]
    Invalid {
        /// The instance.
        instance: InstanceId,
        /// Which rule.
        source: InvalidInput,
    },
    /// The place's system refused.
    #[error("{path} on {instance}: {source}")]
    Io {
        /// The instance.
        instance: InstanceId,
        /// The path.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// An archive is damaged or wants to leave its directory. Nothing was written.
    #[error("the archive for {instance} is refused: {reason}")]
    Archive {
        /// The instance.
        instance: InstanceId,
        /// What is wrong.
        reason: String,
    },
    /// The supervisor or the instance died.
    #[error("the connection to {instance} was lost: {reason}")]
    Lost {
        /// The instance.
        instance: InstanceId,
        /// What was seen.
        reason: String,
    },
    /// The provider has no access to files.
    #[error("{provider} has no access to files")]
    Unsupported {
        /// The provider.
        provider: String,
    },
}

impl Code for FilesError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoInstance { .. } => "instance_not_found",
            Self::Invalid { .. } => "path_invalid",
            Self::Io { .. } => "file_failed",
            Self::Archive { .. } => "archive_invalid",
            Self::Lost { .. } => "files_lost",
            Self::Unsupported { .. } => "files_unsupported",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::NoInstance { .. } => "List the instances; provision a new one.",
            Self::Invalid { .. } => "Give an absolute path without NUL bytes.",
            Self::Io { .. } => "Check the path, its permissions and the free space in the place.",
            Self::Archive { .. } => "Make the archive of relative paths that stay below its root.",
            Self::Lost { .. } => "Provision a new instance.",
            Self::Unsupported { .. } => "Move files with commands, or choose another provider.",
        }
        .to_owned()
    }
}

/// Why the memory of an instance was not saved, or not gone on from.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// No such instance.
    #[error("there is no instance {instance}")]
    NoInstance {
        /// The id.
        instance: InstanceId,
    },
    /// The provider cannot save memory.
    #[error("{provider} cannot save the memory of its instances")]
    Unsupported {
        /// The provider.
        provider: String,
    },
    /// The directory of the image cannot be used.
    #[error("the image {image} of {instance} cannot be used: {reason}")]
    Image {
        /// The instance.
        instance: InstanceId,
        /// The directory.
        image: String,
        /// Why not.
        reason: String,
    },
    /// It runs and should not, or the other way round.
    #[error("instance {instance}: {reason}")]
    State {
        /// The instance.
        instance: InstanceId,
        /// What it is.
        reason: String,
    },
    /// The runtime failed.
    #[error("the memory of {instance}: {reason}")]
    Failed {
        /// The instance.
        instance: InstanceId,
        /// What was seen.
        reason: String,
    },
}

impl Code for MemoryError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoInstance { .. } => "instance_not_found",
            Self::Unsupported { .. } => "memory_unsupported",
            Self::Image { .. } => "memory_image_invalid",
            Self::State { .. } => "memory_state",
            Self::Failed { .. } => "memory_failed",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::NoInstance { .. } => "List the instances; provision a new one.",
            Self::Unsupported { .. } => "Choose a provider that can (gvisor), or let the instance run.",
            Self::Image { .. } => {
                "Name an absolute directory: an empty or new one to save to, or the one that was saved to."
            }
            Self::State { .. } => "Save what runs, restore what was saved; look at its status.",
            Self::Failed { .. } => "Read the reason; look at the instance's status before trying again.",
        }
        .to_owned()
    }
}

/// Why a target names no provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// No provider has this name.
    #[error(
        "unknown compute provider '{name}'{}. Available: {}. Falling back to local would run on the host what was asked to be isolated",
        .suggestion.as_ref().map(|s| format!(" (did you mean '{s}'?)")).unwrap_or_default(),
        .available.join(", ")
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// What exists.
        available: Vec<String>,
        /// The closest name, when it is close.
        suggestion: Option<String>,
    },
    /// A name that cannot be registered.
    #[error("the provider name '{name}' cannot be registered: {reason}")]
    BadName {
        /// The name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Two of `tools_run_on`, `run_on` and `backend`.
    #[error("{first} and {second} are the same setting under two names")]
    TwoAxes {
        /// One.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
}

impl Code for ResolveError {
    fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "provider_unknown",
            Self::BadName { .. } => "provider_name_invalid",
            Self::TwoAxes { .. } => "placement_ambiguous",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Unknown { available, .. } => {
                format!(
                    "Use one of {}, or register the provider first.",
                    available.join(", ")
                )
            }
            Self::BadName { .. } => "Choose another name: letters, digits, '.', '_' and '-'.".to_owned(),
            Self::TwoAxes { first, .. } => format!("Give only {first}."),
        }
    }
}

/// Any error of the compute contract, for callers that keep one type.
#[derive(Debug, thiserror::Error)]
pub enum ComputeError {
    /// See [`ProvisionError`].
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    /// See [`ExecuteError`].
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// See [`ShutdownError`].
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
    /// See [`ListError`].
    #[error(transparent)]
    List(#[from] ListError),
    /// See [`FilesError`].
    #[error(transparent)]
    Files(#[from] FilesError),
    /// See [`MemoryError`].
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// See [`ResolveError`].
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

impl ComputeError {
    fn inner(&self) -> &dyn Code {
        match self {
            Self::Provision(e) => e,
            Self::Execute(e) => e,
            Self::Shutdown(e) => e,
            Self::List(e) => e,
            Self::Files(e) => e,
            Self::Memory(e) => e,
            Self::Resolve(e) => e,
        }
    }
}

impl Code for ComputeError {
    fn code(&self) -> &'static str {
        self.inner().code()
    }

    fn remedy(&self) -> String {
        self.inner().remedy()
    }

    fn retryable(&self) -> bool {
        self.inner().retryable()
    }
}
