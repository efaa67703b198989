//! What is wanted of a place.

use crate::plan::ControlGroup;
use std::path::PathBuf;

/// A directory or file of the host that the caller grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// On the host.
    pub host: PathBuf,
    /// In the place.
    pub place: PathBuf,
    /// Whether the place may only read.
    pub read_only: bool,
}

/// What of the network there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// A loopback of its own.
    None,
    /// The host's, with all that it reaches.
    Full,
}

/// What the place may use. What is `None` is not limited here.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Bytes of what can be written, without grants.
    pub disk: Option<u64>,
    /// Open files of a process.
    pub open_files: Option<u64>,
}

/// An image as root view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRoot {
    /// Its layers as directories of the host, the top one first.
    pub layers: Vec<PathBuf>,
    /// An empty directory of the host for what the place changes, unless `limits.disk` makes that memory.
    pub changes: PathBuf,
}

/// What is wanted of a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Host name in the place.
    pub hostname: String,
    /// An empty directory of the host on which the root is built.
    pub stage: PathBuf,
    /// Directory of the host that is the workspace, unless `limits.disk` makes that one in memory.
    pub workspace: PathBuf,
    /// The image whose files there are; without it those of the host's programs.
    pub image: Option<ImageRoot>,
    /// What the caller grants besides.
    pub grants: Vec<Grant>,
    /// The network.
    pub network: Network,
    /// The limits of what it writes and opens.
    pub limits: Limits,
    /// The cgroups that hold the rest of its limits, as the caller found that they can be made.
    pub groups: Vec<ControlGroup>,
}
