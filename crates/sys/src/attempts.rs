//! System calls that a place should refuse, made in a way that does nothing even where they are let through.

use std::io;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names are the kernel's")]
pub enum DangerousCall {
    Mount,
    KexecLoad,
    Bpf,
    Keyctl,
    Userfaultfd,
    PerfEventOpen,
    IoUringSetup,
    OpenByHandleAt,
    InitModule,
    PivotRoot,
    Setns,
    Swapoff,
}

impl DangerousCall {
    /// All of them with their names.
    pub const ALL: [(&'static str, Self); 12] = [
        ("mount", Self::Mount),
        ("kexec_load", Self::KexecLoad),
        ("bpf", Self::Bpf),
        ("keyctl", Self::Keyctl),
        ("userfaultfd", Self::Userfaultfd),
        ("perf_event_open", Self::PerfEventOpen),
        ("io_uring_setup", Self::IoUringSetup),
        ("open_by_handle_at", Self::OpenByHandleAt),
        ("init_module", Self::InitModule),
        ("pivot_root", Self::PivotRoot),
        ("setns", Self::Setns),
        ("swapoff", Self::Swapoff),
    ];

    /// Number and arguments: null pointers, closed descriptors and flags that do not exist, so that a kernel that
    /// lets the call in refuses its arguments.
    fn call(self) -> (libc::c_long, [usize; 5]) {
        const NONE: usize = usize::MAX;
        match self {
            Self::Mount => (libc::SYS_mount, [0, 0, 0, 0, 0]),
            Self::KexecLoad => (libc::SYS_kexec_load, [0, NONE, 0, NONE, 0]),
            Self::Bpf => (libc::SYS_bpf, [NONE >> 1, 0, 0, 0, 0]),
            // The id of the session's keyring, which is not made for it.
            Self::Keyctl => (libc::SYS_keyctl, [0, NONE - 2, 0, 0, 0]),
            Self::Userfaultfd => (libc::SYS_userfaultfd, [NONE, 0, 0, 0, 0]),
            Self::PerfEventOpen => (libc::SYS_perf_event_open, [0, 0, 0, NONE, NONE]),
            Self::IoUringSetup => (libc::SYS_io_uring_setup, [0, 0, 0, 0, 0]),
            Self::OpenByHandleAt => (libc::SYS_open_by_handle_at, [NONE, 0, 0, 0, 0]),
            Self::InitModule => (libc::SYS_init_module, [0, 0, 0, 0, 0]),
            Self::PivotRoot => (libc::SYS_pivot_root, [0, 0, 0, 0, 0]),
            Self::Setns => (libc::SYS_setns, [NONE, 0, 0, 0, 0]),
            Self::Swapoff => (libc::SYS_swapoff, [0, 0, 0, 0, 0]),
        }
    }

    /// Makes the call. `Ok` is a call that was let in, whatever it then said of its arguments.
    pub fn attempt(self) -> Result<(), io::Error> {
        let (number, [a, b, c, d, e]) = self.call();
        // SAFETY: by these arguments the kernel changes nothing and writes nowhere.
        let result = unsafe { libc::syscall(number, a, b, c, d, e) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if result >= 0 => Ok(()),
            Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Attaches to a process as a debugger does, and lets go of it. `Ok` is that it was possible.
pub fn attempt_ptrace(pid: i32) -> io::Result<()> {
    // SAFETY: no memory is passed; with PTRACE_SEIZE the process is not even stopped.
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
    }
    Ok(())
}

/// Opens a socket of a family and kind, and closes it. `Ok` is that it was possible.
pub fn attempt_socket(family: i32, kind: i32, protocol: i32) -> io::Result<()> {
    // SAFETY: plain numbers; what comes back is closed and used by nobody.
    unsafe {
        let socket = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::close(socket);
    }
    Ok(())
}
