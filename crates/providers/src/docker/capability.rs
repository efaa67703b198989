//! The capabilities of a container: which are left, and what an added one takes away.

use super::options::Options;
use std::collections::BTreeSet;
use stead_types::Axis;

/// What a package install needs, and no more.
const DEFAULT: [&str; 6] = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"];

/// What the supervisor needs to run commands as another user than its own and to end them again.
const SWITCH_USER: [&str; 3] = ["KILL", "SETGID", "SETUID"];

/// With one of these there are known ways out of a container.
const WAYS_OUT: [&str; 10] = [
    "ALL",
    "BPF",
    "DAC_READ_SEARCH",
    "MKNOD",
    "PERFMON",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_RAWIO",
];

/// Whether it is among those that stay without being asked for.
pub fn is_default(name: &str) -> bool {
    DEFAULT.contains(&name)
}

/// What is known not to hold once it is added.
pub fn axes_lost(name: &str) -> &'static [Axis] {
    if WAYS_OUT.contains(&name) {
        return &Axis::ALL;
    }
    if name.starts_with("NET_") {
        return &[Axis::PrivilegeEscalationBlocked, Axis::NetworkRestricted];
    }
    &[Axis::PrivilegeEscalationBlocked]
}

/// What a container is left with, by name.
pub fn granted(options: &Options) -> BTreeSet<String> {
    let drops = |name: &str| options.cap_drop.iter().any(|drop| drop == name || drop == "ALL");
    let kept = DEFAULT.into_iter().filter(|name| !drops(name)).map(str::to_owned);
    kept.chain(options.cap_add.iter().cloned()).collect()
}

/// Whether commands can run as another user than the supervisor.
pub fn can_switch_user(granted: &BTreeSet<String>) -> bool {
    granted.contains("ALL") || SWITCH_USER.iter().all(|name| granted.contains(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(drop: &[&str], add: &[&str]) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let options = Options {
            cap_drop: owned(drop),
            cap_add: owned(add),
            ..Options::default()
        };
        granted(&options).into_iter().collect()
    }

    #[test]
    fn drops_come_before_additions() {
        assert_eq!(left(&[], &[]), DEFAULT);
        assert_eq!(left(&["ALL"], &[]), [""; 0]);
        assert_eq!(left(&["ALL"], &["CHOWN"]), ["CHOWN"]);
        assert_eq!(
            left(&["SETUID"], &[]),
            ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID"]
        );
    }

    #[test]
    fn without_kill_another_users_processes_could_not_be_ended() {
        let can = |drop: &str| {
            let options = Options {
                cap_drop: vec![drop.to_owned()],
                ..Options::default()
            };
            can_switch_user(&granted(&options))
        };
        assert!(can("CHOWN"));
        assert!(!can("KILL"));
        assert!(!can("SETUID"));
    }
}
