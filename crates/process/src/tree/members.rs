//! Signalling processes that are not our children without hitting a stranger with the same number.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;

/// A signal by its number.
pub fn signal(number: i32) -> Option<Signal> {
    if !(1..=64).contains(&number) {
        return None;
    }
    Signal::from_named_raw(number)
}

/// Sends `signal` to `pid` if, once the process is pinned by a pidfd, `still_member` says that this
/// number is a member. If the member died before the pidfd was opened, the pidfd names a stranger and
/// `still_member` is false; if it dies after, the signal goes nowhere.
pub fn signal_member(pid: i32, signal: Signal, still_member: impl FnOnce(i32) -> bool) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    let pinned = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pinned) => Some(pinned),
        // A kernel in user space, such as gVisor's, in which all processes are the place's: a stranger would be one
        // of them, and the number would have to go round between the look and the signal.
        Err(rustix::io::Errno::NOSYS) => None,
        Err(_) => return,
    };
    if !still_member(pid.as_raw_nonzero().get()) {
        return;
    }
    // Gone meanwhile is fine.
    let _ = match &pinned {
        Some(pinned) => pidfd_send_signal(pinned, signal),
        None => rustix::process::kill_process(pid, signal),
    };
}

/// Parent of a process, `None` when it is gone.
pub fn parent(pid: i32) -> Option<i32> {
    stat_field(pid, 1)?.parse().ok()
}

/// Whether a process has ended and was not waited for; one that is gone counts as such.
pub fn is_zombie(pid: i32) -> bool {
    stat_field(pid, 0).is_none_or(|state| matches!(&state[..], "Z" | "X"))
}

/// A field of /proc/PID/stat, counted from the one behind the name.
fn stat_field(pid: i32, index: usize) -> Option<String> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows its last ')' is plain.
    let after = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(stat.get(after + 1..)?).ok()?;
    text.split_ascii_whitespace().nth(index).map(str::to_owned)
}

/// Children of a process, in no order.
pub fn children(pid: i32) -> Vec<i32> {
    match fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        Ok(text) => {
            let mut pids = numbers(&text);
            // Other threads have children of their own.
            if let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) {
                for task in tasks
                    .flatten()
                    .filter(|task| task.file_name() != *pid.to_string())
                {
                    pids.extend(numbers(
                        &fs::read_to_string(task.path().join("children")).unwrap_or_default(),
                    ));
                }
            }
            pids
        }
        // A kernel without that file: look at everybody's parent.
        Err(_) => all_processes()
            .filter(|candidate| parent(*candidate) == Some(pid))
            .collect(),
    }
}

fn all_processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

/// Numbers of a text, separated by white space.
pub fn numbers(text: &str) -> Vec<i32> {
    text.split_ascii_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect()
}
