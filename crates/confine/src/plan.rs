//! What is done to confine a place, as data: tested whole, sent to the supervisor, carried out in this order.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A kind of namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Namespace {
    /// Mounts.
    Mount,
    /// Process numbers.
    Pid,
    /// System V and POSIX queues, shared memory.
    Ipc,
    /// Host name.
    Uts,
    /// Interfaces, addresses, ports, abstract sockets.
    Net,
    /// The view of the cgroup tree.
    Cgroup,
}

/// A range of ids: `count` from `inside` on are those of the host from `outside` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRange {
    /// First id in the place.
    pub inside: u32,
    /// First id on the host.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// The user namespace, and when it is entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserNamespace {
    /// Together with the others, which then belong to it: the only way for an ordinary user.
    First {
        /// Users.
        uids: IdRange,
        /// Groups.
        gids: IdRange,
    },
    /// When the root stands: the other namespaces belong to the host, so that no right in the place is a right
    /// over its mounts or its network.
    Last {
        /// Users.
        uids: IdRange,
        /// Groups.
        gids: IdRange,
    },
}

impl UserNamespace {
    /// The maps.
    pub fn maps(&self) -> (IdRange, IdRange) {
        match self {
            Self::First { uids, gids } | Self::Last { uids, gids } => (*uids, *gids),
        }
    }
}

/// A capability that commands of the place's root keep, inside their user namespace. Named as in
/// capabilities(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "their names are the kernel's")]
pub enum Capability {
    Chown,
    DacOverride,
    Fowner,
    Fsetid,
    Kill,
    Setgid,
    Setuid,
    NetBindService,
}

/// A mount of something that exists on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// On the host.
    pub host: PathBuf,
    /// In the place.
    pub place: PathBuf,
    /// Whether nothing can be written through it.
    pub read_only: bool,
    /// Whether device nodes in it are devices.
    pub devices: bool,
}

/// One step of building the root. Paths are those of the place; what is missing of a path is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A directory.
    Directory {
        /// Where.
        place: PathBuf,
        /// Permissions.
        mode: u32,
    },
    /// A small file.
    File {
        /// Where.
        place: PathBuf,
        /// What is in it.
        content: String,
    },
    /// A symbolic link.
    Link {
        /// Where.
        place: PathBuf,
        /// To what.
        target: PathBuf,
    },
    /// A file system in memory.
    Memory {
        /// Where.
        place: PathBuf,
        /// Permissions of its root.
        mode: u32,
        /// Bytes that fit in it; half of the machine's memory without it.
        size: Option<u64>,
    },
    /// Something of the host.
    Bind(Bind),
    /// The processes of the place. System settings in it can only be read, and what tells of the machine or
    /// steers it is hidden.
    Proc {
        /// Files below it that are covered.
        hidden: Vec<String>,
        /// Directories below it that can only be read.
        read_only: Vec<String>,
    },
    /// Terminals of its own.
    Terminals,
}

/// Layers that lie upon each other, and what is changed upon them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// Directories of the host, the top one first, with the marks of overlayfs that need no right
    /// (`userxattr`).
    pub lower: Vec<PathBuf>,
    /// Directory of the host that holds the changes.
    pub changes: PathBuf,
    /// Bytes of changes; with a number they are held in memory instead.
    pub size: Option<u64>,
}

/// The file system of the place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// Directory of the host on which it is built.
    pub stage: PathBuf,
    /// What it begins with; nothing without.
    pub layers: Option<Layers>,
    /// How.
    pub steps: Vec<Step>,
}

/// What Landlock allows on top: everything else in the file system is refused, whoever asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockRules {
    /// What can be read and executed.
    pub read: Vec<PathBuf>,
    /// What can be written too.
    pub write: Vec<PathBuf>,
    /// Whether sockets and signals are kept inside, where the kernel can (ABI 6).
    pub scoped: bool,
    /// The oldest ABI with which this means what it says: 3 is the first that can refuse to truncate.
    pub oldest_abi: u32,
}

/// A limit of each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResourceLimit {
    /// Open files.
    OpenFiles(u64),
    /// Bytes of a core file.
    CoreFile(u64),
}

/// A cgroup that is made for the place and removed with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlGroup {
    /// Its directory; the one above is there.
    pub path: PathBuf,
    /// What is written into which of its files, in this order.
    pub settings: Vec<(String, String)>,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The place's cgroups, one for each hierarchy that limits it.
    pub groups: Vec<ControlGroup>,
    /// Namespaces besides the user's.
    pub namespaces: Vec<Namespace>,
    /// The user namespace.
    pub users: UserNamespace,
    /// Host name.
    pub hostname: String,
    /// Whether the loopback of its own network is brought up.
    pub loopback: bool,
    /// The file system.
    pub root: Root,
    /// What root in the place keeps.
    pub capabilities: Vec<Capability>,
    /// Limits of each process.
    pub limits: Vec<ResourceLimit>,
    /// Whether setuid programs and file capabilities give nothing.
    pub no_new_privileges: bool,
    /// Whether only the system calls of the allow list work.
    pub system_calls: bool,
    /// Landlock.
    pub landlock: Option<LandlockRules>,
}
