//! Which system calls work in a place, as data: the supervisor makes filters of it, and so does an engine that is
//! given it as a profile.
//!
//! What is not named here is answered with ENOSYS, so that a program that tries a call of a later kernel falls back to
//! an older one. What is in [`REFUSED`] is answered with EPERM: there a program should be told that it may not.

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

/// Flags of clone(2) and unshare(2) that make namespaces: for mounts, cgroups, names, queues, users, processes,
/// networks. Numbers of the kernel's interface, the same on all architectures.
const NEW_NAMESPACES: u64 =
    0x2_0000 | 0x200_0000 | 0x400_0000 | 0x800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;

/// The same for clocks. It shares a bit with the signal that clone(2) is given, so it counts for unshare(2) alone.
const NEW_CLOCKS: u64 = 0x80;

/// Input that is put into a terminal as if it was typed, and the console's own way to do so.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;

/// Families of sockets that can be made: unix, IPv4, IPv6, netlink (which programs list interfaces with).
const FAMILIES: &[u64] = &[1, 2, 10, 16];

/// Families of which pairs can be made: unix.
const PAIRS: &[u64] = &[1];

/// Personalities that do not switch protections off: Linux, with 32 bit addresses, and the question for it.
const PERSONALITIES: &[u64] = &[0, 0x8, 0x2_0000, 0x2_0008, 0xffff_ffff];

/// What an argument must be for a call to be let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// Its low 32 bits are one of these; the kernel takes no more of it.
    OneOf(&'static [u64]),
    /// Its low 32 bits are none of these.
    NoneOf(&'static [u64]),
    /// It has none of these bits.
    Without(u64),
}

/// Calls that are let through with some arguments: the name, which argument from 0 on, and what it must be. clone3
/// has its flags in memory, where no filter sees them: it is not there, and programs use clone.
pub const CONDITIONAL: [(&str, u8, Argument); 6] = [
    ("clone", 0, Argument::Without(NEW_NAMESPACES)),
    ("unshare", 0, Argument::Without(NEW_NAMESPACES | NEW_CLOCKS)),
    ("ioctl", 1, Argument::NoneOf(&[TIOCSTI, TIOCLINUX])),
    ("socket", 0, Argument::OneOf(FAMILIES)),
    ("socketpair", 0, Argument::OneOf(PAIRS)),
    ("personality", 0, Argument::OneOf(PERSONALITIES)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_call_is_named_twice() {
        let lists = ALLOWED.iter().map(|(_, names)| *names).chain([REFUSED]);
        let conditional = CONDITIONAL.iter().map(|(name, _, _)| *name);
        let mut seen = BTreeSet::new();
        for name in lists.flat_map(str::split_ascii_whitespace).chain(conditional) {
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
}
