//! Signals as a descriptor, and a clean slate for programs that are started.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A descriptor that becomes readable when one of its signals is pending.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// A descriptor for these signals, which must be blocked. Non-blocking, close-on-exec.
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let set = signal_set(signals);
        // SAFETY: `set` was initialised by `signal_set`, and -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call just made this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next pending signal, `None` when there is none.
    pub fn next_signal(&self) -> io::Result<Option<i32>> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer is as long as `size` says.
        let read = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if read < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        if usize::try_from(read) != Ok(size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // SAFETY: the kernel filled the whole structure.
        let number = unsafe { info.assume_init() }.ssi_signo;
        Ok(i32::try_from(number).ok())
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set is initialised; a number that is no signal is refused without effect.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: initialised above.
    unsafe { set.assume_init() }
}

/// Blocks every signal that can be blocked, for this thread and those it will start.
pub fn block_all_signals() {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set, which sigprocmask only reads.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Gives every signal its default disposition, so that programs do not inherit what was ignored by
/// whoever started us (`nohup`, a shell without job control). SIGPIPE stays ignored for ourselves;
/// [`crate::launch`] resets it in the child.
pub fn reset_dispositions() {
    for signal in 1..=64 {
        if signal != libc::SIGPIPE {
            // SAFETY: SIG_DFL installs no handler; SIGKILL, SIGSTOP and reserved numbers fail without effect.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
}
