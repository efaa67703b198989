//! Building the root of a place, and turning to it.

use super::layers;
use super::stage::{Stage, clone_tree, clone_tree_of};
use super::{During, StepFailed};
use crate::plan::{Bind, Plan, Step, UserNamespace};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use stead_sys::{MountAttributes, set_mount_attributes};

const SAFE: MountAttributes = MountAttributes {
    read_only: false,
    no_setuid: true,
    no_devices: true,
};

const READ_ONLY: MountAttributes = MountAttributes {
    read_only: true,
    ..SAFE
};

/// Builds the root in the mount namespace that we are in, and makes it the only one there is.
pub fn build(plan: &Plan, owners: Option<&OwnedFd>) -> Result<(), StepFailed> {
    let everything = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", everything).during("cut the mounts off from the host's")?;
    // While the mounts still belong to the host, what is made has to be given to the place's root.
    let owner = match &plan.users {
        UserNamespace::First { .. } => None,
        UserNamespace::Last { uids, gids } => Some((uids.outside, gids.outside)),
    };
    let at = &plan.root.stage;
    memory(at, 0o755, None).during("mount the root of the place")?;
    if let Some(layers) = &plan.root.layers {
        layers::mount(at, layers, &plan.users, owners)?;
    }
    let root = openat(
        CWD,
        at,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let stage = Stage::new(root.during("open the root of the place")?, owner);
    for step in &plan.root.steps {
        carry_out(&stage, step)?;
    }
    // What is changed upon layers is the place's own.
    let attributes = match plan.root.layers {
        Some(_) => SAFE,
        None => READ_ONLY,
    };
    set_mount_attributes(stage.root(), attributes, false).during("protect the root")?;
    turn_to(&stage)
}

fn turn_to(stage: &Stage) -> Result<(), StepFailed> {
    let what = "turn to the root of the place";
    rustix::process::fchdir(stage.root()).during(what)?;
    // The old root is then on top of the new one, and goes.
    rustix::process::pivot_root(".", ".").during(what)?;
    unmount(".", UnmountFlags::DETACH).during("let go of the host's mounts")?;
    rustix::process::chdir("/").during(what)
}

fn carry_out(stage: &Stage, step: &Step) -> Result<(), StepFailed> {
    match step {
        Step::Directory { place, mode } => stage.directory(place, *mode).map(drop),
        Step::File { place, content } => stage.file(place, content.as_bytes()).map(drop),
        Step::Link { place, target } => stage.link(place, target),
        Step::Memory { place, mode, size } => {
            let what = || format!("mount {}", place.display());
            let point = stage.directory(place, 0o755)?;
            memory(&path_of(&point), *mode, *size).during(what())?;
            let mounted = stage.directory(place, 0o755)?;
            stage.give_mount(&mounted, *mode).during(what())
        }
        Step::Bind(step) => bind(stage, step),
        Step::Proc { hidden, read_only } => proc(stage, hidden, read_only),
        Step::Terminals => {
            let point = stage.directory(Path::new("/dev/pts"), 0o755)?;
            let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
            let options = c"newinstance,ptmxmode=0666,mode=620";
            mount("devpts", path_of(&point), "devpts", flags, options).during("mount /dev/pts")
        }
    }
}

/// A path that names what a descriptor names, for calls that take no descriptor.
pub(super) fn path_of(fd: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

pub(super) fn memory(at: &Path, mode: u32, size: Option<u64>) -> rustix::io::Result<()> {
    let size = size.map(|size| format!(",size={size}")).unwrap_or_default();
    let options = CString::new(format!("mode={mode:o}{size}")).unwrap_or_default();
    mount(
        "tmpfs",
        at,
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        options.as_c_str(),
    )
}

fn bind(stage: &Stage, step: &Bind) -> Result<(), StepFailed> {
    let what = || format!("mount {} at {}", step.host.display(), step.place.display());
    let tree = clone_tree(&step.host).during(what())?;
    let point = stage.mount_point(&step.place, is_directory(&tree).during(what())?)?;
    let attributes = MountAttributes {
        read_only: step.read_only,
        no_setuid: true,
        no_devices: !step.devices,
    };
    stage.attach(&tree, attributes, &point).during(what())
}

fn is_directory(fd: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode) == FileType::Directory)
}

fn proc(stage: &Stage, hidden: &[String], read_only: &[String]) -> Result<(), StepFailed> {
    let point = stage.directory(Path::new("/proc"), 0o555)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", path_of(&point), "proc", flags, None).during("mount /proc")?;
    for name in read_only {
        let place = Path::new("/proc").join(name);
        let what = || format!("make {} read-only", place.display());
        // A kernel without it needs no protection of it.
        if let Some(found) = stage.find(&place)? {
            let tree = clone_tree_of(&found).during(what())?;
            stage.attach(&tree, READ_ONLY, &found).during(what())?;
        }
    }
    for name in hidden {
        let place = Path::new("/proc").join(name);
        let what = || format!("hide {}", place.display());
        let Some(found) = stage.find(&place)? else {
            continue;
        };
        if is_directory(&found).during(what())? {
            memory(&path_of(&found), 0o555, Some(0)).during(what())?;
            let cover = stage.directory(&place, 0o555)?;
            set_mount_attributes(cover.as_fd(), READ_ONLY, false).during(what())?;
        } else {
            let nothing = clone_tree(Path::new("/dev/null")).during(what())?;
            let attributes = MountAttributes {
                no_devices: false,
                ..READ_ONLY
            };
            stage.attach(&nothing, attributes, &found).during(what())?;
        }
    }
    Ok(())
}
