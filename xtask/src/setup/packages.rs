//! Debian packages that tests use.

use crate::{step, workspace};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

struct Package {
    name: &'static str,
    /// What to look for where dpkg cannot be asked. The client alone is no engine, so it is `dockerd`.
    program: &'static str,
    purpose: &'static str,
}

const PACKAGES: [Package; 8] = [
    Package {
        name: "docker.io",
        program: "dockerd",
        purpose: "the engine under the docker provider's tests",
    },
    Package {
        name: "busybox-static",
        program: "busybox",
        purpose: "the content of the test images",
    },
    Package {
        name: "docker-registry",
        program: "docker-registry",
        purpose: "the tests that pull images",
    },
    Package {
        name: "runsc",
        program: "runsc",
        purpose: "the runtime under the gvisor provider's tests",
    },
    Package {
        name: "bubblewrap",
        program: "bwrap",
        purpose: "what the start of a native place is measured against",
    },
    Package {
        name: "openssl",
        program: "openssl",
        purpose: "the certificate of a registry that a test makes",
    },
    Package {
        name: "iproute2",
        program: "ip",
        purpose: "the egress proxy's tests between network namespaces",
    },
    Package {
        name: "curl",
        program: "curl",
        purpose: "an ordinary client for the same tests",
    },
];

/// Installs what is missing when it may, else says what is missing.
pub fn install() -> Result<()> {
    let missing: Vec<_> = PACKAGES.iter().filter(|package| !is_installed(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !(has_dpkg() && super::is_root()) {
        for package in missing {
            eprintln!("xtask: {} is missing: {}", package.name, package.purpose);
        }
        return Ok(());
    }
    // A machine that was just made has no package lists at all.
    step::run(&mut apt_get(&["update", "-qq"]))?;
    let mut command = apt_get(&["install", "--yes", "-qq", "--no-install-recommends"]);
    step::run(command.args(missing.iter().map(|package| package.name)))
}

fn apt_get(arguments: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["-o", "DPkg::Lock::Timeout=300"]).args(arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    // Packages start their services only in a usual runlevel; tests start what they need themselves.
    command.env("RUNLEVEL", "1");
    command
}

fn is_installed(package: &Package) -> bool {
    if !has_dpkg() {
        return workspace::find_program(package.program).is_some();
    }
    let query = ["--show", "--showformat=${db:Status-Status}", package.name];
    step::output(Command::new("dpkg-query").args(query)).is_ok_and(|status| status == "installed")
}

fn has_dpkg() -> bool {
    Path::new("/etc/debian_version").exists() && workspace::find_program("dpkg-query").is_some()
}
