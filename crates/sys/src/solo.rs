//! Forking a process that has one thread, in which the child may go on with ordinary Rust code.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Forked {
    /// The process that called.
    Parent {
        /// The new process.
        child: i32,
    },
    /// The new process. It has copies of all descriptors.
    Child,
}

/// Forks. Refused when the process has more than one thread at the first fork: then the child could meet a
/// lock that nobody will ever release. Looked at once, because the look costs as much as the fork: a process
/// that forks must not start threads afterwards.
pub fn fork_single_threaded() -> io::Result<Forked> {
    ensure_one_thread()?;
    // SAFETY: there is one thread, so the child's memory is consistent and no lock is held by another.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent { child }),
    }
}

pub(crate) fn ensure_one_thread() -> io::Result<()> {
    static ONE_THREAD: OnceLock<bool> = OnceLock::new();
    let threads = || std::fs::read_dir("/proc/self/task").map(Iterator::count);
    let alone = match ONE_THREAD.get() {
        Some(alone) => *alone,
        None => {
            let alone = threads()? == 1;
            *ONE_THREAD.get_or_init(|| alone)
        }
    };
    if alone {
        Ok(())
    } else {
        Err(io::Error::other("fork needs a process with one thread"))
    }
}

/// Closes every descriptor but 0, 1, 2 and `keep`, which is moved to a new number; the returned
/// descriptors are in the order of `keep`.
///
/// Only for a process that was just forked and leaves all other owners of descriptors untouched until
/// it ends: their `Drop` must not run, so such a process ends with `_exit` (see [`exit_now`]).
pub fn close_all_except(keep: &[BorrowedFd<'_>]) -> io::Result<Vec<OwnedFd>> {
    let mut kept = Vec::with_capacity(keep.len());
    // First move all to high numbers, so that the low ones can be closed in one call.
    for fd in keep {
        let high = rustix::io::fcntl_dupfd_cloexec(fd, 512)?;
        kept.push(high);
    }
    // SAFETY: close_range takes plain numbers. What it closes is not used again by this process.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3u32, 511u32, 0u32) };
    if closed != 0 {
        for fd in 3..512 {
            // SAFETY: as above; a number that is not open is an error without effect.
            unsafe { libc::close(fd) };
        }
    }
    // And what is above those that we keep.
    let highest = kept
        .iter()
        .map(std::os::fd::AsRawFd::as_raw_fd)
        .max()
        .unwrap_or(511);
    let between: Vec<i32> = (512..=highest)
        .filter(|n| !kept.iter().any(|k| std::os::fd::AsRawFd::as_raw_fd(k) == *n))
        .collect();
    for fd in between {
        // SAFETY: none of these is one that we keep.
        unsafe { libc::close(fd) };
    }
    let first = u32::try_from(highest + 1).unwrap_or(u32::MAX);
    // SAFETY: all that is kept is below `first`.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0u32) };
    Ok(kept)
}

/// Ends the process at once: no destructor and no exit handler runs.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit does not return and touches no memory of ours.
    unsafe { libc::_exit(code) }
}

/// Takes ownership of a descriptor that somebody gave this process by its number.
pub fn take_inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_GETFD only asks whether the number is open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and by the caller's protocol it is handed over to us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Marks every descriptor above 2 close-on-exec, so that what we were started with reaches no program.
pub fn cloexec_inherited() {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: plain numbers; only flags change.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    if done != 0 {
        // Before Linux 5.11: one by one, as far as the usual limit.
        for fd in 3..4096 {
            // SAFETY: a number that is not open is an error without effect.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}
