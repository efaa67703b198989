//! Landlock on top of the namespaces: should a mount be there that should not, it is still refused.

use super::{During, StepFailed};
use crate::plan::LandlockRules;
use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::io;

/// Restricts this process and all that it starts; says which version of the interface was used.
pub fn restrict(rules: &LandlockRules) -> Result<u32, StepFailed> {
    restrict_with(rules).during("restrict the file system by Landlock")
}

fn restrict_with(rules: &LandlockRules) -> io::Result<u32> {
    let abi = version()?;
    if abi < rules.oldest_abi {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "the kernel has Landlock {abi}, and {} is needed",
                rules.oldest_abi
            ),
        ));
    }
    let known = known(abi);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(known))
        .map_err(io::Error::other)?;
    if rules.scoped && abi >= 6 {
        ruleset = ruleset.scope(Scope::from_all(known)).map_err(io::Error::other)?;
    }
    let mut ruleset = ruleset.create().map_err(io::Error::other)?;
    for (paths, access) in [
        (&rules.read, AccessFs::from_read(known)),
        (&rules.write, AccessFs::from_all(known)),
    ] {
        for path in paths {
            let opened = PathFd::new(path).map_err(io::Error::other)?;
            // A right over directories is never put on a file.
            let access = if path.is_dir() {
                access
            } else {
                access & AccessFs::from_file(known)
            };
            ruleset = ruleset
                .add_rule(PathBeneath::new(opened, access))
                .map_err(io::Error::other)?;
        }
    }
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(abi),
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Err(io::Error::other("the kernel enforced only a part of the rules"))
        }
    }
}

/// The newest version that both the kernel and we know.
fn known(abi: u32) -> ABI {
    match abi {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    }
}

/// Version of the kernel's interface.
fn version() -> io::Result<u32> {
    stead_sys::landlock_version()
}
