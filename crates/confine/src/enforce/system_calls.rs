//! The filters of system calls.
//!
//! Two filters. The first lets through what is allowed and answers ENOSYS to all else. The second answers EPERM to what
//! is refused. Both refuse; the later filter's answer counts.

use super::{During, StepFailed};
use crate::system_calls::{ALLOWED, Argument, CONDITIONAL, REFUSED};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Length, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;
use syscalls::Sysno;

/// Refuses this process, and all that it starts, every other call.
pub fn restrict() -> Result<(), StepFailed> {
    for filter in filters().during("make the filters of system calls")? {
        seccompiler::apply_filter(&filter)
            .map_err(io::Error::other)
            .during("restrict the system calls")?;
    }
    Ok(())
}

/// The two filters, in the order in which they are applied.
pub fn filters() -> io::Result<[BpfProgram; 2]> {
    let mut allowed: BTreeMap<i64, Vec<SeccompRule>> =
        names(ALLOWED.iter().map(|(_, names)| *names)).collect();
    for (name, at, argument) in CONDITIONAL {
        if let Some(number) = number(name) {
            allowed.insert(number, rules(at, argument).map_err(io::Error::other)?);
        }
    }
    let errno =
        |number: rustix::io::Errno| SeccompAction::Errno(u32::try_from(number.raw_os_error()).unwrap_or(1));
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

/// The rules of which one must hold.
fn rules(at: u8, argument: Argument) -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let is = |op, value| SeccompCondition::new(at, Length::Dword, op, value);
    match argument {
        Argument::OneOf(values) => values
            .iter()
            .map(|value| SeccompRule::new(vec![is(Op::Eq, *value)?]))
            .collect(),
        Argument::NoneOf(values) => {
            let each: Result<Vec<_>, _> = values.iter().map(|value| is(Op::Ne, *value)).collect();
            Ok(vec![SeccompRule::new(each?)?])
        }
        Argument::Without(bits) => {
            let none = SeccompCondition::new(at, Length::Qword, Op::MaskedEq(bits), 0)?;
            Ok(vec![SeccompRule::new(vec![none])?])
        }
    }
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

    #[test]
    fn the_filters_fit_the_kernel() {
        for filter in filters().unwrap() {
            // BPF_MAXINSNS
            assert!((1..4096).contains(&filter.len()));
        }
    }
}
