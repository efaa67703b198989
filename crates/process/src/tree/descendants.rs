//! What descends from this process, for trees whose orphans fall to it.

use super::members;
use rustix::process::Signal;
use std::collections::BTreeSet;

/// Each descendant of this process with its parent, parents first; without the children in `except` and
/// what descends from them.
fn descendants(except: &BTreeSet<i32>) -> Vec<(i32, i32)> {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let mut found = Vec::new();
    let mut seen = except.clone();
    seen.insert(me);
    let mut parents = vec![me];
    while let Some(parent) = parents.pop() {
        for child in members::children(parent) {
            if seen.insert(child) {
                found.push((child, parent));
                parents.insert(0, child);
            }
        }
    }
    found
}

/// Sends a signal to each of them. A process whose parent changed meanwhile was orphaned, and its new parent is
/// this process.
pub fn signal_all(signal: Signal, except: &BTreeSet<i32>) {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    for (pid, parent) in descendants(except) {
        members::signal_member(pid, signal, |pid| {
            members::parent(pid).is_some_and(|p| p == parent || p == me)
        });
    }
}

/// Stops all first, so that nothing forks away, until a round finds nobody new; then kills all.
pub fn kill_all(except: &BTreeSet<i32>) {
    let mut known = BTreeSet::new();
    for _ in 0..16 {
        let now: BTreeSet<i32> = descendants(except).into_iter().map(|(pid, _)| pid).collect();
        if now.is_subset(&known) {
            break;
        }
        known.extend(now);
        signal_all(Signal::STOP, except);
    }
    signal_all(Signal::KILL, except);
}
