//! The process with the number 1 as the reaper of one tree at a time, where no cgroup can be made.
//!
//! All orphans of a PID namespace fall to its first process. As long as every other tree has a reaper of its
//! own, what falls to us can only be of the one tree that has none: that one needs no process in between,
//! and costs what it costs to start and to wait for its leader. When we end the kernel ends the whole
//! namespace, so such a tree needs nobody to watch us either.

use super::{ChildLeader, descendants, members};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use stead_sys::Launch;

/// What the trees of one supervisor know of each other.
#[derive(Debug, Default)]
pub struct Household {
    reapers: RefCell<BTreeSet<i32>>,
    /// Whether there is a tree whose orphans fall to us.
    adopts: Cell<bool>,
}

impl Household {
    pub fn add_reaper(&self, pid: i32) {
        self.reapers.borrow_mut().insert(pid);
    }

    pub fn remove_reaper(&self, pid: i32) {
        self.reapers.borrow_mut().remove(&pid);
    }
}

/// The tree whose orphans fall to us.
pub struct InitTree {
    household: Rc<Household>,
    /// Until the tree was given up: from then on what falls to us is of another.
    adopting: bool,
    pub(super) leader: ChildLeader,
}

impl InitTree {
    /// `None` when there is such a tree already, or when we are not the first process.
    pub fn new(household: &Rc<Household>) -> Option<Self> {
        let first = rustix::process::getpid().as_raw_nonzero().get() == 1;
        if !first || household.adopts.replace(true) {
            return None;
        }
        Some(Self {
            household: Rc::clone(household),
            adopting: true,
            leader: ChildLeader::default(),
        })
    }

    pub fn launch(&mut self, launch: &Launch<'_>) -> io::Result<()> {
        self.leader.launch(launch)
    }

    pub fn signal_all(&self, signal: i32) {
        if let Some(signal) = members::signal(signal).filter(|_| self.adopting) {
            descendants::signal_all(signal, &self.household.reapers.borrow());
        }
    }

    pub fn kill(&self) {
        if self.adopting {
            descendants::kill_all(&self.household.reapers.borrow());
        }
    }

    /// The tree is gone: another may take its place.
    pub fn remove(&mut self) {
        if self.adopting {
            self.adopting = false;
            self.household.adopts.set(false);
        }
    }

    /// Children that ended and were not waited for do not count: they do nothing any more.
    pub fn is_empty(&self) -> bool {
        if !self.adopting {
            return true;
        }
        let reapers = self.household.reapers.borrow();
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // One call, for the usual case of a command alone.
        if matches!(waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD)) {
            return true;
        }
        let me = rustix::process::getpid().as_raw_nonzero().get();
        members::children(me)
            .into_iter()
            .all(|child| reapers.contains(&child) || members::is_zombie(child))
    }
}

impl Drop for InitTree {
    fn drop(&mut self) {
        self.remove();
    }
}
