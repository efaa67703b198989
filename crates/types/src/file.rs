//! Files of a place.

use std::ffi::OsString;
use std::path::PathBuf;

/// Kinds of directory entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block or character device.
    Device,
}

/// One directory entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Last component of the path.
    pub name: OsString,
    /// What it is.
    pub kind: FileKind,
    /// Length in bytes.
    pub size: u64,
    /// Permission bits, without the type.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub mtime: i64,
    /// What a symbolic link says.
    pub link_target: Option<PathBuf>,
}
