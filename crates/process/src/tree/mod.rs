//! Keeping a command's tree together: everything it started, also what called `setsid`, double forked or
//! was stopped.
//!
//! With a cgroup (version 2, or the version 1 freezer) membership cannot be left. Without one, each
//! command gets a small process of its own, a subreaper: whatever loses its parent falls to it. A supervisor
//! that is the first process of its namespace is such a reaper itself, for one tree at a time.

mod cgroup_v1;
mod cgroup_v2;
mod descendants;
mod hierarchy;
mod init;
mod members;
mod reaper;

use crate::memory::MemoryWatch;
use cgroup_v1::CgroupV1;
use cgroup_v2::CgroupV2;
use hierarchy::Hierarchy;
use init::{Household, InitTree};
use reaper::Reaper;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::rc::Rc;
use stead_sys::{Launch, LaunchFailure};
use stead_wire::{ExitStatus, TreeTracking};

/// Which way to keep trees together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeMode {
    /// The first of the others that can be used here.
    Auto,
    /// Only this one.
    Only(TreeTracking),
}

/// Makes the tree of each command of one instance.
#[derive(Debug)]
pub struct TreeFactory {
    tracking: TreeTracking,
    /// The instance's own cgroup; none with reapers.
    parent: Option<PathBuf>,
    made: u64,
    household: Rc<Household>,
    memory: Rc<MemoryWatch>,
}

impl TreeFactory {
    /// Trees whose commands are told when this counter rises.
    pub fn watching(mut self, memory: MemoryWatch) -> Self {
        self.memory = Rc::new(memory);
        self
    }

    /// The counter.
    pub(crate) fn memory(&self) -> Rc<MemoryWatch> {
        Rc::clone(&self.memory)
    }

    /// Finds a way that works here, by making the instance's cgroup. `name` is unique on the host.
    pub fn new(mode: TreeMode, name: &str) -> io::Result<Self> {
        let wanted = |tracking| match mode {
            TreeMode::Auto => true,
            TreeMode::Only(only) => only == tracking,
        };
        let attempts = [
            (TreeTracking::CgroupV2, Hierarchy::Unified),
            (TreeTracking::CgroupV1, Hierarchy::Freezer),
        ];
        for (tracking, hierarchy) in attempts.into_iter().filter(|(tracking, _)| wanted(*tracking)) {
            match hierarchy.make_parent(name) {
                Ok(parent) => {
                    return Ok(Self {
                        tracking,
                        parent: Some(parent),
                        made: 0,
                        household: Rc::default(),
                        memory: Rc::default(),
                    });
                }
                Err(error) if mode != TreeMode::Auto => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Self {
            tracking: TreeTracking::Reaper,
            parent: None,
            made: 0,
            household: Rc::default(),
            memory: Rc::default(),
        })
    }

    /// The way that was found.
    pub fn tracking(&self) -> TreeTracking {
        self.tracking
    }

    /// The instance's own cgroup, for whoever has to clean up after us.
    pub fn cgroup(&self) -> Option<&std::path::Path> {
        self.parent.as_deref()
    }

    /// A tree with nothing in it.
    pub fn tree(&mut self) -> io::Result<Tree> {
        self.made += 1;
        let path = self
            .parent
            .as_ref()
            .map(|parent| parent.join(self.made.to_string()));
        Ok(match (self.tracking, path) {
            (TreeTracking::CgroupV2, Some(path)) => Tree::V2(CgroupV2::new(path)?),
            (TreeTracking::CgroupV1, Some(path)) => Tree::V1(CgroupV1::new(path)?),
            _ => match InitTree::new(&self.household) {
                Some(tree) => Tree::Init(tree),
                None => Tree::Reaper(Reaper::new(&self.household)),
            },
        })
    }
}

impl Drop for TreeFactory {
    fn drop(&mut self) {
        if let Some(parent) = &self.parent {
            // Not empty means that a tree withstood us; whoever prunes will find it by its name.
            let _ = std::fs::remove_dir(parent);
        }
    }
}

/// Kills the children of this process that are not `ours`, with their children, which then fall to us too.
/// They were not waited for, so their numbers are their own.
pub fn kill_adopted(ours: impl Fn(i32) -> bool) {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    // A few rounds: each makes the next generation our children.
    for _ in 0..64 {
        let adopted: Vec<i32> = members::children(me)
            .into_iter()
            .filter(|pid| !ours(*pid))
            .collect();
        let mut alive = false;
        for pid in adopted.into_iter().filter(|pid| !members::is_zombie(*pid)) {
            alive = true;
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        if !alive {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// News about the leader of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaderNews {
    /// The program was executed.
    Started {
        /// The leader.
        pid: i32,
    },
    /// It was not.
    Failed(LaunchFailure),
    /// The leader ended.
    Exited(ExitStatus),
    /// The whole tree is gone.
    Empty,
}

/// The tree of one command.
pub enum Tree {
    V2(CgroupV2),
    V1(CgroupV1),
    Init(InitTree),
    Reaper(Reaper),
}

impl Tree {
    /// Starts the leader.
    pub fn launch(&mut self, launch: Launch<'_>) -> io::Result<()> {
        match self {
            Tree::V2(tree) => tree.launch(launch),
            Tree::V1(tree) => tree.launch(launch),
            Tree::Init(tree) => tree.launch(&launch),
            Tree::Reaper(tree) => tree.launch(launch),
        }
    }

    /// The descriptor that becomes readable when there is news about the leader, where there is one. With a
    /// cgroup the news of the start is there at once, and that of the end comes from waiting for children.
    pub fn news_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Tree::V2(_) | Tree::V1(_) | Tree::Init(_) => None,
            Tree::Reaper(tree) => tree.news_fd(),
        }
    }

    /// Reads the next news; `None` when there is none.
    pub fn news(&mut self) -> Option<LeaderNews> {
        match self {
            Tree::V2(tree) => tree.leader.news(),
            Tree::V1(tree) => tree.leader.news(),
            Tree::Init(tree) => tree.leader.news(),
            Tree::Reaper(tree) => tree.news(),
        }
    }

    /// The process of ours that stands for this tree: the leader, or its reaper.
    pub fn child(&self) -> Option<i32> {
        match self {
            Tree::V2(tree) => tree.leader.pid(),
            Tree::V1(tree) => tree.leader.pid(),
            Tree::Init(tree) => tree.leader.pid(),
            Tree::Reaper(tree) => tree.pid(),
        }
    }

    /// The process that [`Self::child`] names was waited for.
    pub fn child_ended(&mut self, status: ExitStatus) -> Option<LeaderNews> {
        match self {
            Tree::V2(tree) => tree.leader.ended(status),
            Tree::V1(tree) => tree.leader.ended(status),
            Tree::Init(tree) => tree.leader.ended(status),
            Tree::Reaper(tree) => tree.ended(),
        }
    }

    /// Sends a signal to every process of the tree, parents before their children.
    pub fn signal_all(&mut self, signal: i32) {
        match self {
            Tree::V2(tree) => tree.signal_all(signal),
            Tree::V1(tree) => tree.signal_all(signal),
            Tree::Init(tree) => tree.signal_all(signal),
            Tree::Reaper(tree) => tree.request(reaper::Request::SignalTree, signal),
        }
    }

    /// Sends a signal to the leader or to its process group.
    pub fn signal_leader(&mut self, signal: i32, group: bool) {
        match self {
            Tree::V2(tree) => tree.leader.signal(signal, group),
            Tree::V1(tree) => tree.leader.signal(signal, group),
            Tree::Init(tree) => tree.leader.signal(signal, group),
            Tree::Reaper(tree) => {
                let request = if group {
                    reaper::Request::SignalGroup
                } else {
                    reaper::Request::SignalLeader
                };
                tree.request(request, signal);
            }
        }
    }

    /// Kills every process of the tree; may be called again until [`Self::is_empty`].
    pub fn kill(&mut self) {
        match self {
            Tree::V2(tree) => tree.kill(),
            Tree::V1(tree) => tree.kill(),
            Tree::Init(tree) => tree.kill(),
            Tree::Reaper(tree) => tree.request(reaper::Request::Kill, 0),
        }
    }

    /// Whether no process is left; looks now.
    pub fn is_empty(&mut self) -> bool {
        match self {
            Tree::V2(tree) => tree.is_empty(),
            Tree::V1(tree) => tree.is_empty(),
            Tree::Init(tree) => tree.is_empty(),
            Tree::Reaper(tree) => tree.is_empty(),
        }
    }

    /// Whether [`Self::child`] is a reaper.
    pub fn is_reaper(&self) -> bool {
        matches!(self, Tree::Reaper(_))
    }

    /// Gives up what kept an empty tree together.
    pub fn remove(&mut self) {
        match self {
            Tree::V2(tree) => tree.remove(),
            Tree::V1(tree) => tree.remove(),
            Tree::Init(tree) => tree.remove(),
            Tree::Reaper(_) => {}
        }
    }
}

/// A leader that is our own child: until it is waited for, its process id cannot name another.
#[derive(Debug, Default)]
pub struct ChildLeader {
    pid: Option<i32>,
    launched: Option<LeaderNews>,
    /// It ended before the news of its start was taken.
    early_end: Option<ExitStatus>,
}

impl ChildLeader {
    fn launch(&mut self, launch: &Launch<'_>) -> io::Result<()> {
        let launched = stead_sys::launch(launch)?;
        self.pid = Some(launched.pid);
        self.launched = Some(match launched.failure {
            Some(failure) => LeaderNews::Failed(failure),
            None => LeaderNews::Started { pid: launched.pid },
        });
        Ok(())
    }

    fn pid(&self) -> Option<i32> {
        self.pid
    }

    fn news(&mut self) -> Option<LeaderNews> {
        self.launched
            .take()
            .or_else(|| self.early_end.take().map(LeaderNews::Exited))
    }

    fn ended(&mut self, status: ExitStatus) -> Option<LeaderNews> {
        self.pid = None;
        if self.launched.is_some() {
            // Whether the program was executed comes first.
            self.early_end = Some(status);
            return None;
        }
        Some(LeaderNews::Exited(status))
    }

    fn signal(&self, signal: i32, group: bool) {
        let Some(pid) = self.pid.and_then(rustix::process::Pid::from_raw) else {
            return;
        };
        let Some(signal) = members::signal(signal) else {
            return;
        };
        // The leader was not waited for, so neither its id nor that of its group can name others.
        let _ = if group {
            rustix::process::kill_process_group(pid, signal)
        } else {
            rustix::process::kill_process(pid, signal)
        };
    }
}
