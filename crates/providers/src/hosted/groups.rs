//! The cgroups of a place: which hierarchies limit what, where one of ours can be made, and what is written there.

use rustix::fs::Access;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use stead_confine::ControlGroup;
use stead_types::{ProvisionError, Resources};

/// Processes of a place unless the configuration says otherwise, where there is a cgroup to hold them: the same as
/// with `docker`, so that a hostile command does the same little harm.
pub const PIDS: u64 = 512;

/// The same for bytes of memory.
pub const MEMORY: u64 = 2 << 30;

/// Microseconds of the period in which processor time is counted; the kernel's own default.
const PERIOD: u64 = 100_000;

/// A limit that a hierarchy can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Controller {
    Cpu,
    Memory,
    Pids,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];

    fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

/// A directory below which a cgroup of ours can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Parent {
    path: PathBuf,
    controllers: BTreeSet<Controller>,
    unified: bool,
    /// Whether memory and swap are counted together, so that a limit of memory alone would only move it.
    counts_swap: bool,
}

/// Where on this host cgroups can be made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hierarchies(Vec<Parent>);

impl Hierarchies {
    /// Looks at this host.
    pub fn look() -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        Ok(Self::find(&mounts, &own, Path::new("/")))
    }

    /// By the lines of /proc/self/mounts and /proc/self/cgroup, on a host whose files are below `root`.
    fn find(mounts: &str, own: &str, root: &Path) -> Self {
        let mut parents = Vec::new();
        for fields in mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()) {
            let [_, mount, kind, options, ..] = fields[..] else {
                continue;
            };
            let at = |path: &str| {
                root.join(mount.trim_start_matches('/'))
                    .join(path.trim_start_matches('/'))
            };
            let found = match kind {
                "cgroup2" => {
                    path_of(own, |number, _| number == "0").and_then(|path| unified(&at(""), &at(path)))
                }
                "cgroup" => {
                    let named: BTreeSet<&str> = options.split(',').collect();
                    let controllers = Controller::ALL
                        .into_iter()
                        .filter(|one| named.contains(one.name()));
                    let controllers: BTreeSet<_> = controllers.collect();
                    path_of(own, |_, list| {
                        list.split(',')
                            .any(|name| controllers.iter().any(|one| one.name() == name))
                    })
                    .and_then(|path| single(&at(path), controllers))
                }
                _ => None,
            };
            parents.extend(found);
        }
        Self(parents)
    }

    fn holder(&self, controller: Controller) -> Option<&Parent> {
        self.0
            .iter()
            .find(|parent| parent.controllers.contains(&controller))
    }
}

/// The path in a line `number:controllers:path` that is wanted.
fn path_of(own: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<&str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        wanted(number, controllers).then_some(path)
    })
}

fn can_make(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

/// Version 1: below our own cgroup.
fn single(own: &Path, controllers: BTreeSet<Controller>) -> Option<Parent> {
    (!controllers.is_empty() && can_make(own)).then(|| Parent {
        path: own.to_owned(),
        controllers,
        unified: false,
        counts_swap: own.join("memory.memsw.limit_in_bytes").exists(),
    })
}

/// Version 2: below the nearest cgroup above us that hands controllers down. Our own holds processes, and such a
/// one hands nothing down.
fn unified(mount: &Path, own: &Path) -> Option<Parent> {
    let mut best: Option<Parent> = None;
    for path in own.ancestors().take_while(|path| path.starts_with(mount)) {
        if !can_make(path) {
            break;
        }
        let handed = fs::read_to_string(path.join("cgroup.subtree_control")).unwrap_or_default();
        let handed: BTreeSet<&str> = handed.split_ascii_whitespace().collect();
        let controllers = Controller::ALL
            .into_iter()
            .filter(|one| handed.contains(one.name()));
        let controllers: BTreeSet<_> = controllers.collect();
        if controllers.len() > best.as_ref().map_or(0, |best| best.controllers.len()) {
            best = Some(Parent {
                path: path.to_owned(),
                controllers,
                unified: true,
                counts_swap: false,
            });
        }
    }
    best
}

/// The cgroups that hold what is asked for. A limit that was asked for and that no hierarchy can hold is an error;
/// the default limit of processes is set where it can be.
pub fn plan(
    provider: &str,
    resources: &Resources,
    hierarchies: &Hierarchies,
    name: &str,
) -> Result<Vec<ControlGroup>, ProvisionError> {
    let asked = [
        (Controller::Cpu, resources.cpu.is_some()),
        (Controller::Memory, resources.memory.is_some()),
        (Controller::Pids, resources.pids.is_some()),
    ];
    for (controller, asked) in asked {
        if asked && hierarchies.holder(controller).is_none() {
            return Err(ProvisionError::Unsupported {
                provider: provider.to_owned(),
                key: format!("resources.{}", controller.name()),
                reason: format!(
                    "there is no cgroup with the controller {} below which this user could make one",
                    controller.name()
                ),
            });
        }
    }
    let mut groups: Vec<ControlGroup> = Vec::new();
    for controller in Controller::ALL {
        let Some(parent) = hierarchies.holder(controller) else {
            continue;
        };
        let settings = settings(controller, resources, parent);
        if settings.is_empty() {
            continue;
        }
        let path = parent.path.join(name);
        match groups.iter_mut().find(|group| group.path == path) {
            Some(group) => group.settings.extend(settings),
            None => groups.push(ControlGroup { path, settings }),
        }
    }
    Ok(groups)
}

fn settings(controller: Controller, resources: &Resources, parent: &Parent) -> Vec<(String, String)> {
    let set = |file: &str, value: String| (file.to_owned(), value);
    match (controller, parent.unified) {
        (Controller::Pids, _) => vec![set("pids.max", resources.pids.unwrap_or(PIDS).to_string())],
        (Controller::Memory, unified) => {
            let bytes = resources.memory.unwrap_or(MEMORY).to_string();
            let (limit, with_swap) = match unified {
                true => ("memory.max", Some(("memory.swap.max", "0".to_owned()))),
                false => {
                    let counted = parent
                        .counts_swap
                        .then(|| ("memory.memsw.limit_in_bytes", bytes.clone()));
                    ("memory.limit_in_bytes", counted)
                }
            };
            // Without swap: a limit that is only slower is none.
            let swap = with_swap.map(|(file, value)| set(file, value));
            [Some(set(limit, bytes)), swap].into_iter().flatten().collect()
        }
        (Controller::Cpu, unified) => match resources.cpu {
            None => Vec::new(),
            Some(cpu) => {
                // The kernel takes no quota under a millisecond.
                let quota = ((cpu * PERIOD as f64).round() as u64).max(1000);
                match unified {
                    true => vec![set("cpu.max", format!("{quota} {PERIOD}"))],
                    false => vec![
                        set("cpu.cfs_period_us", PERIOD.to_string()),
                        set("cpu.cfs_quota_us", quota.to_string()),
                    ],
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(root: &Path, files: &[(&str, &str)]) {
        for (path, content) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    fn all() -> Resources {
        Resources {
            cpu: Some(0.5),
            memory: Some(64 << 20),
            pids: Some(20),
            disk: None,
        }
    }

    fn shown(groups: &[ControlGroup], root: &Path) -> String {
        let line = |group: &ControlGroup| {
            let path = group.path.strip_prefix(root).unwrap().display().to_string();
            format!("{path} {:?}", group.settings)
        };
        groups.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn version_1_has_a_cgroup_for_each_hierarchy() {
        let dir = tempfile::tempdir().unwrap();
        files(
            dir.path(),
            &[
                ("cg/memory/a/memory.memsw.limit_in_bytes", ""),
                ("cg/cpu,cpuacct/a/x", ""),
                ("cg/pids/a/x", ""),
            ],
        );
        let mounts = "cgroup /cg/memory cgroup rw,memory 0 0\ncgroup /cg/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
            cgroup /cg/pids cgroup rw,pids 0 0\ncgroup2 /cg/unified cgroup2 rw 0 0\n";
        let own = "3:memory:/a\n2:cpu,cpuacct:/a\n1:pids:/a\n0::/a\n";
        let found = Hierarchies::find(mounts, own, dir.path());
        assert_eq!(
            shown(&plan("native", &all(), &found, "n").unwrap(), dir.path()),
            "cg/cpu,cpuacct/a/n [(\"cpu.cfs_period_us\", \"100000\"), (\"cpu.cfs_quota_us\", \"50000\")]\n\
             cg/memory/a/n [(\"memory.limit_in_bytes\", \"67108864\"), (\"memory.memsw.limit_in_bytes\", \"67108864\")]\n\
             cg/pids/a/n [(\"pids.max\", \"20\")]"
        );
    }

    #[test]
    fn version_2_uses_the_nearest_cgroup_that_hands_all_down() {
        let dir = tempfile::tempdir().unwrap();
        files(
            dir.path(),
            &[
                ("cg/cgroup.subtree_control", "cpu memory pids io"),
                ("cg/user/cgroup.subtree_control", "cpu memory pids"),
                ("cg/user/app/cgroup.subtree_control", "memory pids"),
                ("cg/user/app/me/cgroup.subtree_control", ""),
            ],
        );
        let found = Hierarchies::find("cgroup2 /cg cgroup2 rw 0 0\n", "0::/user/app/me\n", dir.path());
        assert_eq!(
            shown(&plan("native", &all(), &found, "n").unwrap(), dir.path()),
            "cg/user/n [(\"cpu.max\", \"50000 100000\"), (\"memory.max\", \"67108864\"), (\"memory.swap.max\", \"0\"), \
             (\"pids.max\", \"20\")]"
        );
    }

    #[test]
    fn a_limit_that_nothing_can_hold_is_refused_and_the_default_is_not_missed() {
        let none = Hierarchies::default();
        for (key, resources) in [
            (
                "resources.cpu",
                Resources {
                    cpu: Some(1.0),
                    ..Resources::default()
                },
            ),
            (
                "resources.memory",
                Resources {
                    memory: Some(1 << 30),
                    ..Resources::default()
                },
            ),
            (
                "resources.pids",
                Resources {
                    pids: Some(5),
                    ..Resources::default()
                },
            ),
        ] {
            let refused = plan("native", &resources, &none, "n").unwrap_err();
            assert!(matches!(refused, ProvisionError::Unsupported { key: named, .. } if named == key));
        }
        assert_eq!(plan("native", &Resources::default(), &none, "n").unwrap(), []);
    }
}
