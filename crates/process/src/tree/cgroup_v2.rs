//! A cgroup of version 2 for each command. On a hybrid system its mount has no controllers, and needs none.

use super::{ChildLeader, members};
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use stead_sys::Launch;

pub struct CgroupV2 {
    path: PathBuf,
    directory: OwnedFd,
    pub(super) leader: ChildLeader,
}

impl CgroupV2 {
    pub fn new(path: PathBuf) -> io::Result<Self> {
        fs::create_dir(&path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        let directory = opened.inspect_err(|_| drop(fs::remove_dir(&path)))?;
        Ok(Self {
            path,
            directory,
            leader: ChildLeader::default(),
        })
    }

    pub fn launch(&mut self, launch: Launch<'_>) -> io::Result<()> {
        self.leader.launch(&Launch {
            cgroup: Some(self.directory.as_fd()),
            ..launch
        })
    }

    fn read(&self, file: &str) -> String {
        let opened = rustix::fs::openat(
            &self.directory,
            file,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let mut text = String::new();
        if let Ok(fd) = opened {
            // An empty answer is handled like one that could not be read: as "somebody is left".
            let _ = io::Read::read_to_string(&mut fs::File::from(fd), &mut text);
        }
        text
    }

    fn members(&self) -> Vec<i32> {
        let mut members = members::numbers(&self.read("cgroup.procs"));
        // The leader first: a shell must not go on with its next line because its child was faster.
        members.sort_by_key(|pid| Some(*pid) != self.leader.pid());
        members
    }

    pub fn signal_all(&self, signal: i32) {
        let Some(signal) = members::signal(signal) else {
            return;
        };
        for pid in self.members() {
            members::signal_member(pid, signal, |pid| self.members().contains(&pid));
        }
    }

    pub fn kill(&self) {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        if let Ok(fd) = rustix::fs::openat(&self.directory, "cgroup.kill", flags, Mode::empty()) {
            let _ = rustix::io::write(fd, b"1");
        }
    }

    pub fn is_empty(&self) -> bool {
        self.read("cgroup.events")
            .lines()
            .any(|line| line == "populated 0")
    }

    pub fn remove(&self) {
        remove_with_children(&self.path);
    }
}

impl Drop for CgroupV2 {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Removes a cgroup and those that the command made below it.
pub(super) fn remove_with_children(path: &Path) {
    if fs::remove_dir(path).is_ok() {
        return;
    }
    for child in fs::read_dir(path).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_with_children(&child.path());
        }
    }
    let _ = fs::remove_dir(path);
}
