//! A root of layers: an overlay of directories of the host.

use super::ids::{Maps, write_maps};
use super::root::memory;
use super::stage::clone_tree;
use super::{During, StepFailed};
use crate::plan::{Layers, Plan, UserNamespace};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{MountFlags, MoveMountFlags, mount as mount_at, move_mount};
use rustix::process::{Pid, WaitOptions};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use stead_sys::{Forked, MountAttributes, map_owners, set_mount_attributes};

/// Where the changes are among the layers.
const CHANGES: &str = "changes";

const WHAT: &str = "mount the layers of the image";

/// Mounts them on `at`, an empty file system in memory.
///
/// The layers are first mounted in it, under short names: what is mounted can show other owners than the disk has,
/// and all names have to fit into one page.
pub fn mount(
    at: &Path,
    layers: &Layers,
    users: &UserNamespace,
    owners: Option<&OwnedFd>,
) -> Result<(), StepFailed> {
    let mut names = Vec::new();
    for (number, layer) in layers.lower.iter().enumerate() {
        let name = number.to_string();
        let what = || format!("mount the layer {}", layer.display());
        let tree = clone_tree(layer).during(what())?;
        if let Some(owners) = owners {
            map_owners(tree.as_fd(), owners.as_fd()).during(what())?;
        }
        let attributes = MountAttributes {
            read_only: true,
            no_setuid: true,
            no_devices: true,
        };
        set_mount_attributes(tree.as_fd(), attributes, false).during(what())?;
        let point = directory(&at.join(&name)).during(what())?;
        attach(&tree, &point).during(what())?;
        names.push(name);
    }
    // Mounted there too: the place can read by what names its root was mounted, and is told nothing of the host.
    let changes = at.join(CHANGES);
    let point = directory(&changes).during(WHAT)?;
    match layers.size {
        Some(size) => memory(&changes, 0o755, Some(size)).during(WHAT)?,
        None => {
            let tree = clone_tree(&layers.changes).during(WHAT)?;
            attach(&tree, &point).during(WHAT)?;
        }
    }
    for name in ["upper", "work"] {
        let made = directory(&changes.join(name)).during(WHAT)?;
        if let UserNamespace::Last { uids, gids } = users {
            let (uid, gid) = (
                rustix::fs::Uid::from_raw(uids.outside),
                rustix::fs::Gid::from_raw(gids.outside),
            );
            rustix::fs::chownat(&made, "", Some(uid), Some(gid), rustix::fs::AtFlags::EMPTY_PATH)
                .during(WHAT)?;
        }
    }
    overlay(at, &names)
}

fn attach(tree: &OwnedFd, point: &OwnedFd) -> rustix::io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", point, "", flags)
}

fn overlay(at: &Path, names: &[String]) -> Result<(), StepFailed> {
    let options = format!(
        "lowerdir={},upperdir={CHANGES}/upper,workdir={CHANGES}/work,userxattr",
        names.join(":")
    );
    let options = CString::new(options).map_err(io::Error::other).during(WHAT)?;
    // The names are short because they are looked up from here.
    rustix::process::chdir(at).during(WHAT)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount_at("overlay", at, "overlay", flags, options.as_c_str()).during(WHAT)?;
    rustix::process::chdir("/").during(WHAT)
}

fn directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdir(path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    openat(
        CWD,
        path,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// For plans of root with layers: a user namespace with the maps of the place's, for as long as its descriptor is
/// open. On the disk the numbers are those of the image, and in the place they shall be the same. Made outside of the
/// place, where processes have the numbers that `/proc` knows.
pub fn owners(plan: &Plan) -> io::Result<Option<OwnedFd>> {
    match &plan.users {
        UserNamespace::Last { .. } if plan.root.layers.is_some() => namespace(&plan.users).map(Some),
        UserNamespace::Last { .. } | UserNamespace::First { .. } => Ok(None),
    }
}

/// Nothing runs in it.
fn namespace(users: &UserNamespace) -> io::Result<OwnedFd> {
    let (ours, theirs) = io::pipe()?;
    match stead_sys::fork_into(rustix::thread::UnshareFlags::NEWUSER.bits() as i32, None)? {
        Forked::Child => {
            drop(theirs);
            // Until the other end is closed.
            let _ = rustix::io::read(&ours, &mut [0]);
            stead_sys::exit_now(0)
        }
        Forked::Parent { child } => {
            drop(ours);
            let made = write_maps(child, &Maps::of_users(users)).and_then(|()| {
                Ok(openat(
                    CWD,
                    format!("/proc/{child}/ns/user"),
                    OFlags::RDONLY | OFlags::CLOEXEC,
                    Mode::empty(),
                )?)
            });
            drop(theirs);
            let _ = rustix::process::waitpid(Pid::from_raw(child), WaitOptions::empty());
            made
        }
    }
}
