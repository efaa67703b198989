//! A child that shares our memory until it executes its program, as `posix_spawn` makes it: nothing is
//! copied, however large we are, and the child can tell us by memory what failed.
//!
//! The C library has no wrapper that also takes a cgroup, so the system call is made here.

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

pub(crate) const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Bytes of the child's stack. It runs a few small functions that allocate nothing.
const STACK: usize = 64 * 1024;

/// What the child runs. It must not return, panic, allocate or take a lock.
pub type Entry = extern "C" fn(*const ()) -> !;

/// Makes a child that runs `entry(argument)`, and waits until it has executed a program or ended.
///
/// # Safety
/// `argument` must be valid for `entry` until then. `entry` must keep to what its type says: it runs in our
/// memory while this thread stands still.
pub unsafe fn vfork_into(
    cgroup: Option<BorrowedFd<'_>>,
    entry: Entry,
    argument: *const (),
) -> io::Result<i32> {
    // 16 bytes is the alignment that both ABIs want of a stack.
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / size_of::<u128>());
    let bottom = stack.as_mut_ptr() as u64;
    let flags = (libc::CLONE_VM | libc::CLONE_VFORK) as u64;
    let exit_signal = libc::SIGCHLD as u64;
    let result = match cgroup {
        Some(fd) => {
            let args = libc::clone_args {
                flags: flags | CLONE_INTO_CGROUP,
                pidfd: 0,
                child_tid: 0,
                parent_tid: 0,
                exit_signal,
                stack: bottom,
                stack_size: STACK as u64,
                tls: 0,
                set_tid: 0,
                set_tid_size: 0,
                cgroup: u64::try_from(fd.as_raw_fd()).unwrap_or(0),
            };
            let arguments = [(&raw const args) as usize, size_of::<libc::clone_args>()];
            // SAFETY: the structure is complete and as long as stated; the rest is the caller's promise.
            unsafe { clone(libc::SYS_clone3, arguments, entry, argument) }
        }
        // Without a cgroup the older call does, which filters of container engines let through.
        None => {
            let arguments = [(flags | exit_signal) as usize, bottom as usize + STACK];
            // SAFETY: the stack is ours and as large as stated; the rest is the caller's promise.
            unsafe { clone(libc::SYS_clone, arguments, entry, argument) }
        }
    };
    drop(stack);
    match i32::try_from(result) {
        Ok(pid) if pid > 0 => Ok(pid),
        _ => Err(io::Error::from_raw_os_error(
            i32::try_from(-result).unwrap_or(libc::EINVAL),
        )),
    }
}

/// The call itself. In the child the stack pointer is the new stack's and all other registers are as they
/// were, so that it calls `entry` at once and never comes back here.
///
/// # Safety
/// The arguments must be right for the call and name a stack; `entry` as for [`vfork_into`].
#[cfg(target_arch = "x86_64")]
unsafe fn clone(number: c_long, arguments: [usize; 2], entry: Entry, argument: *const ()) -> c_long {
    let result: c_long;
    // SAFETY: the kernel clobbers rax, rcx and r11 only; the child leaves through `entry`. The third to fifth
    // arguments of SYS_clone are not looked at without the flags that name them.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            // Registers of our choice: one that the compiler chose could be the frame pointer, which is cleared.
            "mov rdi, r13",
            "xor ebp, ebp",
            "call r12",
            "ud2",
            "2:",
            in("r12") entry,
            in("r13") argument,
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            out("rcx") _,
            out("r11") _,
        );
    }
    result
}

/// As above.
///
/// # Safety
/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone(number: c_long, arguments: [usize; 2], entry: Entry, argument: *const ()) -> c_long {
    let result: c_long;
    // SAFETY: the kernel clobbers x0 only; the child leaves through `entry`.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x0, x21",
            "mov x29, xzr",
            "blr x20",
            "brk 1",
            "2:",
            in("x20") entry,
            in("x21") argument,
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") 0,
            in("x3") 0,
            in("x4") 0,
        );
    }
    result
}
