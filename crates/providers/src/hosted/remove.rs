//! Taking an instance down, also one whose supervisor or owner is gone.

use crate::link::Link;
use crate::state::{InstanceFolder, ProcessIdentity, State};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stead_types::InstanceId;

/// How long a supervisor may take to end all its trees: SIGKILL at once, and 30 s for what withstands it.
const PATIENCE: Duration = Duration::from_secs(40);

/// Between two looks at something that ends.
const PAUSE: Duration = Duration::from_millis(2);

/// A folder without a record that is older was left by a process that died while it made it.
const ABANDONED: Duration = Duration::from_secs(30);

/// Ends an instance and confirms that nothing of it is left.
pub async fn remove(folder: &InstanceFolder, link: Option<&Link>) -> io::Result<()> {
    let supervisor = folder.record().ok().and_then(|record| record.supervisor);
    // Read before the supervisor takes its folder away.
    let cgroups = cgroups(folder);
    // What is parked hears nothing.
    match link.filter(|_| !folder.is_parked()) {
        Some(link) => drop(link.shut_down(PATIENCE).await),
        None => {
            if let Some(supervisor) = &supervisor {
                signal(supervisor, Signal::TERM);
            }
        }
    }
    if let Some(supervisor) = &supervisor {
        ended(supervisor).await.or_else(|_| {
            signal(supervisor, Signal::KILL);
            Ok::<_, io::Error>(())
        })?;
        ended(supervisor).await?;
    }
    // A supervisor takes its folder away as its last deed, when it has seen all its trees end. One that did so leaves
    // nothing to look for, which would cost more the more processes the host has.
    let in_order = supervisor.is_some() && !folder.path().exists();
    if !in_order || cgroups.iter().any(|cgroup| cgroup.exists()) {
        sweep(&cgroups, &folder.id()).await?;
    }
    folder.remove()
}

/// Removes instances whose owner is gone and that were not detached, or whose supervisor is gone.
pub async fn prune(state: &State, provider: &str) -> io::Result<Vec<InstanceId>> {
    let mut removed = Vec::new();
    for (folder, record) in state.instances()? {
        let supervised = record.supervisor.as_ref().is_some_and(ProcessIdentity::is_alive);
        let wanted = record.owner.is_alive() || (record.detached && supervised);
        if record.instance.provider != provider || wanted {
            continue;
        }
        // One that withstands must not keep the others.
        match remove(&folder, None).await {
            Ok(()) => removed.push(record.instance.id),
            Err(error) => {
                tracing::warn!(provider, instance = %folder.id(), %error, "an instance could not be removed")
            }
        }
    }
    for folder in state.abandoned(ABANDONED)? {
        sweep(&cgroups(&folder), &folder.id()).await?;
        folder.remove()?;
        removed.push(folder.id());
    }
    Ok(removed)
}

/// Signals a process, and no later one with its number.
pub fn signal(process: &ProcessIdentity, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else {
        return;
    };
    let Ok(pinned) = pidfd_open(pid, PidfdFlags::empty()) else {
        return;
    };
    // Pinned first, then compared: the number may have been given to another.
    if process.is_alive() {
        let _ = pidfd_send_signal(&pinned, signal);
    }
}

/// Waits for the end of a process.
async fn ended(process: &ProcessIdentity) -> io::Result<()> {
    let pinned = Pid::from_raw(process.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    // Pinned first, then compared: the number may have been given to another.
    if let Some(pinned) = pinned
        && process.is_alive()
    {
        // The descriptor becomes readable when the process ends. On a thread: the runtime takes no descriptor of this
        // kind without unsafe code.
        let limit = Timespec::try_from(PATIENCE).ok();
        let wait = move || poll(&mut [PollFd::new(&pinned, PollFlags::IN)], limit.as_ref());
        let _ = tokio::task::spawn_blocking(wait).await;
    }
    wait_until(|| !process.is_alive()).await
}

async fn wait_until(done: impl Fn() -> bool) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !done() {
        if Instant::now() >= until {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "its processes do not end",
            ));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// The instance's cgroups as they were noted, if the notes can be right.
fn cgroups(folder: &InstanceFolder) -> Vec<PathBuf> {
    let expected = format!("stead-{}", folder.id());
    let mut noted = folder.groups();
    noted.extend(folder.cgroup());
    noted.retain(|path| {
        path.starts_with("/sys/fs/cgroup") && path.file_name().is_some_and(|name| name == expected.as_str())
    });
    noted
}

/// Kills what outlived a supervisor that was itself killed: by its cgroups, and without one by the
/// instance's mark in the environment.
async fn sweep(cgroups: &[PathBuf], id: &InstanceId) -> io::Result<()> {
    for cgroup in cgroups.iter().filter(|cgroup| cgroup.is_dir()) {
        wait_until(|| end_cgroup(cgroup)).await?;
    }
    wait_until(|| end_marked(id)).await
}

/// Kills all in a cgroup and removes it; `true` when it is gone.
fn end_cgroup(cgroup: &Path) -> bool {
    for child in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            end_cgroup(&child.path());
        }
    }
    if fs::write(cgroup.join("cgroup.kill"), "1").is_err() {
        // Version 1: frozen, killed, thawed, as the supervisor does it.
        let _ = fs::write(cgroup.join("freezer.state"), "FROZEN");
        let procs = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        for process in procs.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
            if let Ok(identity) = ProcessIdentity::of(process) {
                signal(&identity, Signal::KILL);
            }
        }
        let _ = fs::write(cgroup.join("freezer.state"), "THAWED");
    }
    // Gone already counts; EBUSY is looked at again.
    fs::remove_dir(cgroup).is_ok() || !cgroup.exists()
}

/// Kills processes of this user that have the instance's mark; `true` when none is left.
fn end_marked(id: &InstanceId) -> bool {
    let mark = format!("STEAD_INSTANCE={id}");
    let mut found = false;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(identity) = ProcessIdentity::of(pid) else {
            continue;
        };
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        if environ
            .split(|byte| *byte == 0)
            .any(|variable| variable == mark.as_bytes())
        {
            found = true;
            signal(&identity, Signal::KILL);
        }
    }
    !found
}
