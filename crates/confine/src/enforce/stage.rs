//! The directory in which the root is built: paths in it are resolved as the place will see them, so that no link
//! in what is mounted leads out.

use super::{During, StepFailed};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use stead_sys::{MountAttributes, set_mount_attributes};

/// A root under construction.
pub struct Stage {
    root: OwnedFd,
    /// Whom what is made belongs to, when that is not us.
    owner: Option<(u32, u32)>,
}

/// Path below the root of the place.
fn below(place: &Path) -> PathBuf {
    place
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

impl Stage {
    pub fn new(root: OwnedFd, owner: Option<(u32, u32)>) -> Self {
        Self { root, owner }
    }

    pub fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    fn resolve(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
        openat2(&self.root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    /// What is there, `None` when nothing is.
    pub fn find(&self, place: &Path) -> Result<Option<OwnedFd>, StepFailed> {
        match self.resolve(&below(place), OFlags::empty()) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error).during(format!("look at {}", place.display())),
        }
    }

    /// A directory, made with all that leads to it when it is missing.
    pub fn directory(&self, place: &Path, mode: u32) -> Result<OwnedFd, StepFailed> {
        let path = below(place);
        let mut sofar = PathBuf::new();
        let mut current = self
            .resolve(&sofar, OFlags::DIRECTORY)
            .during("look at the root")?;
        let count = path.components().count();
        for (at, part) in path.components().enumerate() {
            sofar.push(part);
            let what = || format!("make the directory {}", place.display());
            current = match self.resolve(&sofar, OFlags::DIRECTORY) {
                Err(Errno::NOENT) => {
                    let mode = if at + 1 == count { mode } else { 0o755 };
                    rustix::fs::mkdirat(&current, part.as_os_str(), Mode::from_raw_mode(0o700))
                        .during(what())?;
                    let made = self.resolve(&sofar, OFlags::DIRECTORY).during(what())?;
                    self.give(&current, part.as_os_str().as_ref(), Some(mode))
                        .during(what())?;
                    made
                }
                other => other.during(what())?,
            };
        }
        Ok(current)
    }

    /// The directory above, and the name in it.
    fn parent(&self, place: &Path) -> Result<(OwnedFd, PathBuf), StepFailed> {
        let path = below(place);
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        let parent = self.directory(path.parent().unwrap_or(Path::new("")), 0o755)?;
        Ok((parent, name))
    }

    pub fn file(&self, place: &Path, content: &[u8]) -> Result<OwnedFd, StepFailed> {
        let what = || format!("make the file {}", place.display());
        let (parent, name) = self.parent(place)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let create = || rustix::fs::openat(&parent, &name, flags, Mode::from_raw_mode(0o600));
        let file = match create() {
            // An image has one of its own. It is replaced and not written: it could be a link.
            Err(Errno::EXIST) => {
                rustix::fs::unlinkat(&parent, &name, AtFlags::empty()).during(what())?;
                create()
            }
            other => other,
        }
        .during(what())?;
        let mut rest = content;
        while !rest.is_empty() {
            let written = rustix::io::write(&file, rest).during(what())?;
            rest = rest.get(written..).unwrap_or_default();
        }
        self.give(&parent, &name, Some(0o644)).during(what())?;
        Ok(file)
    }

    pub fn link(&self, place: &Path, target: &Path) -> Result<(), StepFailed> {
        let what = || format!("make the link {}", place.display());
        let (parent, name) = self.parent(place)?;
        rustix::fs::symlinkat(target, &parent, &name).during(what())?;
        self.give(&parent, &name, None).during(what())
    }

    /// Gives what was just made to the place's root, with these permissions.
    fn give(&self, parent: &OwnedFd, name: &Path, mode: Option<u32>) -> rustix::io::Result<()> {
        if let Some((uid, gid)) = self.owner {
            let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
            rustix::fs::chownat(parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        match mode {
            Some(mode) => rustix::fs::chmodat(parent, name, Mode::from_raw_mode(mode), AtFlags::empty()),
            None => Ok(()),
        }
    }

    /// Gives the root of a mount to the place's root.
    pub fn give_mount(&self, mount: &OwnedFd, mode: u32) -> rustix::io::Result<()> {
        self.give(mount, Path::new("."), Some(mode))
    }

    /// Where something of this kind can be mounted: what is there, or something made for it.
    pub fn mount_point(&self, place: &Path, is_directory: bool) -> Result<OwnedFd, StepFailed> {
        match self.find(place)? {
            Some(found) => Ok(found),
            None if is_directory => self.directory(place, 0o755),
            None => {
                self.file(place, b"")?;
                let what = format!("look at {}", place.display());
                self.resolve(&below(place), OFlags::empty()).during(what)
            }
        }
    }

    /// Mounts a tree that hangs nowhere yet, with these attributes.
    pub fn attach(&self, tree: &OwnedFd, attributes: MountAttributes, at: &OwnedFd) -> std::io::Result<()> {
        set_mount_attributes(tree.as_fd(), attributes, true)?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(move_mount(tree, "", at, "", flags)?)
    }
}

/// A copy of a tree of mounts that hangs nowhere yet.
pub fn clone_tree(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    open_tree(CWD, path, flags)
}

/// The same of what a descriptor names.
pub fn clone_tree_of(fd: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    open_tree(fd, "", flags)
}
