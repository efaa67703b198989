//! Bringing up a `local` instance: folder, supervisor, handshake, record; each step undone when a later
//! one fails or the caller goes away.

use super::{NAME, options};
use crate::adopt::CommandDefaults;
use crate::link::{DialPath, HandshakeError, Link, Transport};
use crate::place::{Place, place_error};
use crate::state::{InstanceFolder, ProcessIdentity, Record, State, new_key};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use stead_types::{
    Axes, ComputeConfig, ComputeInstance, InheritEnv, InstanceId, InstanceStatus, ProvisionError,
};
use stead_wire::Key;
use tokio::process::{Child, Command};

/// How long a supervisor goes on without its owner. Short: nobody of this host needs longer to dial again.
const OWNER_GRACE_SECONDS: u64 = 10;

/// What `minimal` leaves of the host's environment.
const MINIMAL: [&str; 6] = ["PATH", "HOME", "LANG", "TERM", "USER", "TMPDIR"];

/// A failure with its source.
pub fn failed(what: &str, error: io::Error) -> ProvisionError {
    let reason = format!("{what}: {error}");
    ProvisionError::Failed {
        provider: NAME.to_owned(),
        reason,
        source: Some(Box::new(error)),
    }
}

/// Brings up an instance. Dropping the future removes what was made: each guard undoes its own step.
pub async fn provision(state: &State, config: ComputeConfig) -> Result<Place, ProvisionError> {
    let id = InstanceId::generate();
    let key = new_key().map_err(|error| failed("no key could be made", error))?;
    let program = state
        .supervisor()
        .map_err(|error| failed("the supervisor could not be installed", error))?;
    let folder = state
        .create(&id, &key)
        .map_err(|error| failed("its folder could not be made", error))?;
    let folder = FolderGuard(Some(folder));
    let workdir = config.workdir.clone().unwrap_or_else(|| folder.get().work());
    let (child, socket) = start(&program, folder.get(), &id, &config, &workdir)
        .map_err(|error| failed("the supervisor could not be started", error))?;
    let child = ChildGuard(Some(child));
    let place = handshake(folder.get(), &id, &key, config, &workdir, child.pid(), socket).await?;
    // From here on the supervisor answers for itself.
    child.disarm();
    folder.disarm();
    Ok(place)
}

/// Removes the folder of an instance that did not come up.
struct FolderGuard(Option<InstanceFolder>);

impl FolderGuard {
    #[expect(
        clippy::expect_used,
        reason = "only `disarm`, which consumes the guard, empties it"
    )]
    fn get(&self) -> &InstanceFolder {
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
struct ChildGuard(Option<Child>);

impl ChildGuard {
    fn pid(&self) -> i32 {
        self.0
            .as_ref()
            .and_then(Child::id)
            .and_then(|pid| i32::try_from(pid).ok())
            .unwrap_or(0)
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

fn start(
    program: &std::path::Path,
    folder: &InstanceFolder,
    id: &InstanceId,
    config: &ComputeConfig,
    workdir: &std::path::Path,
) -> io::Result<(Child, std::os::unix::net::UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--stdin-connection");
    command.arg("--instance").arg(id.as_str());
    command.arg("--socket").arg(folder.socket());
    command.arg("--key-file").arg(folder.key_path());
    command.arg("--workdir").arg(workdir);
    command.arg("--remove-at-end").arg(folder.path());
    if !config.detached {
        command.arg("--owner-grace").arg(OWNER_GRACE_SECONDS.to_string());
    }
    if let Some(user) = &config.user {
        command.arg("--user").arg(user);
    }
    if let Some(tree) = options::tree(config).ok().flatten() {
        command.arg("--tree").arg(options::tree_name(tree));
    }
    command
        .env_clear()
        .envs(inherited(config.inherit_env.unwrap_or(InheritEnv::All)));
    // By this mark its processes are found should the supervisor itself be killed.
    command.env("STEAD_INSTANCE", id.as_str());
    command
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Its own directory must not keep the caller's from being removed.
    command.current_dir("/");
    Ok((command.spawn()?, ours))
}

fn inherited(which: InheritEnv) -> Vec<(OsString, OsString)> {
    let wanted = |name: &OsString| match which {
        InheritEnv::All => true,
        InheritEnv::Minimal => MINIMAL.iter().any(|minimal| name == minimal),
        InheritEnv::None => false,
    };
    std::env::vars_os().filter(|(name, _)| wanted(name)).collect()
}

async fn handshake(
    folder: &InstanceFolder,
    id: &InstanceId,
    key: &Key,
    config: ComputeConfig,
    workdir: &std::path::Path,
    supervisor: i32,
    socket: std::os::unix::net::UnixStream,
) -> Result<Place, ProvisionError> {
    socket
        .set_nonblocking(true)
        .map_err(|error| failed("its socket", error))?;
    let stream = tokio::net::UnixStream::from_std(socket).map_err(|error| failed("its socket", error))?;
    let link = establish(stream, folder, key).await?;
    if let Some(problem) = link.greeting().problem {
        return Err(place_error(
            NAME,
            &config,
            &workdir.display().to_string(),
            problem,
        ));
    }
    let record = Record {
        instance: describe(id, &link, workdir, &config),
        owner: ProcessIdentity::current().map_err(|error| failed("this process", error))?,
        detached: config.detached,
        supervisor: ProcessIdentity::of(supervisor).ok(),
        commands: CommandDefaults::of_detached(&config),
    };
    folder
        .write_record(&record)
        .map_err(|error| failed("its record could not be written", error))?;
    Ok(Place {
        instance: record.instance,
        config,
        link,
    })
}

async fn establish(
    stream: tokio::net::UnixStream,
    folder: &InstanceFolder,
    key: &Key,
) -> Result<Link, ProvisionError> {
    let dial = Arc::new(DialPath(folder.socket()));
    Link::establish(Transport::from(stream), dial, key.clone(), 1)
        .await
        .map_err(|error: HandshakeError| {
            let reason = error.to_string();
            ProvisionError::Failed {
                provider: NAME.to_owned(),
                reason,
                source: Some(Box::new(error)),
            }
        })
}

fn describe(
    id: &InstanceId,
    link: &Link,
    workdir: &std::path::Path,
    config: &ComputeConfig,
) -> ComputeInstance {
    let mut metadata = serde_json::Map::new();
    metadata.insert("workdir".to_owned(), workdir.display().to_string().into());
    metadata.insert("tree".to_owned(), options::tree_name(link.greeting().tree).into());
    metadata.insert("supervisor_pid".to_owned(), link.greeting().pid.into());
    metadata.insert("detached".to_owned(), config.detached.into());
    ComputeInstance {
        id: id.clone(),
        provider: NAME.to_owned(),
        status: InstanceStatus::Running,
        created_at: time::OffsetDateTime::now_utc(),
        isolation: Axes::NONE,
        metadata,
    }
}
