//! Filters of system calls.

use std::io;

/// One instruction of the classic filter machine, `struct sock_filter` of linux/filter.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct FilterInstruction {
    /// What is done.
    pub code: u16,
    /// Instructions that are passed over when a comparison holds.
    pub if_true: u8,
    /// The same when it does not.
    pub if_false: u8,
    /// The operand.
    pub value: u32,
}

/// `struct sock_fprog` of linux/filter.h.
#[repr(C)]
struct Program {
    length: u16,
    instructions: *const FilterInstruction,
}

/// Filters the system calls of this thread and of all that it starts, for good. The kernel checks the program and
/// refuses one that could loop, end without a result or reach outside. Needs no_new_privs or CAP_SYS_ADMIN.
pub fn filter_system_calls(program: &[FilterInstruction]) -> io::Result<()> {
    const SECCOMP_SET_MODE_FILTER: u64 = 1;
    let program = Program {
        length: u16::try_from(program.len()).map_err(io::Error::other)?,
        instructions: program.as_ptr(),
    };
    // SAFETY: the structure is the kernel's, says the true length, and outlives the call, which copies all of it.
    match unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SECCOMP_SET_MODE_FILTER,
            0u64,
            &raw const program,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
