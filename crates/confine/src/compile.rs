//! From a policy to a plan.

use crate::host::{Host, RootEntry};
use crate::plan::{
    Bind, Capability, IdRange, LandlockRules, Layers, Namespace, Plan, ResourceLimit, Root, Step,
    UserNamespace,
};
use crate::policy::{Network, Policy};
use std::path::{Path, PathBuf};

/// First id of the host that root's places use: above what distributions give to people and services, and where
/// subordinate ids usually begin.
const FIRST_SUBORDINATE: u32 = 100_000;

/// Ids of a place: all that 16 bits can name, as programs expect.
const IDS: u32 = 65_536;

/// Open files of a process, unless the policy has another number: Docker's and systemd's usual soft limit is
/// lower, but build tools need this.
const OPEN_FILES: u64 = 65_536;

/// Bytes of /dev/shm, as with Docker.
const SHARED_MEMORY: u64 = 64 << 20;

/// Bytes of /run and of the home directory.
const SMALL: u64 = 64 << 20;

/// Devices that say nothing and do no harm.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// What of /proc tells of the whole machine or steers it: Docker's list.
const HIDDEN: [&str; 9] = [
    "acpi",
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "scsi",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
];

/// What of /proc can only be read.
const READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "mtrr", "sys"];

/// The workspace.
const WORKSPACE: &str = "/workspace";

/// Makes the plan that carries out a policy on a host.
pub fn compile(policy: &Policy, host: &Host) -> Plan {
    let mut namespaces = vec![
        Namespace::Mount,
        Namespace::Pid,
        Namespace::Ipc,
        Namespace::Uts,
        Namespace::Cgroup,
    ];
    let own_network = policy.network == Network::None;
    if own_network {
        namespaces.push(Namespace::Net);
    }
    namespaces.sort_unstable();
    Plan {
        groups: policy.groups.clone(),
        namespaces,
        users: users(host),
        hostname: policy.hostname.clone(),
        loopback: own_network,
        root: Root {
            stage: policy.stage.clone(),
            layers: policy.image.as_ref().map(|image| Layers {
                lower: image.layers.clone(),
                changes: image.changes.clone(),
                size: policy.limits.disk,
            }),
            steps: steps(policy, host),
        },
        capabilities: vec![
            Capability::Chown,
            Capability::DacOverride,
            Capability::Fowner,
            Capability::Fsetid,
            Capability::Kill,
            Capability::Setgid,
            Capability::Setuid,
            Capability::NetBindService,
        ],
        limits: vec![
            ResourceLimit::OpenFiles(policy.limits.open_files.unwrap_or(OPEN_FILES)),
            ResourceLimit::CoreFile(0),
        ],
        no_new_privileges: true,
        system_calls: true,
        landlock: Some(landlock(policy, own_network)),
    }
}

fn users(host: &Host) -> UserNamespace {
    if host.is_root {
        let range = IdRange {
            inside: 0,
            outside: FIRST_SUBORDINATE,
            count: IDS,
        };
        return UserNamespace::Last {
            uids: range,
            gids: range,
        };
    }
    let single = |outside| IdRange {
        inside: 0,
        outside,
        count: 1,
    };
    UserNamespace::First {
        uids: single(host.uid),
        gids: single(host.gid),
    }
}

fn steps(policy: &Policy, host: &Host) -> Vec<Step> {
    let mut steps = match policy.image {
        Some(_) => names(policy),
        None => [programs(host), etc(policy, host)].concat(),
    };
    steps.extend(devices());
    steps.push(Step::Proc {
        hidden: HIDDEN.map(str::to_owned).to_vec(),
        read_only: READ_ONLY.map(str::to_owned).to_vec(),
    });
    let memory = |place: &str, mode, size| Step::Memory {
        place: place.into(),
        mode,
        size,
    };
    let disk = policy.limits.disk;
    steps.push(memory("/tmp", 0o1777, disk));
    if policy.image.is_none() {
        steps.extend(homes(disk));
    }
    steps.push(match disk {
        // A directory of the host has no size that it could be held to.
        Some(_) => memory(WORKSPACE, 0o755, disk),
        None => Step::Bind(Bind {
            host: policy.workspace.clone(),
            place: WORKSPACE.into(),
            read_only: false,
            devices: false,
        }),
    });
    for grant in &policy.grants {
        steps.push(Step::Bind(Bind {
            host: grant.host.clone(),
            place: grant.place.clone(),
            read_only: grant.read_only,
            devices: false,
        }));
    }
    steps
}

/// What a place with the host's programs has of its own; an image brings these.
fn homes(disk: Option<u64>) -> Vec<Step> {
    let memory = |place: &str, mode, size| Step::Memory {
        place: place.into(),
        mode,
        size,
    };
    let small = disk.map_or(SMALL, |disk| disk.min(SMALL));
    let link = |place: &str, target: &str| Step::Link {
        place: place.into(),
        target: target.into(),
    };
    vec![
        memory("/run", 0o755, Some(small)),
        memory("/root", 0o700, Some(small)),
        Step::Directory {
            place: "/var".into(),
            mode: 0o755,
        },
        link("/var/tmp", "/tmp"),
        link("/var/run", "/run"),
    ]
}

fn programs(host: &Host) -> Vec<Step> {
    let step = |entry: &RootEntry| match entry {
        RootEntry::Directory(name) => read_only(Path::new("/").join(name)),
        RootEntry::Link(name, target) => Step::Link {
            place: Path::new("/").join(name),
            target: target.clone(),
        },
    };
    host.programs.iter().map(step).collect()
}

fn read_only(path: PathBuf) -> Step {
    Step::Bind(Bind {
        host: path.clone(),
        place: path,
        read_only: true,
        devices: false,
    })
}

fn etc(policy: &Policy, host: &Host) -> Vec<Step> {
    let file = |place: &str, content: String| Step::File {
        place: place.into(),
        content,
    };
    let nologin = "/usr/sbin/nologin";
    let mut steps = names(policy);
    steps.extend([
        file(
            "/etc/passwd",
            format!("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:{nologin}\n"),
        ),
        file("/etc/group", "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n".to_owned()),
        file(
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n".to_owned(),
        ),
    ]);
    steps.extend(host.etc.iter().cloned().map(read_only));
    steps
}

/// What every place has of its own in /etc: its name, and where names are asked for when there is a network.
fn names(policy: &Policy) -> Vec<Step> {
    let file = |place: &str, content: String| Step::File {
        place: place.into(),
        content,
    };
    let mut steps = vec![
        file("/etc/hostname", format!("{}\n", policy.hostname)),
        file(
            "/etc/hosts",
            format!("127.0.0.1 localhost {}\n::1 localhost\n", policy.hostname),
        ),
    ];
    if policy.network == Network::Full {
        steps.push(read_only("/etc/resolv.conf".into()));
    }
    steps
}

fn devices() -> Vec<Step> {
    let mut steps = vec![Step::Memory {
        place: "/dev".into(),
        mode: 0o755,
        size: Some(1 << 20),
    }];
    steps.extend(DEVICES.iter().map(|name| {
        let path = Path::new("/dev").join(name);
        Step::Bind(Bind {
            host: path.clone(),
            place: path,
            read_only: false,
            devices: true,
        })
    }));
    steps.push(Step::Terminals);
    steps.push(Step::Memory {
        place: "/dev/shm".into(),
        mode: 0o1777,
        size: Some(SHARED_MEMORY),
    });
    let link = |name: &str, target: &str| Step::Link {
        place: Path::new("/dev").join(name),
        target: target.into(),
    };
    steps.extend([
        link("fd", "/proc/self/fd"),
        link("stdin", "/proc/self/fd/0"),
        link("stdout", "/proc/self/fd/1"),
        link("stderr", "/proc/self/fd/2"),
        link("ptmx", "pts/ptmx"),
    ]);
    steps
}

fn landlock(policy: &Policy, own_network: bool) -> LandlockRules {
    let mut write: Vec<PathBuf> = ["/dev", "/proc", "/root", "/run", "/tmp", WORKSPACE]
        .map(PathBuf::from)
        .to_vec();
    if policy.image.is_some() {
        // All of it is the place's own; what is mounted to be read only stays so.
        write = vec!["/".into()];
    }
    let writable = policy.grants.iter().filter(|grant| !grant.read_only);
    write.extend(writable.map(|grant| grant.place.clone()));
    LandlockRules {
        read: vec!["/".into()],
        write,
        // Without a network of its own the host's abstract sockets are as open as its ports.
        scoped: own_network,
        oldest_abi: 3,
    }
}
