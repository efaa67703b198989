//! Whether this kernel lets us make places, and which setting forbids it if not.

use std::fs;
use stead_types::Availability;

/// Settings of which each can forbid user namespaces to ordinary users, the value that does so, and how to allow
/// them again.
const FORBID: [(&str, &str, &str); 3] = [
    (
        "/proc/sys/user/max_user_namespaces",
        "0",
        "Run as root: sysctl -w user.max_user_namespaces=15000",
    ),
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "Run as root: sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "Run as root: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
];

/// Looks at what can be seen without making a place.
pub fn probe() -> Availability {
    let is_root = rustix::process::geteuid().is_root();
    // Root enters a user namespace too, but is stopped by its number alone.
    let applies = FORBID.iter().take(if is_root { 1 } else { FORBID.len() });
    for (setting, forbidding, remedy) in applies {
        if fs::read_to_string(setting).is_ok_and(|value| value.trim() == *forbidding) {
            return Availability::missing(
                "namespaces_forbidden",
                format!("{setting} is {forbidding}, which forbids user namespaces"),
                *remedy,
            );
        }
    }
    if !fs::exists("/proc/self/ns/user").unwrap_or(false) {
        return Availability::missing(
            "namespaces_missing",
            "this kernel has no user namespaces",
            "Use a kernel that is built with CONFIG_USER_NS, or another provider.",
        );
    }
    if !has_landlock() {
        return Availability::missing(
            "landlock_missing",
            "this kernel has no Landlock, or it is not switched on",
            "Add landlock to the kernel's lsm= list, or use a kernel from 6.2 on; or use another provider.",
        );
    }
    Availability::Available
}

fn has_landlock() -> bool {
    match fs::read_to_string("/sys/kernel/security/lsm") {
        Ok(list) => list.trim().split(',').any(|module| module == "landlock"),
        // Not mounted for us: the supervisor will see.
        Err(_) => true,
    }
}
