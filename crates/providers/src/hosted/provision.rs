//! Bringing up an instance: supervisor, folder, handshake, record; each step undone when a later one fails or the
//! caller goes away, and by the supervisor when this process is killed.

use super::{Kind, Start};
use crate::adopt::CommandDefaults;
use crate::link::{DialPath, Link, Transport};
use crate::place::{Place, place_error};
use crate::state::{InstanceFolder, ProcessIdentity, Record, State, new_key};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use stead_types::{Axes, ComputeConfig, ComputeInstance, InstanceId, InstanceStatus, ProvisionError};
use stead_wire::{Key, TreeTracking};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};

/// How long a supervisor goes on without its owner. Short: nobody of this host needs longer to dial again.
pub const OWNER_GRACE_SECONDS: u64 = 10;

/// Says to a supervisor that its folder is complete.
pub(super) const GO: u8 = b'g';

/// Bytes of what a supervisor says of its failure, and how long it may take to say it.
const LAST_WORDS: u64 = 4 << 10;
const SAYING: Duration = Duration::from_secs(2);

/// A failure with its source.
pub fn failed(provider: &str, what: &str, error: impl Into<io::Error>) -> ProvisionError {
    let error = error.into();
    let reason = format!("{what}: {error}");
    ProvisionError::Failed {
        provider: provider.to_owned(),
        reason,
        source: Some(Box::new(error)),
    }
}

/// Brings up an instance. Dropping the future removes what was made: each guard undoes its own step. `observed` is
/// what was seen of such instances.
pub async fn provision<K: Kind>(
    kind: &K,
    state: &State,
    mut config: ComputeConfig,
    observed: Axes,
) -> Result<Place, ProvisionError> {
    let failed = |what: &str, error| failed(K::NAME, what, error);
    let id = InstanceId::generate();
    let key = new_key().map_err(|error| failed("no key could be made", error))?;
    let program = state
        .supervisor()
        .map_err(|error| failed("the supervisor could not be installed", error))?;
    let mut view = kind.view(&config).await?;
    config.user = config.user.or(view.user.take());
    let (env, lease) = (std::mem::take(&mut view.env), view.lease.take());
    let (child, mut socket) = spawn(&program, &id, env, lease)
        .map_err(|error| failed("the supervisor could not be started", error))?;
    let mut child = ChildGuard(Some(child));
    // It is told before there is anything: should we die while we make it, the supervisor removes it.
    announce(&mut socket, &state.folder(&id)).map_err(|error| failed("the supervisor is gone", error))?;
    let folder = state
        .create(&id, &key)
        .map_err(|error| failed("its folder could not be made", error))?;
    let folder = FolderGuard(Some(folder));
    let start = kind.start(folder.get(), &config, &view)?;
    describe_start(folder.get(), &config, &start)
        .map_err(|error| failed("its folder could not be written", error))?;
    socket
        .write_all(&[GO])
        .map_err(|error| failed("the supervisor is gone", error))?;
    let link = match reach(&start, folder.get(), &key, socket, &mut child).await {
        Ok(link) => link,
        Err(error) => return Err(failed(&child.last_words().await, error)),
    };
    if let Some(problem) = link.greeting().problem {
        let workdir = start.workdir.display().to_string();
        return Err(place_error(K::NAME, &config, &workdir, problem));
    }
    let record = Record {
        instance: describe::<K>(&id, &link, start, &config, child.pid(), observed),
        owner: ProcessIdentity::current().map_err(|error| failed("this process", error))?,
        detached: config.detached,
        supervisor: ProcessIdentity::of(child.pid()).ok(),
        commands: CommandDefaults::of_detached(&config),
    };
    folder
        .get()
        .write_record(&record)
        .map_err(|error| failed("its record could not be written", error))?;
    // From here on the supervisor answers for itself.
    child.disarm();
    folder.disarm();
    Ok(Place {
        instance: record.instance,
        config,
        link,
    })
}

/// Removes the folder of an instance that did not come up.
pub(super) struct FolderGuard(pub(super) Option<InstanceFolder>);

impl FolderGuard {
    #[expect(
        clippy::expect_used,
        reason = "only `disarm`, which consumes the guard, empties it"
    )]
    pub(super) fn get(&self) -> &InstanceFolder {
        self.0.as_ref().expect("the guard is armed")
    }

    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for FolderGuard {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // Nobody is left to tell; `prune` finds it.
            let _ = folder.remove();
        }
    }
}

/// Kills the supervisor of an instance that did not come up; it has started nothing yet.
pub(super) struct ChildGuard(pub(super) Option<Child>);

impl ChildGuard {
    fn pid(&self) -> i32 {
        self.0
            .as_ref()
            .and_then(Child::id)
            .and_then(|pid| i32::try_from(pid).ok())
            .unwrap_or(0)
    }

    /// Whether it has ended.
    #[cfg(feature = "gvisor")]
    pub(super) fn has_ended(&mut self) -> bool {
        self.0
            .as_mut()
            .is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Whether it ended as it should.
    #[cfg(feature = "gvisor")]
    pub(super) fn succeeded(&mut self) -> bool {
        let ended = self.0.as_mut().map(Child::try_wait);
        matches!(ended, Some(Ok(Some(status))) if status.success())
    }

    /// Asks it to end, and waits for that.
    #[cfg(feature = "gvisor")]
    pub(super) async fn terminate(&mut self, patience: Duration) -> io::Result<()> {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid()) {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        }
        if let Some(child) = &mut self.0 {
            tokio::time::timeout(patience, child.wait()).await??;
        }
        Ok(())
    }

    /// What a supervisor that does not come up says of it, for a person.
    pub(super) async fn last_words(&mut self) -> String {
        let mut said = Vec::new();
        if let Some(stderr) = self.0.as_mut().and_then(|child| child.stderr.take()) {
            let mut limited = stderr.take(LAST_WORDS);
            // Whatever was said until then.
            let _ = tokio::time::timeout(SAYING, limited.read_to_end(&mut said)).await;
        }
        let said = String::from_utf8_lossy(&said);
        match said.trim().trim_start_matches("stead-supervisor: ") {
            "" => "its supervisor did not come up".to_owned(),
            reason => format!("its supervisor did not come up: {reason}"),
        }
    }

    /// It lives on. The runtime waits for it when it ends, so that it does not stay a zombie.
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // SIGTERM: it removes its cgroup on the way out. It was not waited for, so its number is its own.
        if self.0.is_some()
            && let Some(pid) = rustix::process::Pid::from_raw(self.pid())
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// Starts the supervisor of an instance that is not there yet.
pub(super) fn spawn(
    program: &Path,
    id: &InstanceId,
    env: Vec<(OsString, OsString)>,
    lease: Option<OwnedFd>,
) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(program);
    // Its arguments can be read in the place: they name nothing of the host.
    command
        .arg0("stead-supervisor")
        .arg("serve-here")
        .current_dir("/");
    command.env_clear().envs(env);
    // By this mark its processes are found should the supervisor itself be killed.
    command.env("STEAD_INSTANCE", id.as_str());
    command
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        // It writes nothing there: that is only how it comes to hold it.
        .stdout(lease.map_or_else(Stdio::null, Stdio::from))
        // It lets go of it as soon as it is up.
        .stderr(Stdio::piped());
    Ok((command.spawn()?, ours))
}

/// Tells a supervisor which folder is its own.
pub(super) fn announce(socket: &mut UnixStream, folder: &InstanceFolder) -> io::Result<()> {
    socket.write_all(folder.path().as_os_str().as_bytes())?;
    socket.write_all(&[0])
}

/// Writes what the supervisor reads once it is told to go on.
fn describe_start(folder: &InstanceFolder, config: &ComputeConfig, start: &Start) -> io::Result<()> {
    folder.write_groups(&start.groups)?;
    #[cfg(feature = "gvisor")]
    if let Some(kept) = &start.kept {
        return super::kept::describe(folder, kept);
    }
    let id = folder.id();
    let mut options: Vec<OsString> = vec!["--stdin-connection".into()];
    let mut option = |name: &str, value: OsString| options.extend([name.into(), value]);
    option("--instance", id.as_str().into());
    option("--socket", folder.socket().into());
    option("--key-file", folder.key_path().into());
    option("--workdir", start.workdir.clone().into());
    option("--remove-at-end", folder.path().into());
    if !config.detached {
        option("--owner-grace", OWNER_GRACE_SECONDS.to_string().into());
    }
    if let Some(user) = &config.user {
        option("--user", user.into());
    }
    if let Some(tree) = start.tree {
        option("--tree", tree_name(tree).into());
    }
    if let Some(plan) = &start.plan {
        option("--plan", plan.into());
    }
    folder.write_options(&options)
}

/// The first connection to the supervisor.
#[cfg_attr(
    not(feature = "gvisor"),
    expect(unused_variables, reason = "only a place that is kept is waited for")
)]
async fn reach(
    start: &Start,
    folder: &InstanceFolder,
    key: &Key,
    socket: UnixStream,
    child: &mut ChildGuard,
) -> io::Result<Link> {
    #[cfg(feature = "gvisor")]
    if start.kept.is_some() {
        return super::kept::connect(folder, key, socket, child).await;
    }
    connect(folder, key, socket).await
}

async fn connect(folder: &InstanceFolder, key: &Key, socket: UnixStream) -> io::Result<Link> {
    socket.set_nonblocking(true)?;
    let stream = tokio::net::UnixStream::from_std(socket)?;
    let dial = Arc::new(DialPath(folder.socket()));
    Link::establish(Transport::from(stream), dial, key.clone(), 1)
        .await
        .map_err(io::Error::other)
}

/// The name of a way to keep trees together, as the option has it.
pub fn tree_name(tree: TreeTracking) -> &'static str {
    match tree {
        TreeTracking::CgroupV2 => "cgroup2",
        TreeTracking::CgroupV1 => "cgroup1",
        TreeTracking::Reaper => "reaper",
    }
}

fn describe<K: Kind>(
    id: &InstanceId,
    link: &Link,
    start: Start,
    config: &ComputeConfig,
    child: i32,
    observed: Axes,
) -> ComputeInstance {
    let mut metadata = start.metadata;
    metadata.insert("workdir".to_owned(), start.workdir.display().to_string().into());
    metadata.insert("tree".to_owned(), tree_name(link.greeting().tree).into());
    metadata.insert("supervisor_pid".to_owned(), link.greeting().pid.into());
    // The process of this host that ends with the instance; in a place the supervisor has another number.
    metadata.insert("host_pid".to_owned(), child.into());
    metadata.insert("owner_pid".to_owned(), std::process::id().into());
    metadata.insert("detached".to_owned(), config.detached.into());
    ComputeInstance {
        id: id.clone(),
        provider: K::NAME.to_owned(),
        status: InstanceStatus::Running,
        created_at: time::OffsetDateTime::now_utc(),
        isolation: observed.weakened_by(start.cleared),
        metadata,
    }
}
