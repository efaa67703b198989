//! Which system calls work in a place.
//!
//! Two filters. The first lets through [`ALLOWED`] and what the rules on arguments say, and answers ENOSYS to all
//! else, so that a program that tries a call of a later kernel falls back to an older one. The second answers EPERM
//! to [`REFUSED`]: there a program should be told that it may not. Both refuse; the later filter's answer counts.

use super::{During, StepFailed};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;
use syscalls::Sysno;

/// Calls that are let through whatever their arguments, by what they are for. A name that an architecture does
/// not have is none of its calls.
pub const ALLOWED: [(&str, &str); 12] = [
    (
        "files and directories: what can be reached is decided by the mounts",
        "access chdir chmod chown chroot close close_range copy_file_range creat dup dup2 dup3 faccessat \
         faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr \
         file_getattr file_setattr flistxattr flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat \
         getcwd getdents getdents64 getxattr getxattrat lchown lgetxattr link linkat listxattr listxattrat llistxattr \
         lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat newfstatat open openat openat2 pread64 preadv \
         preadv2 pwrite64 pwritev pwritev2 read readahead readlink readlinkat readv removexattr removexattrat rename \
         renameat renameat2 rmdir sendfile setxattr setxattrat splice stat statfs statx symlink symlinkat sync \
         sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev",
    ),
    (
        "waiting for descriptors, and descriptors that stand for events",
        "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 inotify_add_watch \
         inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit \
         pipe pipe2 poll ppoll pselect6 select signalfd signalfd4 timerfd_create timerfd_gettime timerfd_settime",
    ),
    (
        "memory of the process itself",
        "brk cachestat get_mempolicy madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 \
         mlockall mmap mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect \
         process_madvise process_mrelease remap_file_pages set_mempolicy",
    ),
    (
        "processes and signals: only those of the place can be named",
        "execve execveat exit exit_group fork kill pause pidfd_getfd pidfd_open pidfd_send_signal process_vm_readv \
         process_vm_writev ptrace restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn \
         rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sigaltstack tgkill tkill vfork wait4 waitid kcmp",
    ),
    (
        "threads and what they wait with",
        "arch_prctl futex futex_requeue futex_wait futex_waitv futex_wake get_robust_list get_thread_area gettid \
         modify_ldt rseq sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam \
         sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler \
         sched_yield set_robust_list set_thread_area set_tid_address",
    ),
    (
        "who one is; taking on more is refused by capabilities and no_new_privs",
        "capget capset getegid geteuid getgid getgroups getpgid getpgrp getpid getppid getpriority getresgid getresuid \
         getsid getuid ioprio_get ioprio_set prctl setfsgid setfsuid setgid setgroups setpgid setpriority setregid \
         setresgid setresuid setreuid setsid setuid",
    ),
    (
        "limits and usage",
        "getrlimit getrusage prlimit64 setrlimit sysinfo times ustat",
    ),
    (
        "clocks that are read, and timers",
        "alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time \
         timer_create timer_delete timer_getoverrun timer_gettime timer_settime",
    ),
    (
        "sockets that exist; which kinds can be made, a rule below says",
        "accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg \
         sendmsg sendto setsockopt shutdown",
    ),
    (
        "queues and memory that are shared in the place's own IPC namespace",
        "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl \
         semget semop semtimedop shmat shmctl shmdt shmget",
    ),
    (
        "further restriction of oneself",
        "landlock_add_rule landlock_create_ruleset landlock_restrict_self seccomp",
    ),
    (
        "facts about the machine that programs choose code by",
        "getcpu getrandom riscv_hwprobe uname",
    ),
];

/// Calls that are refused by name, with the reason that holds for all: they reach the kernel's or the machine's own
/// state, or whole families of code where sandboxes were broken out of.
pub const REFUSED: &str = "acct add_key adjtimex bpf clock_adjtime clock_settime create_module delete_module \
    fanotify_init fanotify_mark finit_module fsconfig fsmount fsopen fspick get_kernel_syms init_module io_uring_enter \
    io_uring_register io_uring_setup ioperm iopl kexec_file_load kexec_load keyctl listmount lookup_dcookie lsm_set_self_attr \
    mbind migrate_pages mount mount_setattr move_mount move_pages name_to_handle_at nfsservctl open_by_handle_at open_tree \
    open_tree_attr perf_event_open pivot_root query_module quotactl quotactl_fd reboot request_key set_mempolicy_home_node \
    setdomainname sethostname setns settimeofday statmount stime swapoff swapon syslog umount umount2 userfaultfd vhangup \
    vm86 vm86old";

/// Flags of clone(2) and unshare(2) that make namespaces.
const NEW_NAMESPACES: u64 = (libc_flag::NEWNS
    | libc_flag::NEWCGROUP
    | libc_flag::NEWUTS
    | libc_flag::NEWIPC
    | libc_flag::NEWUSER
    | libc_flag::NEWPID
    | libc_flag::NEWNET) as u64;

/// Numbers of the kernel's interface, the same on all architectures.
mod libc_flag {
    pub const NEWNS: u32 = 0x0002_0000;
    pub const NEWCGROUP: u32 = 0x0200_0000;
    pub const NEWUTS: u32 = 0x0400_0000;
    pub const NEWIPC: u32 = 0x0800_0000;
    pub const NEWUSER: u32 = 0x1000_0000;
    pub const NEWPID: u32 = 0x2000_0000;
    pub const NEWNET: u32 = 0x4000_0000;
    /// Shares a bit with the signal that clone(2) is given, so it counts for unshare(2) alone.
    pub const NEWTIME: u32 = 0x0000_0080;
}

/// Input that is put into a terminal as if it was typed, and the console's own way to do so.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// Families of sockets that can be made: unix, IPv4, IPv6, netlink (which programs list interfaces with).
const FAMILIES: [u64; 4] = [1, 2, 10, 16];

/// Personalities that do not switch protections off: Linux, with 32 bit addresses, and the question for it.
const PERSONALITIES: [u64; 5] = [0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// Refuses this process, and all that it starts, every other call.
pub fn restrict() -> Result<(), StepFailed> {
    for filter in filters().during("make the filters of system calls")? {
        seccompiler::apply_filter(&filter)
            .map_err(io::Error::other)
            .during("restrict the system calls")?;
    }
    Ok(())
}

/// Calls that a kernel in user space answers wrongly: not there is better. clone3 for its flags, as above; statx
/// because gVisor of 2022 refuses a flag that `ls` gives it, and without it the C library asks by an older call.
const GUEST_MISSING: &str = "clone3 statx";

/// The same where the kernel that is spoken to is one in user space, which walls the place in by itself: what would
/// be refused by name is refused, and so are namespaces. All else is that kernel's to answer; each further rule would
/// cost in every call.
pub fn restrict_guest() -> Result<(), StepFailed> {
    for filter in guest_filters().during("make the filters of system calls")? {
        seccompiler::apply_filter(&filter)
            .map_err(io::Error::other)
            .during("restrict the system calls")?;
    }
    Ok(())
}

fn guest_filters() -> io::Result<[BpfProgram; 2]> {
    let flags = u64::from(libc_flag::NEWTIME) | NEW_NAMESPACES;
    let bits = |flags: u64| (0..64).map(|bit| 1 << bit).filter(move |bit| flags & bit != 0);
    let any_of = |flags: u64| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        bits(flags)
            .map(|bit| {
                let set = SeccompCondition::new(0, Length::Qword, Op::MaskedEq(bit), bit)?;
                SeccompRule::new(vec![set])
            })
            .collect()
    };
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> = names([REFUSED]).collect();
    for (name, flags) in [("clone", NEW_NAMESPACES), ("unshare", flags)] {
        if let Some(number) = number(name) {
            refused.insert(number, any_of(flags).map_err(io::Error::other)?);
        }
    }
    let missing = names([GUEST_MISSING]).collect();
    Ok([
        program(refused, SeccompAction::Allow, errno(rustix::io::Errno::PERM))?,
        program(missing, SeccompAction::Allow, errno(rustix::io::Errno::NOSYS))?,
    ])
}

fn errno(number: rustix::io::Errno) -> SeccompAction {
    SeccompAction::Errno(u32::try_from(number.raw_os_error()).unwrap_or(1))
}

/// The two filters, in the order in which they are applied.
pub fn filters() -> io::Result<[BpfProgram; 2]> {
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> =
        names(ALLOWED.iter().map(|(_, names)| *names)).collect();
    for (name, rules) in rules().map_err(io::Error::other)? {
        if let Some(number) = number(name) {
            allowed.insert(number, rules);
        }
    }
    let first = program(allowed, errno(rustix::io::Errno::NOSYS), SeccompAction::Allow)?;
    let refused = names([REFUSED]).collect();
    let second = program(refused, SeccompAction::Allow, errno(rustix::io::Errno::PERM))?;
    Ok([first, second])
}

fn number(name: &str) -> Option<i64> {
    name.parse::<Sysno>().ok().map(|number| i64::from(number.id()))
}

fn names<'n>(lists: impl IntoIterator<Item = &'n str>) -> impl Iterator<Item = (i64, Vec<SeccompRule>)> {
    lists
        .into_iter()
        .flat_map(str::split_ascii_whitespace)
        .filter_map(number)
        .map(|number| (number, Vec::new()))
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    then: SeccompAction,
) -> io::Result<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let filter = SeccompFilter::new(rules, otherwise, then, arch).map_err(io::Error::other)?;
    filter
        .try_into()
        .map_err(|error: seccompiler::BackendError| io::Error::other(error))
}

type Rules = Vec<(&'static str, Vec<SeccompRule>)>;

/// Calls that are let through with some arguments.
fn rules() -> Result<Rules, seccompiler::BackendError> {
    let condition = SeccompCondition::new;
    let one_of = |argument: u8, values: &[u64]| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        values
            .iter()
            .map(|value| SeccompRule::new(vec![condition(argument, Length::Dword, Op::Eq, *value)?]))
            .collect()
    };
    let without = |argument: u8, flags: u64| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        let none = condition(argument, Length::Qword, Op::MaskedEq(flags), 0)?;
        Ok(vec![SeccompRule::new(vec![none])?])
    };
    let no_injection = SeccompRule::new(vec![
        condition(1, Length::Dword, Op::Ne, TIOCSTI)?,
        condition(1, Length::Dword, Op::Ne, TIOCLINUX)?,
    ])?;
    Ok(vec![
        // clone3 has its flags in memory, where no filter sees them: it is not there, and programs use clone.
        ("clone", without(0, NEW_NAMESPACES)?),
        (
            "unshare",
            without(0, NEW_NAMESPACES | u64::from(libc_flag::NEWTIME))?,
        ),
        ("ioctl", vec![no_injection]),
        ("socket", one_of(0, &FAMILIES)?),
        ("socketpair", one_of(0, &FAMILIES[..1])?),
        ("personality", one_of(0, &PERSONALITIES)?),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all_allowed() -> Vec<&'static str> {
        let lists = ALLOWED
            .iter()
            .flat_map(|(_, names)| names.split_ascii_whitespace());
        let ruled = rules().unwrap().into_iter().map(|(name, _)| name);
        lists.chain(ruled).collect()
    }

    #[test]
    fn no_call_is_named_twice() {
        let mut seen = BTreeSet::new();
        for name in all_allowed().into_iter().chain(REFUSED.split_ascii_whitespace()) {
            assert!(seen.insert(name), "{name} is there twice");
        }
    }

    #[test]
    fn the_calls_that_the_specification_names_are_refused() {
        let refused: BTreeSet<_> = REFUSED.split_ascii_whitespace().collect();
        for name in "mount kexec_load bpf keyctl userfaultfd perf_event_open io_uring_setup open_by_handle_at"
            .split(' ')
        {
            assert!(refused.contains(name), "{name}");
        }
    }

    #[test]
    fn names_are_those_of_the_kernel() {
        // Calls that only other architectures have, or that are gone.
        let elsewhere =
            "create_module get_kernel_syms nfsservctl query_module riscv_hwprobe stime umount vm86 vm86old";
        let elsewhere: BTreeSet<_> = elsewhere.split(' ').collect();
        let unknown: Vec<_> = all_allowed()
            .into_iter()
            .chain(REFUSED.split_ascii_whitespace())
            .filter(|name| number(name).is_none() && !elsewhere.contains(name))
            .collect();
        if cfg!(target_arch = "x86_64") {
            assert!(unknown.is_empty(), "a typing error: {unknown:?}");
        }
    }

    #[test]
    fn the_filters_fit_the_kernel() {
        for filter in filters().unwrap().into_iter().chain(guest_filters().unwrap()) {
            // BPF_MAXINSNS
            assert!((1..4096).contains(&filter.len()));
        }
    }
}
