//! Starting one program: everything between `clone3` and `execve`.
//!
//! The child is made with `clone3` so that it is born inside its cgroup (`CLONE_INTO_CGROUP`): moving a
//! process later takes a lock of the whole system and costs milliseconds. It reports a failed step
//! through a pipe that closes by itself when the program is executed.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Who the program runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// How a program is to be started. All of it is made before the process is, so that the child
/// allocates nothing.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Paths to try in order, as `execvp` does with `PATH`.
    pub candidates: Vec<CString>,
    /// Arguments, the first is the program's own name.
    pub argv: Vec<CString>,
    /// `NAME=value` entries.
    pub env: Vec<CString>,
    /// Working directory.
    pub cwd: CString,
    /// Taken on before the working directory is entered.
    pub identity: Option<Identity>,
    /// Become descriptors 0, 1 and 2.
    pub stdio: [BorrowedFd<'a>; 3],
    /// Whether descriptor 0 becomes the controlling terminal.
    pub terminal: bool,
    /// Directory of a cgroup of version 2 to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// `cgroup.procs` of a cgroup of version 1 to enter before anything else.
    pub cgroup_v1_procs: Option<BorrowedFd<'a>>,
}

/// Which step of the child failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Session, terminal, descriptors, cgroup.
    Setup = 1,
    /// User and groups.
    Identity = 2,
    /// Working directory.
    Cwd = 3,
    /// `execve`.
    Exec = 4,
}

/// A step that failed, with the system's error number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchFailure {
    /// The step.
    pub stage: Stage,
    /// The error number.
    pub errno: i32,
}

/// A child that is on its way to `execve`.
#[derive(Debug)]
pub struct Launched {
    /// Its process id. It stays valid until it is waited for.
    pub pid: i32,
    /// Ends without a byte when the program was executed; else gives a report for [`parse_report`].
    pub report: OwnedFd,
}

/// Length of a failure report.
pub const LAUNCH_REPORT: usize = 5;

/// Reads a failure report.
pub fn parse_report(bytes: &[u8]) -> Option<LaunchFailure> {
    let (stage, errno) = (bytes.first()?, bytes.get(1..LAUNCH_REPORT)?.first_chunk::<4>()?);
    let stage = match stage {
        1 => Stage::Setup,
        2 => Stage::Identity,
        3 => Stage::Cwd,
        4 => Stage::Exec,
        _ => return None,
    };
    Some(LaunchFailure { stage, errno: i32::from_le_bytes(*errno) })
}

/// Starts a program. The caller must have one thread, or hold no lock that the child could need: the
/// child only makes system calls.
pub fn launch(launch: &Launch<'_>) -> io::Result<Launched> {
    let (report, report_write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&report, true)?;
    let argv = pointers(&launch.argv);
    let env = pointers(&launch.env);
    let child = ChildView { launch, argv: &argv, env: &env, report: report_write.as_raw_fd() };
    let pid = clone_process(launch.cgroup)?;
    if pid == 0 {
        child.run();
    }
    Ok(Launched { pid, report })
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain(std::iter::once(std::ptr::null())).collect()
}

/// `clone3` without shared memory: returns twice like `fork`.
fn clone_process(cgroup: Option<BorrowedFd<'_>>) -> io::Result<i32> {
    const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
    let mut args = libc::clone_args {
        flags: 0,
        pidfd: 0,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: 0,
    };
    if let Some(fd) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = u64::try_from(fd.as_raw_fd()).unwrap_or(0);
    }
    // SAFETY: the structure is complete and as long as stated. Without CLONE_VM the child has its own copy
    // of memory and stack, so that returning here twice is the same as with fork.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    if pid >= 0 {
        return Ok(i32::try_from(pid).unwrap_or(i32::MAX));
    }
    let error = io::Error::last_os_error();
    // Without a cgroup, a system that has no clone3 (old, or a filter that hides it) still has fork.
    if cgroup.is_none() && error.raw_os_error() == Some(libc::ENOSYS) {
        // SAFETY: the child only makes system calls.
        let pid = unsafe { libc::fork() };
        return if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
    }
    Err(error)
}

/// What the child sees. Its methods make system calls only: no allocation, no lock, no panic.
struct ChildView<'a> {
    launch: &'a Launch<'a>,
    argv: &'a [*const libc::c_char],
    env: &'a [*const libc::c_char],
    report: RawFd,
}

impl ChildView<'_> {
    fn run(&self) -> ! {
        let (stage, errno) = match self.steps() {
            Ok(never) => match never {},
            Err(failure) => failure,
        };
        let mut report = [stage as u8, 0, 0, 0, 0];
        report[1..].copy_from_slice(&errno.to_le_bytes());
        // SAFETY: the descriptor is open and the buffer as long as stated; _exit runs no code of ours.
        unsafe {
            libc::write(self.report, report.as_ptr().cast(), report.len());
            libc::_exit(127)
        }
    }

    fn steps(&self) -> Result<std::convert::Infallible, (Stage, i32)> {
        self.enter_cgroup_v1().map_err(|e| (Stage::Setup, e))?;
        self.session_and_stdio().map_err(|e| (Stage::Setup, e))?;
        default_signals().map_err(|e| (Stage::Setup, e))?;
        if let Some(identity) = &self.launch.identity {
            take_identity(identity).map_err(|e| (Stage::Identity, e))?;
        }
        // After the identity, so that the user's own permissions decide.
        // SAFETY: a NUL-terminated string that outlives the call.
        check(unsafe { libc::chdir(self.launch.cwd.as_ptr()) }).map_err(|e| (Stage::Cwd, e))?;
        Err((Stage::Exec, self.exec()))
    }

    fn enter_cgroup_v1(&self) -> Result<(), i32> {
        let Some(procs) = self.launch.cgroup_v1_procs else { return Ok(()) };
        // SAFETY: an open descriptor and a buffer of one byte; "0" means the writer itself.
        let written = unsafe { libc::write(procs.as_raw_fd(), b"0".as_ptr().cast(), 1) };
        check(if written == 1 { 0 } else { -1 })
    }

    fn session_and_stdio(&self) -> Result<(), i32> {
        // SAFETY: no arguments. A new child is never a group leader, so this cannot fail for that.
        check(unsafe { libc::setsid() })?;
        for (number, fd) in (0..).zip(self.launch.stdio) {
            // All descriptors of the caller are above 2, so that no dup2 hits one that is still needed.
            // SAFETY: plain numbers.
            check(unsafe { libc::dup2(fd.as_raw_fd(), number) })?;
        }
        if self.launch.terminal {
            // SAFETY: TIOCSCTTY takes a number.
            check(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
        }
        Ok(())
    }

    /// Tries each candidate as `execvp` does, without its fallback to a shell; returns why none worked.
    fn exec(&self) -> i32 {
        let mut result = libc::ENOENT;
        for candidate in &self.launch.candidates {
            let errno = self.exec_one(candidate);
            match errno {
                libc::ENOENT | libc::ENOTDIR => {}
                // A later directory may have one that can be executed; if not, this is the better answer.
                libc::EACCES => result = libc::EACCES,
                other => return other,
            }
        }
        result
    }

    fn exec_one(&self, path: &CStr) -> i32 {
        // SAFETY: the path and both arrays are NUL-terminated and outlive the call.
        unsafe { libc::execve(path.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
        errno()
    }
}

fn default_signals() -> Result<(), i32> {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set; SIG_DFL installs no handler. Rust ignores SIGPIPE, which a
    // program must not inherit; all others have their default already.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigemptyset(none.as_mut_ptr());
        check(libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut()))
    }
}

fn take_identity(identity: &Identity) -> Result<(), i32> {
    let (uid, gid) = (identity.uid, identity.gid);
    // Raw calls: the C library's would try to tell other threads, and there are none in this child.
    // SAFETY: the array is as long as stated and outlives the call.
    check_long(unsafe {
        libc::syscall(libc::SYS_setgroups, identity.groups.len(), identity.groups.as_ptr())
    })?;
    // SAFETY: plain numbers. The group comes first: afterwards the right to change it may be gone.
    check_long(unsafe { libc::syscall(libc::SYS_setresgid, gid, gid, gid) })?;
    // SAFETY: plain numbers.
    check_long(unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) })
}

fn check(result: libc::c_int) -> Result<(), i32> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}

fn check_long(result: libc::c_long) -> Result<(), i32> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}

fn errno() -> i32 {
    // SAFETY: the C library gives a valid pointer to this thread's error number.
    unsafe { *libc::__errno_location() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn run(candidates: &[&str], cwd: &str) -> (i32, Option<LaunchFailure>) {
        let null = std::fs::File::options().read(true).write(true).open("/dev/null").unwrap();
        let text = |s: &str| CString::new(s).unwrap();
        let launched = launch(&Launch {
            candidates: candidates.iter().map(|c| text(c)).collect(),
            argv: vec![text("sh"), text("-c"), text("exit 7")],
            env: vec![text("PATH=/bin")],
            cwd: text(cwd),
            identity: None,
            stdio: [null.as_fd(); 3],
            terminal: false,
            cgroup: None,
            cgroup_v1_procs: None,
        })
        .unwrap();
        let mut status = 0;
        // SAFETY: our own child and a valid pointer.
        assert_eq!(unsafe { libc::waitpid(launched.pid, &mut status, 0) }, launched.pid);
        let mut buffer = [0; LAUNCH_REPORT];
        let read = rustix::io::read(&launched.report, &mut buffer).unwrap();
        (libc::WEXITSTATUS(status), parse_report(&buffer[..read]))
    }

    #[test]
    fn a_program_runs_and_its_code_comes_back() {
        assert_eq!(run(&["/bin/sh"], "/"), (7, None));
        assert_eq!(run(&["/nonexistent/sh", "/bin/sh"], "/"), (7, None));
    }

    #[test]
    fn each_failure_names_its_stage() {
        let failure = |stage, errno| Some(LaunchFailure { stage, errno });
        assert_eq!(run(&["/nonexistent/sh"], "/").1, failure(Stage::Exec, libc::ENOENT));
        assert_eq!(run(&["/etc", "/nonexistent/sh"], "/").1, failure(Stage::Exec, libc::EACCES));
        assert_eq!(run(&["/bin/sh"], "/nonexistent").1, failure(Stage::Cwd, libc::ENOENT));
    }

    #[test]
    fn a_report_that_is_cut_or_unknown_is_none() {
        assert_eq!(parse_report(&[4, 2, 0, 0]), None);
        assert_eq!(parse_report(&[9, 2, 0, 0, 0]), None);
        assert_eq!(parse_report(&[]), None);
    }
}
