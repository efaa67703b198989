//! What confinement needs of the kernel and no safe crate has.

use crate::Forked;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Forks into new namespaces: `flags` are `CLONE_NEW…`. As [`crate::fork_single_threaded`], for a process with one
/// thread; with a new PID namespace the child is its first process. With a cgroup of version 2, given by its
/// directory, the child is born in it: moving it later takes a lock of the whole system and costs milliseconds.
pub fn fork_into(flags: i32, cgroup: Option<BorrowedFd<'_>>) -> io::Result<Forked> {
    const ALLOWED: i32 = libc::CLONE_NEWNS
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWCGROUP;
    crate::solo::ensure_one_thread()?;
    let flags = flags & ALLOWED;
    let result = match cgroup {
        // SAFETY: without CLONE_VM the child has a copy of our memory and goes on from here, as with fork; no pointer
        // is passed. There is one thread, so no lock is held by another.
        None => unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) },
        Some(cgroup) => {
            let arguments = libc::clone_args {
                flags: u64::try_from(flags).map_err(io::Error::other)? | crate::vfork::CLONE_INTO_CGROUP,
                pidfd: 0,
                child_tid: 0,
                parent_tid: 0,
                exit_signal: libc::SIGCHLD as u64,
                stack: 0,
                stack_size: 0,
                tls: 0,
                set_tid: 0,
                set_tid_size: 0,
                cgroup: u64::try_from(cgroup.as_raw_fd()).map_err(io::Error::other)?,
            };
            // SAFETY: as above; the structure is complete and as long as stated, and names no stack.
            unsafe {
                libc::syscall(
                    libc::SYS_clone3,
                    &raw const arguments,
                    size_of::<libc::clone_args>(),
                )
            }
        }
    };
    match result {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent {
            child: i32::try_from(child).map_err(io::Error::other)?,
        }),
    }
}

/// What a mount is made to refuse. Setting never takes away what was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MountAttributes {
    /// Nothing can be written.
    pub read_only: bool,
    /// Setuid bits and file capabilities give nothing.
    pub no_setuid: bool,
    /// Device nodes are no devices.
    pub no_devices: bool,
}

/// Sets attributes of the mount that `mount` is the root of, and of all below it if `recursive`. Linux 5.12.
pub fn set_mount_attributes(
    mount: BorrowedFd<'_>,
    attributes: MountAttributes,
    recursive: bool,
) -> io::Result<()> {
    let mut set = 0;
    for (wanted, flag) in [
        (attributes.read_only, libc::MOUNT_ATTR_RDONLY),
        (attributes.no_setuid, libc::MOUNT_ATTR_NOSUID),
        (attributes.no_devices, libc::MOUNT_ATTR_NODEV),
    ] {
        if wanted {
            set |= flag;
        }
    }
    let attr = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    set_attributes(mount, &attr, recursive)
}

/// Shows the owners in a mount that hangs nowhere yet as the maps of a user namespace say: who has a number inside of
/// it on the disk is the one outside whom that number stands for. Linux 5.12; below an overlay 5.19.
pub fn map_owners(mount: BorrowedFd<'_>, users: BorrowedFd<'_>) -> io::Result<()> {
    let attr = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: u64::try_from(users.as_raw_fd()).map_err(io::Error::other)?,
    };
    set_attributes(mount, &attr, false)
}

fn set_attributes(mount: BorrowedFd<'_>, attr: &libc::mount_attr, recursive: bool) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is an empty C string, the structure is complete and as long as stated.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attr),
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Brings up the loopback interface of our network namespace.
pub fn bring_up_loopback() -> io::Result<()> {
    // SAFETY: plain numbers; the descriptor that comes back is nobody else's.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made and is open.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: all bytes zero are a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *slot = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is complete, ends its name with a zero byte, and lives longer than the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Version of the kernel's Landlock interface. An error where there is none: not built in, or not switched on.
pub fn landlock_version() -> io::Result<u32> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no structure and only answers.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0,
            VERSION,
        )
    };
    u32::try_from(version).map_err(|_| io::Error::last_os_error())
}

/// Enters a new user namespace, in which this process has every right until it gives them up.
pub fn enter_user_namespace() -> io::Result<()> {
    unshare(libc::CLONE_NEWUSER)
}

/// Enters a new cgroup namespace: where this process is now becomes the root of what it sees.
pub fn enter_cgroup_namespace() -> io::Result<()> {
    unshare(libc::CLONE_NEWCGROUP)
}

fn unshare(flag: i32) -> io::Result<()> {
    // SAFETY: these flags move nothing but our own credentials and view; no memory or descriptor is affected.
    match unsafe { libc::unshare(flag) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
