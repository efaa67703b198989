//! The step from a description to a tree with a leader.

use crate::program::{PrepareError, Prepared};
use crate::streams::Streams;
use crate::tree::{Tree, TreeFactory};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use stead_sys::Launch;
use stead_wire::LaunchStage;

/// Why nothing runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchFailed {
    /// What failed.
    pub stage: LaunchStage,
    /// The system's error number.
    pub errno: i32,
}

impl LaunchFailed {
    /// The place had no process left; when others end, it may have.
    pub fn is_starved(&self) -> bool {
        self.stage == LaunchStage::Setup && self.errno == Errno::AGAIN.raw_os_error()
    }

    pub(crate) fn setup(error: &io::Error) -> Self {
        Self {
            stage: LaunchStage::Setup,
            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        }
    }
}

impl From<PrepareError> for LaunchFailed {
    fn from(error: PrepareError) -> Self {
        match error {
            PrepareError::Invalid => Self {
                stage: LaunchStage::Setup,
                errno: Errno::INVAL.raw_os_error(),
            },
            PrepareError::User => Self {
                stage: LaunchStage::User,
                errno: Errno::NOENT.raw_os_error(),
            },
        }
    }
}

pub(super) fn start_tree(
    prepared: &Prepared,
    streams: &Streams,
    terminal: bool,
    trees: &mut TreeFactory,
) -> Result<Tree, LaunchFailed> {
    let mut tree = trees.tree().map_err(|error| LaunchFailed::setup(&error))?;
    let [stdin, stdout, stderr] = &streams.theirs;
    let launch = Launch {
        candidates: prepared.candidates.clone(),
        argv: prepared.argv.clone(),
        env: prepared.env.clone(),
        cwd: prepared.cwd.clone(),
        identity: prepared.user.as_ref().map(|user| user.identity.clone()),
        stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        terminal,
        cgroup: None,
        cgroup_v1_tasks: None,
    };
    tree.launch(launch).map_err(|error| LaunchFailed::setup(&error))?;
    Ok(tree)
}
