//! The OCI bundle of a place, made purely of its plan: what `runsc` is told, and what is put into the root directory
//! before.
//!
//! The plan is the one that `native` carries out itself. Of it gVisor makes its own devices and its own /proc.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use stead_confine::{Bind, Capability, Plan, ResourceLimit, Step};

/// The supervisor's file in the place.
pub const SUPERVISOR: &str = "/run/stead/bin/supervisor";

/// Where the supervisor makes its socket in the place.
pub const CONTROL_DIR: &str = "/run/stead/ctl";

/// What is not of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inside {
    /// The first process: program and arguments, as the place sees them.
    pub args: Vec<String>,
    /// Its whole environment, `NAME=VALUE`.
    pub env: Vec<String>,
    /// Directory of the host that the root is made in.
    pub root: PathBuf,
    /// The supervisor's file on the host.
    pub supervisor: PathBuf,
    /// Directory of the host in which the socket is made.
    pub control: PathBuf,
    /// Processes and threads of each user of the place.
    pub pids: u64,
    /// Bytes of each file system in memory for which the plan has no size.
    pub memory: u64,
}

/// What the root directory has before anything is mounted. Paths are those of the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A directory, with all above it.
    Directory(PathBuf),
    /// A file with this content.
    File(PathBuf, String),
    /// A link and its target.
    Link(PathBuf, PathBuf),
}

/// A bundle, as data.
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    /// The content of `config.json`.
    pub config: Value,
    /// The content of the root directory.
    pub entries: Vec<Entry>,
}

/// A path that `config.json` cannot have, because it is no text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the path {} is no UTF-8", .0.display())]
pub struct NotText(pub PathBuf);

/// Makes the bundle that carries out a plan.
pub fn bundle(plan: &Plan, inside: &Inside) -> Result<Bundle, NotText> {
    let mut entries = Vec::new();
    let mut mounts = vec![json!({"destination": "/proc", "type": "proc", "source": "proc"})];
    entries.push(Entry::Directory("/proc".into()));
    for step in &plan.root.steps {
        match step {
            // Device nodes, terminals and /dev itself are gVisor's own.
            step if is_device(step) => {}
            Step::Proc { .. } | Step::Terminals => {}
            Step::Directory { place, .. } => entries.push(Entry::Directory(place.clone())),
            Step::File { place, content } => entries.push(Entry::File(place.clone(), content.clone())),
            Step::Link { place, target } => entries.push(Entry::Link(place.clone(), target.clone())),
            Step::Memory { place, mode, size } => {
                entries.push(Entry::Directory(place.clone()));
                let size = size.unwrap_or(inside.memory);
                mounts.push(json!({
                    "destination": text(place)?, "type": "tmpfs", "source": "tmpfs",
                    "options": ["nosuid", "nodev", format!("mode={mode:o}"), format!("size={size}")],
                }));
            }
            Step::Bind(bind) => mounts.push(bound(bind)?),
        }
    }
    for (host, place, read_only) in [
        (&inside.supervisor, SUPERVISOR, true),
        (&inside.control, CONTROL_DIR, false),
    ] {
        mounts.push(bound(&Bind {
            host: host.clone(),
            place: place.into(),
            read_only,
            devices: false,
        })?);
    }
    let config = json!({
        "ociVersion": "1.0.2",
        "process": process(plan, inside),
        "root": {"path": text(&inside.root)?, "readonly": true},
        "hostname": plan.hostname,
        "mounts": mounts,
        "linux": {"namespaces": namespaces(plan)},
    });
    Ok(Bundle { config, entries })
}

/// The host's network is had by having none of one's own.
fn namespaces(plan: &Plan) -> Vec<Value> {
    let mut names = vec!["pid", "ipc", "uts", "mount"];
    if plan.loopback {
        names.push("network");
    }
    names.into_iter().map(|name| json!({"type": name})).collect()
}

fn process(plan: &Plan, inside: &Inside) -> Value {
    let capabilities: Vec<&str> = plan.capabilities.iter().map(|one| capability(*one)).collect();
    let limit = |name: &str, value: u64| json!({"type": name, "soft": value, "hard": value});
    let mut limits: Vec<Value> = plan
        .limits
        .iter()
        .map(|one| match one {
            ResourceLimit::OpenFiles(files) => limit("RLIMIT_NOFILE", *files),
            ResourceLimit::CoreFile(bytes) => limit("RLIMIT_CORE", *bytes),
        })
        .collect();
    limits.push(limit("RLIMIT_NPROC", inside.pids));
    json!({
        "terminal": false,
        "user": {"uid": 0, "gid": 0},
        "args": inside.args,
        "env": inside.env,
        "cwd": "/",
        "capabilities": {
            "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
        },
        "rlimits": limits,
        "noNewPrivileges": plan.no_new_privileges,
    })
}

fn capability(one: Capability) -> &'static str {
    match one {
        Capability::Chown => "CAP_CHOWN",
        Capability::DacOverride => "CAP_DAC_OVERRIDE",
        Capability::Fowner => "CAP_FOWNER",
        Capability::Fsetid => "CAP_FSETID",
        Capability::Kill => "CAP_KILL",
        Capability::Setgid => "CAP_SETGID",
        Capability::Setuid => "CAP_SETUID",
        Capability::NetBindService => "CAP_NET_BIND_SERVICE",
    }
}

/// Whether a step makes something of /dev that gVisor makes by itself.
fn is_device(step: &Step) -> bool {
    let place = match step {
        Step::Bind(Bind { place, .. })
        | Step::Directory { place, .. }
        | Step::File { place, .. }
        | Step::Link { place, .. }
        | Step::Memory { place, .. } => place,
        Step::Proc { .. } | Step::Terminals => return false,
    };
    place.starts_with("/dev") && place != Path::new("/dev/shm")
}

fn bound(bind: &Bind) -> Result<Value, NotText> {
    let access = if bind.read_only { "ro" } else { "rw" };
    Ok(json!({
        "destination": text(&bind.place)?, "type": "bind", "source": text(&bind.host)?,
        "options": ["rbind", access, "nosuid", "nodev"],
    }))
}

fn text(path: &Path) -> Result<&str, NotText> {
    path.to_str().ok_or_else(|| NotText(path.to_owned()))
}
