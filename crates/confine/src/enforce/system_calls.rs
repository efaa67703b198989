//! The filter of system calls: what is allowed is let through, what is refused by name gets EPERM, and all else ENOSYS.

use super::bpf::{self, Verdict};
use super::{During, StepFailed};
use crate::system_calls::{ALLOWED, CONDITIONAL, REFUSED};
use std::collections::BTreeMap;
use syscalls::Sysno;

/// EPERM and ENOSYS.
const NOT_PERMITTED: u16 = 1;
const NO_SUCH_CALL: u16 = 38;

/// Refuses this process, and all that it starts, every other call.
pub fn restrict() -> Result<(), StepFailed> {
    stead_sys::filter_system_calls(&bpf::program(&table(), Verdict::Refuse(NO_SUCH_CALL)))
        .during("restrict the system calls")
}

/// Calls that a kernel in user space answers wrongly: not there is better. clone3 for its flags, which no filter sees;
/// statx because gVisor of 2022 refuses a flag that `ls` gives it, and without it the C library asks by an older call.
const GUEST_MISSING: &str = "clone3 statx";

/// The same where the kernel that is spoken to is one in user space, which walls the place in by itself: what would
/// be refused by name is refused, and so are namespaces. All else is that kernel's to answer; each further rule would
/// cost in every call.
pub fn restrict_guest() -> Result<(), StepFailed> {
    stead_sys::filter_system_calls(&bpf::program(&guest_table(), Verdict::Allow))
        .during("restrict the system calls")
}

/// The verdicts on what such a kernel is not asked.
pub(super) fn guest_table() -> BTreeMap<u32, Verdict> {
    let mut table: BTreeMap<u32, Verdict> = all(REFUSED, Verdict::Refuse(NOT_PERMITTED)).collect();
    table.extend(all(GUEST_MISSING, Verdict::Refuse(NO_SUCH_CALL)));
    for (name, at, argument) in CONDITIONAL {
        if matches!(name, "clone" | "unshare") {
            table.extend(all(name, Verdict::If(at, argument, NOT_PERMITTED)));
        }
    }
    table
}

/// The verdicts by the numbers that calls have here.
pub(super) fn table() -> BTreeMap<u32, Verdict> {
    let mut table: BTreeMap<u32, Verdict> = BTreeMap::new();
    for (_, names) in ALLOWED {
        table.extend(all(names, Verdict::Allow));
    }
    for (name, at, argument) in CONDITIONAL {
        table.extend(all(name, Verdict::If(at, argument, NO_SUCH_CALL)));
    }
    table.extend(all(REFUSED, Verdict::Refuse(NOT_PERMITTED)));
    table
}

fn all(names: &'static str, verdict: Verdict) -> impl Iterator<Item = (u32, Verdict)> {
    let numbers = names.split_ascii_whitespace().filter_map(number);
    numbers.map(move |number| (number, verdict))
}

fn number(name: &str) -> Option<u32> {
    name.parse::<Sysno>()
        .ok()
        .and_then(|number| u32::try_from(number.id()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all_allowed() -> Vec<&'static str> {
        let lists = ALLOWED
            .iter()
            .flat_map(|(_, names)| names.split_ascii_whitespace());
        let ruled = CONDITIONAL.iter().map(|(name, _, _)| *name);
        lists.chain(ruled).collect()
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
}
