//! A cgroup of the version 1 freezer for each command: frozen first, so that nothing can fork away from
//! the signals, then killed and thawed.

use super::{ChildLeader, cgroup_v2::remove_with_children, members};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use stead_sys::Launch;

/// How long to wait for a cgroup to be frozen. It is only a better order of events: the kill follows anyway.
const FREEZE: Duration = Duration::from_millis(200);

pub struct CgroupV1 {
    path: PathBuf,
    pub(super) leader: ChildLeader,
}

impl CgroupV1 {
    pub fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir(&path)?;
        Ok(Self {
            path,
            leader: ChildLeader::default(),
        })
    }

    pub fn launch(&mut self, launch: Launch<'_>) -> io::Result<()> {
        // `tasks` and not `cgroup.procs`: a thread that moves itself needs no lock of the whole system.
        let tasks = File::options().write(true).open(self.path.join("tasks"))?;
        self.leader.launch(&Launch {
            cgroup_v1_tasks: Some(tasks.as_fd()),
            ..launch
        })
    }

    fn members(&self) -> Option<Vec<i32>> {
        let text = fs::read_to_string(self.path.join("cgroup.procs")).ok()?;
        let mut members = members::numbers(&text);
        members.sort_by_key(|pid| Some(*pid) != self.leader.pid());
        Some(members)
    }

    pub fn signal_all(&self, signal: i32) {
        let Some(signal) = members::signal(signal) else {
            return;
        };
        for pid in self.members().unwrap_or_default() {
            members::signal_member(pid, signal, |pid| {
                self.members().is_some_and(|m| m.contains(&pid))
            });
        }
    }

    pub fn kill(&self) {
        let state = self.path.join("freezer.state");
        let frozen_by = Instant::now() + FREEZE;
        let _ = fs::write(&state, "FROZEN");
        while fs::read_to_string(&state).is_ok_and(|s| s.trim() != "FROZEN") && Instant::now() < frozen_by {
            std::thread::sleep(Duration::from_millis(1));
        }
        // A frozen process takes SIGKILL when it is thawed, and cannot fork before.
        self.signal_all(rustix::process::Signal::KILL.as_raw());
        let _ = fs::write(&state, "THAWED");
    }

    pub fn is_empty(&self) -> bool {
        self.members().is_some_and(|members| members.is_empty())
    }

    pub fn remove(&self) {
        remove_with_children(&self.path);
    }
}

impl Drop for CgroupV1 {
    fn drop(&mut self) {
        self.remove();
    }
}
