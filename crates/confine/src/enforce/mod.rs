//! Carrying a plan out, step by step, in the process that becomes the first of the place.
//!
//! ```text
//! supervisor, on the host                    its child, first process of the place
//!   │ fork into the namespaces ─────────────► waits
//!   │ moves it into its cgroup, says so ────► [user namespace first: asks for maps, takes its ids]
//!   │                                         builds the root and turns to it
//!   │ writes the maps when asked ───────────► [user namespace last: enters it, asks, takes its ids]
//!   │                                         capabilities, Landlock, system calls
//!   ▼ stays outside: waits, cleans up         serves
//! ```
//! Any step that fails ends the child, and nothing has run in the place.

mod bpf;
mod capabilities;
mod ids;
mod landlock;
mod layers;
mod root;
mod stage;
mod system_calls;

pub use ids::{Maps, write_maps};
pub use layers::owners;
pub use system_calls::restrict_guest;

use crate::plan::{Namespace, Plan, ResourceLimit, UserNamespace};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

/// A step that failed.
#[derive(Debug)]
pub struct StepFailed {
    /// What was being done, in words that name the thing.
    pub step: String,
    /// What the system said.
    pub source: io::Error,
}

impl fmt::Display for StepFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.step)
    }
}

impl std::error::Error for StepFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Names what is being done.
pub(crate) trait During<T> {
    fn during(self, step: impl Into<String>) -> Result<T, StepFailed>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, step: impl Into<String>) -> Result<T, StepFailed> {
        self.map_err(|error| StepFailed {
            step: step.into(),
            source: error.into(),
        })
    }
}

/// What was carried out, for the host to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Version of Landlock's interface that was used; none without Landlock in the plan.
    pub landlock_abi: Option<u32>,
}

/// The namespaces of a plan that are entered by the fork, as flags of clone(2).
pub fn fork_flags(plan: &Plan) -> i32 {
    let flag = |namespace: &Namespace| match namespace {
        Namespace::Mount => Some(UnshareFlags::NEWNS),
        Namespace::Pid => Some(UnshareFlags::NEWPID),
        Namespace::Ipc => Some(UnshareFlags::NEWIPC),
        Namespace::Uts => Some(UnshareFlags::NEWUTS),
        Namespace::Net => Some(UnshareFlags::NEWNET),
        // Entered when the place is in its cgroup, which is then the root of what it sees.
        Namespace::Cgroup => None,
    };
    let mut flags: UnshareFlags = plan.namespaces.iter().filter_map(flag).collect();
    if matches!(plan.users, UserNamespace::First { .. }) {
        flags |= UnshareFlags::NEWUSER;
    }
    i32::try_from(flags.bits()).unwrap_or(0)
}

/// Confines this process, which was forked with [`fork_flags`]. `owners` is what [`owners`] gave before. `maps` asks the process outside to write the maps
/// of our user namespace and returns when it has. Whatever the outcome, nothing that runs here afterwards has more
/// than the plan gives.
pub fn enter(
    plan: &Plan,
    owners: Option<&OwnedFd>,
    maps: impl Fn() -> io::Result<()>,
) -> Result<Report, StepFailed> {
    if matches!(plan.users, UserNamespace::First { .. }) {
        maps().during("map the users of the place")?;
        ids::take_root()?;
    }
    if plan.namespaces.contains(&Namespace::Cgroup) {
        stead_sys::enter_cgroup_namespace().during("hide the cgroups of the host")?;
    }
    rustix::system::sethostname(plan.hostname.as_bytes()).during("set the host name")?;
    if plan.loopback {
        stead_sys::bring_up_loopback().during("bring up the loopback interface")?;
    }
    root::build(plan, owners)?;
    if matches!(plan.users, UserNamespace::Last { .. }) {
        stead_sys::enter_user_namespace().during("enter a user namespace")?;
        maps().during("map the users of the place")?;
        ids::take_root()?;
    }
    limits(&plan.limits)?;
    capabilities::keep_only(&plan.capabilities)?;
    if plan.no_new_privileges {
        rustix::thread::set_no_new_privs(true).during("forbid new privileges")?;
    }
    let landlock_abi = plan.landlock.as_ref().map(landlock::restrict).transpose()?;
    if plan.system_calls {
        system_calls::restrict()?;
    }
    Ok(Report { landlock_abi })
}

fn limits(limits: &[ResourceLimit]) -> Result<(), StepFailed> {
    for limit in limits {
        let (resource, value) = match limit {
            ResourceLimit::OpenFiles(files) => (Resource::Nofile, *files),
            ResourceLimit::CoreFile(bytes) => (Resource::Core, *bytes),
        };
        // An ordinary user cannot go over what the caller itself was limited to.
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let value = Some(value.min(most));
        let limit = Rlimit {
            current: value,
            maximum: value,
        };
        setrlimit(resource, limit).during(format!("limit {resource:?}"))?;
    }
    Ok(())
}
