//! `gvisor`: a place under a kernel in user space, made by `runsc` directly, with the host's programs and nothing else
//! of the host.
//!
//! ```text
//! this process ── keeper (supervisor's program, on the host) ── runsc run ── sandbox: supervisor ── commands
//!       └───────────────── the supervisor's socket, in a directory that is mounted ────────┘
//! ```
//! The keeper is told the instance's folder before it is made, holds the limits, and leaves nothing when the place, the
//! owner or the runtime ends.

mod bundle;
mod memory;
mod runtime;
mod verify;

pub use bundle::{Bundle, Entry, Inside, NotText, bundle};

use crate::hosted::groups::{self, Hierarchies, MEMORY, PIDS};
use crate::hosted::{Hosted, Kind, OWNER_GRACE_SECONDS, Start, View, failed, host_view};
use crate::state::{InstanceFolder, State};
use runtime::{Runsc, Settings};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use stead_confine::{Host, Kept, Plan, compile};
use stead_types::{
    Availability, Axes, ComputeConfig, MemoryError, Missing, NetworkPolicy, ProvisionError, Resources,
};
use verify::Verified;

/// The name under which this provider is registered.
pub const NAME: &str = "gvisor";

/// The option with the file of `runsc`.
const RUNSC: &str = "runsc";

/// The option with the way in which system calls are caught.
const PLATFORM: &str = "platform";

/// The ways that there are in some version.
const PLATFORMS: [&str; 3] = ["kvm", "ptrace", "systrap"];

/// Bytes that gVisor itself needs: a limit below them is no place.
const LEAST_MEMORY: u64 = 64 << 20;

/// Threads of the sandbox and its helper that are no process of the place, and what the platform adds to each process.
/// Measured: about 40 on two processors with nothing running, one for each address space, one for each thread.
const OWN_TASKS: u64 = 256;

/// Runs commands in sandboxes of gVisor.
pub type GvisorProvider = Hosted<Gvisor>;

/// The kind of [`GvisorProvider`].
#[derive(Debug, Default)]
pub struct Gvisor {
    /// What was seen to work.
    verified: Verified,
    /// Where `runsc` is, unless a configuration says otherwise; `None` looks in `PATH`.
    binary: Option<PathBuf>,
}

impl GvisorProvider {
    /// A provider with this file as `runsc`, unless a configuration names another.
    pub fn with_runsc(state_dir: impl Into<PathBuf>, binary: impl Into<PathBuf>) -> Self {
        let kind = Gvisor {
            binary: Some(binary.into()),
            ..Gvisor::default()
        };
        Self::of_kind(kind, Some(state_dir.into()))
    }

    /// Verifies the runtime again, whatever was seen before: it is there, answers, and a container comes up.
    pub async fn health(&self) -> Availability {
        self.kind().verified.forget();
        stead_provider::Provider::probe(self).await
    }
}

#[async_trait::async_trait]
impl Kind for Gvisor {
    const NAME: &'static str = NAME;
    // Nobody has looked yet.
    const AXES: Axes = Axes::UNKNOWN;
    const INHERITS_ENV: bool = false;

    /// Known once the runtime was verified.
    fn version(&self) -> Option<String> {
        let settings = self.settings(&ComputeConfig::default()).ok()?;
        let runsc = self.verified.known(&settings)?;
        let platform = settings.platform.as_deref().unwrap_or("its own platform");
        Some(format!("{} {} {platform}", runsc.binary.display(), runsc.version))
    }

    async fn probe(&self, state: &State) -> Availability {
        self.verify(state, &ComputeConfig::default()).await
    }

    async fn verify(&self, state: &State, config: &ComputeConfig) -> Availability {
        let verified = match self.settings(config) {
            Ok(settings) => self.verified.verify(state, &settings).await,
            Err(missing) => Err(missing),
        };
        match verified {
            Ok(_) => Availability::Available,
            Err(missing) => Availability::Unavailable(missing),
        }
    }

    fn check(&self, config: &ComputeConfig) -> Result<(), ProvisionError> {
        host_view::check(NAME, config, is_root(), &[PLATFORM, RUNSC])?;
        let text = |name: &str| match config.options.get(name) {
            None => Ok(None),
            Some(value) => match value.as_str() {
                Some(text) => Ok(Some(text)),
                None => Err(host_view::option(NAME, name, "it has to be a string")),
            },
        };
        if text(RUNSC)?.is_some_and(|file| !Path::new(file).is_absolute()) {
            return Err(host_view::option(NAME, RUNSC, "it has to be an absolute path"));
        }
        if text(PLATFORM)?.is_some_and(|platform| !PLATFORMS.contains(&platform)) {
            let reason = format!("it has to be one of {}", PLATFORMS.join(", "));
            return Err(host_view::option(NAME, PLATFORM, &reason));
        }
        if config.resources.memory.is_some_and(|bytes| bytes < LEAST_MEMORY) {
            let reason = format!("gVisor itself needs some of it: no less than {LEAST_MEMORY}");
            return Err(host_view::unsupported(NAME, "resources.memory", &reason));
        }
        Ok(())
    }

    /// Of the keeper, and so of `runsc`; the place has its own.
    fn env(&self, _: &ComputeConfig) -> Vec<(OsString, OsString)> {
        keeper_env()
    }

    async fn save_memory(&self, folder: &InstanceFolder, image: &Path) -> Result<(), MemoryError> {
        memory::save(folder, image).await
    }

    async fn restore_memory(&self, folder: &InstanceFolder, image: &Path) -> Result<(), MemoryError> {
        memory::restore(folder, image).await
    }

    fn start(
        &self,
        folder: &InstanceFolder,
        config: &ComputeConfig,
        _: &View,
    ) -> Result<Start, ProvisionError> {
        let unavailable = |missing| ProvisionError::Unavailable {
            provider: NAME.to_owned(),
            missing,
        };
        let settings = self.settings(config).map_err(unavailable)?;
        let Some(runsc) = self.verified.known(&settings) else {
            return Err(failed(
                NAME,
                "the runtime",
                io::Error::other("it changed meanwhile"),
            ));
        };
        let hierarchies = Hierarchies::look().map_err(|error| failed(NAME, "the cgroups", error))?;
        let name = format!("stead-{}", folder.id());
        let groups = groups::plan(NAME, &outer(&config.resources), &hierarchies, &name)?;
        let policy = host_view::policy(NAME, folder, config, groups)?;
        let cleared = host_view::weakened(NAME, config, &policy.grants)?;
        let plan = compile(&policy, &host());
        let workdir = config
            .workdir
            .clone()
            .unwrap_or_else(|| host_view::WORKSPACE.into());
        let inside = Inside {
            args: supervisor_args(folder, config, &workdir)?,
            ..inside(folder, &config.resources)
        };
        let kept = write(folder, &plan, &inside, &runsc, &settings, config.detached)
            .map_err(|error| failed(NAME, "its bundle could not be made", error))?;
        Ok(Start {
            workdir,
            cleared,
            groups: kept.groups.iter().map(|group| group.path.clone()).collect(),
            metadata: metadata(&kept, &runsc),
            kept: Some(kept),
            ..Start::default()
        })
    }
}

impl Gvisor {
    /// How a place with this configuration is made. Nothing else than what is named is ever tried.
    fn settings(&self, config: &ComputeConfig) -> Result<Settings, Missing> {
        let option = |name: &str| config.options.get(name).and_then(|value| value.as_str());
        let binary = match (option(RUNSC), &self.binary) {
            (Some(file), _) => PathBuf::from(file),
            (None, Some(file)) => file.clone(),
            (None, None) => runtime::find(std::env::var_os("PATH").as_deref())?,
        };
        Ok(Settings {
            binary,
            platform: option(PLATFORM).map(str::to_owned),
            host_network: matches!(config.network, Some(NetworkPolicy::Full)),
            rootless: !is_root(),
        })
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn host() -> Host {
    Host::look(
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

fn keeper_env() -> Vec<(OsString, OsString)> {
    std::env::var_os("PATH")
        .map(|path| ("PATH".into(), path))
        .into_iter()
        .collect()
}

/// What the cgroups around the whole sandbox hold. The processes of the place are counted inside; outside stands what
/// the sandbox can ever need for them, so that the host is unharmed whatever gets through.
fn outer(resources: &Resources) -> Resources {
    Resources {
        pids: resources
            .pids
            .map(|pids| pids.saturating_mul(2).saturating_add(OWN_TASKS)),
        ..*resources
    }
}

/// What every bundle of an instance has, without the first process.
fn inside(folder: &InstanceFolder, resources: &Resources) -> Inside {
    Inside {
        args: Vec::new(),
        env: host_view::env()
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()))
            .collect(),
        root: folder.path().join("root"),
        supervisor: folder.path().join("supervisor"),
        control: folder.ctl(),
        pids: resources.pids.unwrap_or(PIDS),
        // What is in memory there is memory of the sandbox: one that fills up must not end it.
        memory: resources.memory.unwrap_or(MEMORY) / 2,
    }
}

fn supervisor_args(
    folder: &InstanceFolder,
    config: &ComputeConfig,
    workdir: &Path,
) -> Result<Vec<String>, ProvisionError> {
    let workdir = workdir.to_str().ok_or_else(|| ProvisionError::Workdir {
        provider: NAME.to_owned(),
        workdir: workdir.display().to_string(),
        reason: "the runtime takes only UTF-8 here".to_owned(),
    })?;
    let mut args: Vec<String> = [bundle::SUPERVISOR, "serve", "--guest", "--unlink-key"]
        .map(str::to_owned)
        .to_vec();
    let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
    option("--instance", folder.id().to_string());
    option("--socket", format!("{}/s", bundle::CONTROL_DIR));
    option("--key-file", format!("{}/key", bundle::CONTROL_DIR));
    option("--workdir", workdir.to_owned());
    if !config.detached {
        option("--owner-grace", OWNER_GRACE_SECONDS.to_string());
    }
    if let Some(user) = &config.user {
        option("--user", user.clone());
    }
    Ok(args)
}

/// Seconds after the owner's end in which the supervisor inside has to have ended the place by itself.
const FORCED_AFTER: u32 = 20;

/// Puts a bundle into an instance's folder, and says what its keeper has to do.
fn write(
    folder: &InstanceFolder,
    plan: &Plan,
    inside: &Inside,
    runsc: &Runsc,
    settings: &Settings,
    detached: bool,
) -> io::Result<Kept> {
    let bundle = bundle(plan, inside).map_err(io::Error::other)?;
    let directory = |path: &Path| std::fs::DirBuilder::new().mode(0o755).create(path);
    directory(&folder.work())?;
    let root = folder.path().join("root");
    directory(&root)?;
    for entry in &bundle.entries {
        put(&root, entry)?;
    }
    // A name that says nothing of where the program is kept.
    std::fs::hard_link(installed(folder)?, &inside.supervisor)?;
    let state = folder.path().join("runsc");
    directory(&state)?;
    crate::supervisor::write_private(
        &folder.path().join("config.json"),
        &serde_json::to_vec_pretty(&bundle.config)?,
    )?;
    crate::supervisor::write_private(&folder.ctl().join("key"), folder.key()?.as_bytes())?;
    let log = folder.path().join("log");
    let command = runsc.command(settings, &state, &log);
    let with = |rest: &[&str]| {
        let rest = rest.iter().map(|word| (*word).to_owned());
        command.iter().cloned().chain(rest).collect()
    };
    let place = plan.hostname.as_str();
    Ok(Kept {
        groups: plan.groups.clone(),
        run: with(&["run", "--bundle", &folder.path().to_string_lossy(), place]),
        delete: with(&["delete", "--force", place]),
        state,
        log,
        owner_grace: (!detached).then_some(FORCED_AFTER),
    })
}

/// The supervisor of the folder in which the instances are.
fn installed(folder: &InstanceFolder) -> io::Result<PathBuf> {
    let root = folder.path().ancestors().nth(2).ok_or(io::ErrorKind::NotFound)?;
    crate::supervisor::install(root)
}

fn put(root: &Path, entry: &Entry) -> io::Result<()> {
    let at = |place: &Path| root.join(place.strip_prefix("/").unwrap_or(place));
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    let above = |path: &Path| path.parent().map_or(Ok(()), |parent| builder.create(parent));
    match entry {
        Entry::Directory(place) => builder.create(at(place)),
        Entry::File(place, content) => above(&at(place)).and_then(|()| std::fs::write(at(place), content)),
        Entry::Link(place, target) => above(&at(place)).and_then(|()| symlink(target, at(place))),
    }
}

fn metadata(kept: &Kept, runsc: &Runsc) -> serde_json::Map<String, serde_json::Value> {
    let mut metadata = serde_json::Map::new();
    let paths: Vec<String> = kept
        .groups
        .iter()
        .map(|group| group.path.display().to_string())
        .collect();
    metadata.insert("cgroups".to_owned(), paths.into());
    metadata.insert("runsc".to_owned(), runsc.binary.display().to_string().into());
    metadata.insert("runsc_version".to_owned(), runsc.version.clone().into());
    metadata
}
