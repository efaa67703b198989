//! The whole request for a container, made purely of what was asked and what is known.

#[cfg(test)]
mod tests;

use super::engine::ApiVersion;
use super::image::ImageFacts;
use super::labels::{InstanceLabels, container_name};
use super::options::{NetworkMode, Options, SecurityOpt};
use super::{PROVIDER, capability, mounts, weaker};
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, RestartPolicy, RestartPolicyNameEnum,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use stead_types::{Axes, Axis, ComputeConfig, InheritEnv, NetworkPolicy, ProvisionError};

pub use super::mounts::{CONTROL_DIR, GrantedMount, RUN_DIR, SUPERVISOR};

/// The image when none is named.
pub const DEFAULT_IMAGE: &str = "python:3.11-slim";

/// The working directory when none is named; the engine makes it.
pub const DEFAULT_WORKDIR: &str = "/workspace";

const DEFAULT_MEMORY: u64 = 2 << 30;
const DEFAULT_PIDS: u64 = 512;

/// How the supervisor gets into the container, and how it is reached there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Both are mounted from this machine.
    Socket {
        /// The supervisor's file on the host.
        supervisor: PathBuf,
        /// The instance's folder on the host, in which the supervisor makes its socket.
        control: PathBuf,
    },
    /// The supervisor is uploaded before the start, and reached by an exec.
    ExecRelay,
}

/// What is known of the instance that is to be made.
#[derive(Debug, Clone)]
pub struct InstanceFacts {
    /// What goes on its labels, its id among them.
    pub labels: InstanceLabels,
    /// How its supervisor is reached.
    pub access: Access,
    /// What the supervisor is started with.
    pub supervisor_args: Vec<String>,
    /// `ComputeConfig.mounts`, resolved where the engine is on this machine.
    pub mounts: Vec<GrantedMount>,
    /// The sockets of engines on this machine, as they are named and resolved.
    pub engine_sockets: Vec<PathBuf>,
    /// The version of the API that is spoken.
    pub api: ApiVersion,
    /// Whether the engine takes a filter of system calls with the request. Podman takes the path of a file of its
    /// own machine instead.
    pub takes_filter: bool,
}

/// What to ask the engine for, and what that means.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The container's name.
    pub name: String,
    /// The whole request.
    pub body: ContainerCreateBody,
    /// As whom commands run when they do not say; `None` is as the supervisor.
    pub command_user: Option<String>,
    /// Where commands run when they do not say.
    pub workdir: String,
    /// `Some(false)` for what is known not to hold; nothing else is claimed here.
    pub cleared: Axes,
    /// Whether it is as those containers are that isolation is observed of, but for what is cleared.
    pub usual: bool,
    /// What weakens the isolation, with the caller's consent.
    pub consented: Vec<String>,
}

/// Makes the request. Everything that cannot be honoured is an error, and nothing is left out silently.
pub fn plan(
    config: &ComputeConfig,
    options: &Options,
    image: &ImageFacts,
    facts: &InstanceFacts,
) -> Result<Plan, ProvisionError> {
    check(config, options)?;
    let network = network(config, options)?;
    let weakenings = weaker::weakenings(options, &facts.mounts, &facts.engine_sockets);
    if let Some(first) = weakenings.first().filter(|_| !options.accepts_weaker) {
        let option = first.option.clone();
        return Err(ProvisionError::WeakerIsolation {
            provider: PROVIDER.to_owned(),
            option,
        });
    }
    let workdir = workdir(config)?;
    let name = container_name(&facts.labels.instance)
        .ok_or_else(|| unsupported("id", "it is not an instance's id of this build"))?;
    let users = Users::new(config, options, image);
    let mut cleared = Axes::UNKNOWN;
    for axis in weakenings.iter().flat_map(|weakening| weakening.axes) {
        cleared.set(*axis, Some(false));
    }
    if network != NetworkMode::None {
        cleared.set(Axis::NetworkRestricted, Some(false));
    }
    let tmpfs = match options.read_only {
        true => tmpfs(&workdir, &facts.mounts, users.of_commands()),
        false => HashMap::new(),
    };
    let body = ContainerCreateBody {
        image: Some(image.id.clone()),
        // The image's own entry point and command are for a server, not for a place.
        entrypoint: Some(vec![SUPERVISOR.to_owned()]),
        cmd: Some(facts.supervisor_args.clone()),
        // A health check would be one more program in the place that nobody asked for.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        env: Some(env(config)?),
        user: Some(users.container),
        // A folder that the engine makes would give its mode to the tmpfs upon it.
        working_dir: Some(workdir.clone()).filter(|workdir| !tmpfs.contains_key(workdir)),
        labels: Some(facts.labels.to_map()),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        open_stdin: Some(false),
        tty: Some(false),
        host_config: Some(host_config(config, options, facts, &network, tmpfs)?),
        ..ContainerCreateBody::default()
    };
    let consented = weakenings.into_iter().map(|weakening| weakening.option).collect();
    Ok(Plan {
        name,
        body,
        command_user: users.commands,
        workdir,
        cleared,
        usual: !is_privileged(options),
        consented,
    })
}

/// A key that the provider cannot honour.
pub(super) fn unsupported(key: &str, reason: &str) -> ProvisionError {
    ProvisionError::Unsupported {
        provider: PROVIDER.to_owned(),
        key: key.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Refuses what no image and no engine could change.
pub fn check(config: &ComputeConfig, options: &Options) -> Result<(), ProvisionError> {
    config.check().map_err(|source| ProvisionError::Invalid {
        provider: PROVIDER.to_owned(),
        source,
    })?;
    if config.resources.disk.is_some() {
        let reason = "the limit of the writable layer depends on the engine's storage, and is not offered";
        return Err(unsupported("resources.disk", reason));
    }
    if matches!(config.inherit_env, Some(InheritEnv::All | InheritEnv::Minimal)) {
        return Err(unsupported(
            "inherit_env",
            "a container gets nothing of the host's environment",
        ));
    }
    if config
        .user
        .as_deref()
        .is_some_and(|user| user.is_empty() || user.contains(char::is_control))
    {
        return Err(unsupported("user", "it is empty or has control characters"));
    }
    network(config, options)?;
    workdir(config).map(drop)
}

fn network(config: &ComputeConfig, options: &Options) -> Result<NetworkMode, ProvisionError> {
    match (&config.network, &options.network_mode) {
        (Some(NetworkPolicy::Allow { .. }), _) => Err(unsupported(
            "network",
            "a list of domains cannot be enforced here; choose none or full",
        )),
        (Some(_), Some(_)) => Err(super::options::invalid(
            "network_mode",
            "the key network is given too, and may say otherwise",
        )),
        (Some(NetworkPolicy::None), None) => Ok(NetworkMode::None),
        (Some(NetworkPolicy::Full) | None, None) => Ok(NetworkMode::Bridge),
        (None, Some(mode)) => Ok(mode.clone()),
    }
}

fn workdir(config: &ComputeConfig) -> Result<String, ProvisionError> {
    let given = config.workdir.as_deref().unwrap_or(Path::new(DEFAULT_WORKDIR));
    let invalid = |reason: &str| ProvisionError::Workdir {
        provider: PROVIDER.to_owned(),
        workdir: given.display().to_string(),
        reason: reason.to_owned(),
    };
    let text = given
        .to_str()
        .ok_or_else(|| invalid("the engine takes only UTF-8 here"))?;
    if mounts::has_dots(given) {
        return Err(invalid("it has a '..'"));
    }
    if given.starts_with(RUN_DIR) {
        return Err(invalid("this folder is the supervisor's own"));
    }
    Ok(text.to_owned())
}

/// As whom the container and its commands run.
struct Users {
    container: String,
    commands: Option<String>,
}

impl Users {
    /// The supervisor is root in the container and takes on the user of each command. Where it lacks the
    /// capabilities for that, the whole container runs as the one user.
    fn new(config: &ComputeConfig, options: &Options, image: &ImageFacts) -> Self {
        let commands = config.user.clone().or_else(|| image.user.clone());
        let switches = options.privileged || capability::can_switch_user(&capability::granted(options));
        let container = match &commands {
            Some(user) if !switches => user.clone(),
            _ => "0:0".to_owned(),
        };
        Self {
            container,
            commands: commands.filter(|_| switches),
        }
    }

    fn of_commands(&self) -> &str {
        self.commands.as_deref().unwrap_or(&self.container)
    }
}

/// The environment of the container; that of a single command goes another way and may be any bytes.
fn env(config: &ComputeConfig) -> Result<Vec<String>, ProvisionError> {
    let text = |part: &'_ OsStr| part.to_str().map(str::to_owned);
    let pair = |(name, value): (&OsStr, &OsStr)| match (text(name), text(value)) {
        (Some(name), Some(value)) => Ok(format!("{name}={value}")),
        _ => {
            let key = format!("env.{}", name.to_string_lossy());
            Err(unsupported(
                &key,
                "the engine takes only UTF-8 for an instance; give it with the command",
            ))
        }
    };
    config.env.iter().map(pair).collect()
}

fn host_config(
    config: &ComputeConfig,
    options: &Options,
    facts: &InstanceFacts,
    network: &NetworkMode,
    tmpfs: HashMap<String, String>,
) -> Result<HostConfig, ProvisionError> {
    let memory = number(
        "resources.memory",
        config.resources.memory.unwrap_or(DEFAULT_MEMORY),
    )?;
    let pids = number("resources.pids", config.resources.pids.unwrap_or(DEFAULT_PIDS))?;
    Ok(HostConfig {
        auto_remove: Some(true),
        restart_policy: Some(RestartPolicy {
            name: Some(RestartPolicyNameEnum::NO),
            maximum_retry_count: None,
        }),
        // The supervisor reaps; an engine may be set up to put its own init in front.
        init: Some(false),
        memory: Some(memory),
        // Memory and swap together: no swap on top.
        memory_swap: Some(memory),
        pids_limit: Some(pids),
        nano_cpus: config.resources.cpu.map(nano_cpus),
        shm_size: options.shm_size,
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(capability::granted(options).into_iter().collect()),
        privileged: Some(options.privileged),
        security_opt: Some(security_opt(options, facts.takes_filter)),
        network_mode: Some(network_mode(network)),
        pid_mode: options.host_pid.then(|| "host".to_owned()),
        ipc_mode: Some("private".to_owned()),
        readonly_rootfs: Some(options.read_only),
        tmpfs: Some(tmpfs).filter(|tmpfs| !tmpfs.is_empty()),
        mounts: Some(mounts::all(&facts.access, &facts.mounts, facts.api)?),
        log_config: Some(log_config()),
        ..HostConfig::default()
    })
}

fn number(key: &str, value: u64) -> Result<i64, ProvisionError> {
    i64::try_from(value).map_err(|_| unsupported(key, "it is too large"))
}

/// `Resources::check` has bounded it.
fn nano_cpus(cpu: f64) -> i64 {
    (cpu * 1e9).round() as i64
}

/// Whether capabilities beyond the usual were consented to. Then the engine's own filter is taken, which lets through
/// the calls that belong to them.
fn is_privileged(options: &Options) -> bool {
    let unusual = |name: &String| !capability::is_default(name);
    options.privileged || options.cap_add.iter().any(unusual)
}

fn security_opt(options: &Options, takes_filter: bool) -> Vec<String> {
    let mut all = vec!["no-new-privileges".to_owned()];
    let unconfined = options.security_opt.contains(&SecurityOpt::SeccompUnconfined);
    if takes_filter && !unconfined && !is_privileged(options) {
        all.push(format!("seccomp={}", super::seccomp::profile()));
    }
    all.extend(options.security_opt.iter().filter_map(|opt| match opt {
        SecurityOpt::NoNewPrivileges => None,
        SecurityOpt::SeccompUnconfined => Some("seccomp=unconfined".to_owned()),
        SecurityOpt::AppArmorUnconfined => Some("apparmor=unconfined".to_owned()),
        SecurityOpt::LabelDisable => Some("label=disable".to_owned()),
    }));
    all
}

fn network_mode(network: &NetworkMode) -> String {
    match network {
        NetworkMode::None => "none".to_owned(),
        // The engine's own choice, which for Podman without root is no bridge.
        NetworkMode::Bridge => "default".to_owned(),
        NetworkMode::Host => "host".to_owned(),
        NetworkMode::Named(name) => name.clone(),
    }
}

/// What stays writable under a read-only root: `/tmp` and the working directory, unless a mount is there.
fn tmpfs(workdir: &str, granted: &[GrantedMount], user: &str) -> HashMap<String, String> {
    let is_mounted = |path: &str| {
        granted
            .iter()
            .any(|mount| Path::new(path).starts_with(&mount.grant.place))
    };
    let wanted = ["/tmp", workdir]
        .into_iter()
        .filter(|path| *path != "/" && !is_mounted(path));
    // The mode is that of a folder which the image has there, so that who owns it matters too.
    let options = format!("rw,exec,nosuid,nodev,mode=1777{}", owner(user));
    wanted.map(|path| (path.to_owned(), options.clone())).collect()
}

/// Numbers alone: the names in the image are not known here.
fn owner(user: &str) -> String {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    match user.split_once(':') {
        Some((uid, gid)) if is_number(uid) && is_number(gid) => format!(",uid={uid},gid={gid}"),
        None if is_number(user) => format!(",uid={user}"),
        _ => String::new(),
    }
}

/// Commands do not write there, but root in the place can write to what PID 1 has open, and the host's
/// disk must not fill up from it.
fn log_config() -> HostConfigLogConfig {
    let bounds = [("max-size", "1m"), ("max-file", "1")];
    HostConfigLogConfig {
        typ: Some("json-file".to_owned()),
        config: Some(
            bounds
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        ),
    }
}
