//! Where our own cgroup is, in the hierarchy of one version.

use std::fs;
use std::io;
use std::path::PathBuf;

/// A mounted hierarchy of cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// Version 2, also without controllers beside version 1.
    Unified,
    /// The freezer of version 1.
    Freezer,
}

impl Hierarchy {
    /// Makes the cgroup of an instance below our own, and checks that it can be used.
    pub fn make_parent(self, name: &str) -> io::Result<PathBuf> {
        let own = self.own_cgroup().ok_or(io::ErrorKind::NotFound)?;
        let parent = own.join(format!("stead-{name}"));
        fs::create_dir(&parent)?;
        // Without cgroup.kill (before Linux 5.14) the freezer or a reaper does better.
        let needed = match self {
            Self::Unified => "cgroup.kill",
            Self::Freezer => "freezer.state",
        };
        if !parent.join(needed).exists() {
            let _ = fs::remove_dir(&parent);
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(parent)
    }

    fn own_cgroup(self) -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        Some(self.mount(&mounts)?.join(self.path(&own)?))
    }

    /// Where it is mounted, by the lines of /proc/self/mounts.
    fn mount(self, mounts: &str) -> Option<PathBuf> {
        let ours = |fields: &Vec<&str>| match self {
            Self::Unified => fields.get(2) == Some(&"cgroup2"),
            Self::Freezer => {
                fields.get(2) == Some(&"cgroup") && fields.get(3).is_some_and(|options| has_freezer(options))
            }
        };
        mounts
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .find(ours)
            .and_then(|fields| fields.get(1).copied())
            .map(PathBuf::from)
    }

    /// Our path in it, by the lines of /proc/self/cgroup: `number:controllers:/path`.
    fn path(self, own: &str) -> Option<&str> {
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let ours = match self {
                Self::Unified => number == "0" && controllers.is_empty(),
                Self::Freezer => has_freezer(controllers),
            };
            ours.then(|| path.trim_start_matches('/'))
        })
    }
}

fn has_freezer(list: &str) -> bool {
    list.split(',').any(|word| word == "freezer")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID_MOUNTS: &str = "tmpfs /sys/fs/cgroup tmpfs ro 0 0\n\
        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
        cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
        cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n";
    const HYBRID_OWN: &str = "7:cpu:/a\n3:freezer:/b\n1:name=systemd:/c\n0::/d:e/f\n";

    #[test]
    fn each_hierarchy_is_found_among_the_others() {
        let at = |hierarchy: Hierarchy| {
            let mount = hierarchy.mount(HYBRID_MOUNTS)?;
            Some(mount.join(hierarchy.path(HYBRID_OWN)?))
        };
        assert_eq!(
            at(Hierarchy::Unified),
            Some("/sys/fs/cgroup/unified/d:e/f".into())
        );
        assert_eq!(at(Hierarchy::Freezer), Some("/sys/fs/cgroup/freezer/b".into()));
    }

    #[test]
    fn what_is_not_mounted_is_not_found() {
        let only = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        assert_eq!(Hierarchy::Unified.mount(only), Some("/sys/fs/cgroup".into()));
        assert_eq!(Hierarchy::Freezer.mount(only), None);
        assert_eq!(Hierarchy::Freezer.path("0::/x\n"), None);
        assert_eq!(Hierarchy::Unified.path("3:freezer:/b\n"), None);
    }
}
