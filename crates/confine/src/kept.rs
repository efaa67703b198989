//! A place that a runtime of its own makes: what the process of this host that stands for it has to do.

use crate::plan::ControlGroup;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What to run, and what to remove. Written by whoever makes the place, read by the process that keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The cgroups that hold the runtime and all that it starts.
    pub groups: Vec<ControlGroup>,
    /// Program and arguments; it runs as long as the place does.
    pub run: Vec<String>,
    /// Program and arguments by which the runtime forgets what it may still know of the place.
    pub delete: Vec<String>,
    /// The directory in which the runtime has files as long as it knows the place.
    pub state: PathBuf,
    /// The file in which the runtime says what went wrong.
    pub log: PathBuf,
    /// Seconds after the owner's end at which the place is ended by force; `None` for one that outlives it.
    pub owner_grace: Option<u32>,
}
