//! What of the host can be granted to a place without giving the place the host.

use std::path::{Path, PathBuf};
use stead_types::Axis;

/// Lost with the host's root, its devices or its kernel's files.
const SYSTEM_LOST: [Axis; 3] = [
    Axis::ProcessContained,
    Axis::HostFilesystemRestricted,
    Axis::PrivilegeEscalationBlocked,
];

/// The axes that a grant of `host` takes away, of which `source` is the path without links. `sockets` are those of
/// engines.
pub fn weakened(host: &Path, source: &Path, sockets: &[PathBuf]) -> Option<&'static [Axis]> {
    let above = |path: &Path| sockets.iter().any(|socket| socket.starts_with(path));
    if above(host) || above(source) {
        // Who can ask an engine for a container can have the whole host.
        return Some(&Axis::ALL);
    }
    is_the_system(source).then_some(&SYSTEM_LOST)
}

fn is_the_system(path: &Path) -> bool {
    path == Path::new("/")
        || ["/proc", "/sys", "/dev"]
            .iter()
            .any(|system| path.starts_with(system))
}

/// Where engines of this host listen, as far as it can be known.
#[cfg(any(feature = "gvisor", feature = "native"))]
pub fn engine_sockets() -> Vec<PathBuf> {
    let named = std::env::var("DOCKER_HOST").unwrap_or_default();
    let usual = [
        "/run/containerd/containerd.sock",
        "/run/crio/crio.sock",
        "/run/docker.sock",
        "/run/podman/podman.sock",
        "/var/run/docker.sock",
    ];
    let usual = usual.iter().map(PathBuf::from);
    let named = named.strip_prefix("unix://").map(PathBuf::from);
    usual.chain(named).collect()
}
