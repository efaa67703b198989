//! Starting one program: everything between `clone3` and `execve`.
//!
//! The child is born inside its cgroup (`CLONE_INTO_CGROUP`): moving a process later takes a lock of the
//! whole system and costs milliseconds. It shares our memory until it executes its program, and leaves
//! there what failed.

use crate::vfork::vfork_into;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// `tasks` of a cgroup of version 1 to enter before anything else.
    pub cgroup_v1_tasks: Option<BorrowedFd<'a>>,
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

impl Stage {
    fn from_number(number: u8) -> Option<Self> {
        [Stage::Setup, Stage::Identity, Stage::Cwd, Stage::Exec]
            .into_iter()
            .find(|stage| *stage as u8 == number)
    }
}

/// What became of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launched {
    /// Its process id. It stays valid until it is waited for, also when the launch failed.
    pub pid: i32,
    /// Set when the program was not executed; the child has ended then.
    pub failure: Option<LaunchFailure>,
}

/// Starts a program and waits until it is executed, or has failed. The child takes nothing from other
/// threads: it makes system calls only.
pub fn launch(launch: &Launch<'_>) -> io::Result<Launched> {
    let argv = pointers(&launch.argv);
    let env = pointers(&launch.env);
    let child = ChildView {
        launch,
        argv: &argv,
        env: &env,
        report: AtomicU64::new(0),
    };
    // SAFETY: `child` outlives the call, which returns when the child is done with it. Its code makes system
    // calls only, and writes no memory but its own stack and the report.
    let pid = unsafe { vfork_into(launch.cgroup, run_child, (&raw const child).cast()) }?;
    Ok(Launched {
        pid,
        failure: child.failure(),
    })
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings
        .iter()
        .map(|s| s.as_ptr())
        .chain(std::iter::once(std::ptr::null()))
        .collect()
}

extern "C" fn run_child(child: *const ()) -> ! {
    // SAFETY: `launch` passes a view that outlives us, and only reads it after we are done.
    unsafe { &*child.cast::<ChildView<'_>>() }.run()
}

/// What the child sees. Its methods make system calls only: no allocation, no lock, no panic.
struct ChildView<'a> {
    launch: &'a Launch<'a>,
    argv: &'a [*const libc::c_char],
    env: &'a [*const libc::c_char],
    /// The failed stage in the upper half and the error number in the lower; 0 when nothing failed.
    report: AtomicU64,
}

impl ChildView<'_> {
    fn run(&self) -> ! {
        let (stage, errno) = match self.steps() {
            Ok(never) => match never {},
            Err(failure) => failure,
        };
        let errno = u64::from(u32::try_from(errno).unwrap_or(0));
        self.report
            .store(u64::from(stage as u8) << 32 | errno, Ordering::Relaxed);
        // SAFETY: runs no code of ours. It ends only this child, which has a process of its own.
        unsafe { libc::_exit(127) }
    }

    fn failure(&self) -> Option<LaunchFailure> {
        let report = self.report.load(Ordering::Relaxed);
        let stage = Stage::from_number(u8::try_from(report >> 32).ok()?)?;
        Some(LaunchFailure {
            stage,
            errno: i32::try_from(report & 0xffff_ffff).ok()?,
        })
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
        let Some(procs) = self.launch.cgroup_v1_tasks else {
            return Ok(());
        };
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

/// Executes a program in this process, with usual signals; returns only when it fails.
pub fn execute(program: &CStr, argv: &[CString], env: &[CString]) -> io::Error {
    if let Err(errno) = default_signals() {
        return io::Error::from_raw_os_error(errno);
    }
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: the path and both arrays are NUL-terminated and outlive the call.
    unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
    io::Error::last_os_error()
}

fn default_signals() -> Result<(), i32> {
    let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set; SIG_DFL installs no handler. Rust ignores SIGPIPE, which a
    // program must not inherit; all others have their default already.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::sigemptyset(none.as_mut_ptr());
        check(libc::sigprocmask(
            libc::SIG_SETMASK,
            none.as_ptr(),
            std::ptr::null_mut(),
        ))
    }
}

fn take_identity(identity: &Identity) -> Result<(), i32> {
    let (uid, gid) = (identity.uid, identity.gid);
    // Raw calls: the C library's would try to tell other threads, and there are none in this child.
    // SAFETY: the array is as long as stated and outlives the call.
    check_long(unsafe {
        libc::syscall(
            libc::SYS_setgroups,
            identity.groups.len(),
            identity.groups.as_ptr(),
        )
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
        let null = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .unwrap();
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
            cgroup_v1_tasks: None,
        })
        .unwrap();
        let mut status = 0;
        // SAFETY: our own child and a valid pointer.
        let waited = unsafe { libc::waitpid(launched.pid, &mut status, 0) };
        assert_eq!(waited, launched.pid);
        (libc::WEXITSTATUS(status), launched.failure)
    }

    #[test]
    fn a_program_runs_and_its_code_comes_back() {
        assert_eq!(run(&["/bin/sh"], "/"), (7, None));
        assert_eq!(run(&["/nonexistent/sh", "/bin/sh"], "/"), (7, None));
    }

    #[test]
    fn each_failure_names_its_stage() {
        let failure = |stage, errno| Some(LaunchFailure { stage, errno });
        assert_eq!(
            run(&["/nonexistent/sh"], "/").1,
            failure(Stage::Exec, libc::ENOENT)
        );
        assert_eq!(
            run(&["/etc", "/nonexistent/sh"], "/").1,
            failure(Stage::Exec, libc::EACCES)
        );
        assert_eq!(
            run(&["/bin/sh"], "/nonexistent").1,
            failure(Stage::Cwd, libc::ENOENT)
        );
    }
}
