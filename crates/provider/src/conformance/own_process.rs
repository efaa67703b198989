//! What the process that runs the kit knows of itself: memory, descriptors, threads, children.

use std::future::Future;
use std::time::Duration;

const SAMPLE: Duration = Duration::from_millis(20);

/// Bytes of memory that are resident, where the system tells.
fn resident() -> Option<u64> {
    status("VmRSS:").map(|kibibytes| kibibytes << 10)
}

fn status(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Runs something and says by how much this process had grown at the worst moment.
pub(super) async fn resident_while<F: Future>(work: F) -> (F::Output, Option<u64>) {
    let before = resident();
    let mut highest = before;
    tokio::pin!(work);
    let output = loop {
        tokio::select! {
            biased;
            output = &mut work => break output,
            () = tokio::time::sleep(SAMPLE) => highest = highest.max(resident()),
        }
    };
    highest = highest.max(resident());
    (
        output,
        highest
            .zip(before)
            .map(|(highest, before)| highest.saturating_sub(before)),
    )
}

/// What this process holds of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) descriptors: usize,
    pub(super) threads: u64,
    pub(super) zombies: usize,
}

/// Counts what this process holds, where the system tells.
pub(super) fn held() -> Option<Held> {
    let descriptors = std::fs::read_dir("/proc/self/fd").ok()?.count();
    Some(Held {
        descriptors,
        threads: status("Threads:")?,
        zombies: dead_children()?,
    })
}

/// Children of this process that ended and that nobody has reaped.
fn dead_children() -> Option<usize> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let dead = |stat: &str| {
        // The name of the program stands in parentheses and may hold anything.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.next() == Some("Z") && fields.next() == Some(own.as_str())
    };
    let stats = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    Some(stats.filter(|stat| dead(stat)).count())
}
