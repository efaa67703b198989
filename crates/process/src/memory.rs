//! Whether the kernel has killed for lack of memory: it counts that in the cgroup that limits the place.

use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::Path;

/// The counter's file, in the two generations of cgroups; see cgroup-v2.rst and cgroup-v1/memory.rst of the kernel.
const COUNTERS: [&str; 2] = ["memory.events", "memory.oom_control"];

/// Where a container finds its own cgroup, v2 and v1.
const OWN: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];

/// The open counter, or none where nothing is limited or nothing can be seen.
#[derive(Debug, Default)]
pub struct MemoryWatch(Option<OwnedFd>);

impl MemoryWatch {
    /// The counter of the first of these cgroups that has one.
    pub fn of<P: AsRef<Path>>(groups: impl IntoIterator<Item = P>) -> Self {
        let open = |group: P| {
            COUNTERS.iter().find_map(|name| {
                let path = group.as_ref().join(name);
                rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
            })
        };
        Self(groups.into_iter().find_map(open))
    }

    /// The counter of a container that we are the first process of.
    pub fn of_container() -> Self {
        Self::of(OWN)
    }

    /// How many processes of the place were killed so far.
    pub fn kills(&self) -> u64 {
        let Some(file) = &self.0 else { return 0 };
        let mut text = [0; 512];
        let Ok(length) = rustix::io::pread(file, &mut text, 0) else {
            return 0;
        };
        count(&text[..length])
    }
}

/// The value of the line `oom_kill N`.
fn count(text: &[u8]) -> u64 {
    let text = std::str::from_utf8(text).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    value.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_generations_are_read() {
        assert_eq!(
            count(b"low 0\nhigh 0\nmax 7\noom 2\noom_kill 3\noom_group_kill 4\n"),
            3
        );
        assert_eq!(count(b"oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"), 5);
        assert_eq!(
            count(b"oom_kill_disable 0\nunder_oom 0\n"),
            0,
            "a kernel before 4.13"
        );
        assert_eq!(count(b""), 0);
    }

    #[test]
    fn a_counter_is_read_anew_each_time_and_none_counts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (none, some) = (dir.path().join("none"), dir.path().join("some"));
        std::fs::create_dir_all(&some).unwrap();
        std::fs::write(some.join("memory.events"), "oom_kill 1\n").unwrap();
        let watch = MemoryWatch::of([&none, &some]);
        assert_eq!(watch.kills(), 1);
        std::fs::write(some.join("memory.events"), "oom_kill 2\n").unwrap();
        assert_eq!(watch.kills(), 2);
        assert_eq!(MemoryWatch::of([&none]).kills(), 0);
    }
}
