//! Before a place is offered: `runsc` is there, answers, and a container comes up with the settings that will be used.
//! What was seen once holds as long as the file is the same.

use super::runtime::{Runsc, Settings};
use super::{Inside, NAME, host, inside, keeper_env, write};
use crate::hosted::groups::{self, Hierarchies};
use crate::hosted::host_view;
use crate::hosted::kept::{TrialError, trial};
use crate::state::{InstanceFolder, State};
use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use stead_confine::{Kept, compile};
use stead_types::{ComputeConfig, Missing, NetworkPolicy, Resources};

/// How long a container may take to come up and end.
const COMES_UP: Duration = Duration::from_secs(10);

/// One file as it was with one way to call it.
type Seen = (Settings, SystemTime);

/// What was seen to work.
#[derive(Debug, Default)]
pub struct Verified(Mutex<HashMap<Seen, Runsc>>);

impl Verified {
    fn seen(&self) -> MutexGuard<'_, HashMap<Seen, Runsc>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the file as it is now.
    pub fn known(&self, settings: &Settings) -> Option<Runsc> {
        let changed_at = std::fs::metadata(&settings.binary).and_then(|found| found.modified());
        let seen = (settings.clone(), changed_at.ok()?);
        self.seen().get(&seen).cloned()
    }

    /// Nothing counts any more.
    pub fn forget(&self) {
        self.seen().clear();
    }

    /// Looks, unless the same was seen before.
    pub async fn verify(&self, state: &State, settings: &Settings) -> Result<Runsc, Missing> {
        if let Some(known) = self.known(settings) {
            return Ok(known);
        }
        // Before it is asked: a file that changes meanwhile is looked at again.
        let changed_at = std::fs::metadata(&settings.binary).and_then(|found| found.modified());
        let runsc = Runsc::ask(&settings.binary).await?;
        comes_up(state, settings, &runsc).await?;
        if let Ok(changed_at) = changed_at {
            self.seen().insert((settings.clone(), changed_at), runsc.clone());
        }
        Ok(runsc)
    }
}

/// A container that runs `true` and ends.
async fn comes_up(state: &State, settings: &Settings, runsc: &Runsc) -> Result<(), Missing> {
    let prepare = |folder: &InstanceFolder| prepare(folder, settings, runsc);
    let reason = match trial(state, keeper_env(), COMES_UP, prepare).await {
        Ok(()) => return Ok(()),
        Err(TrialError::TimedOut) => {
            return Err(Missing {
                code: "gvisor_timed_out",
                reason: format!(
                    "a container of {} did not come up and end within {} s",
                    settings.binary.display(),
                    COMES_UP.as_secs()
                ),
                remedy: remedy(settings),
            });
        }
        Err(TrialError::Failed(said)) => said,
        Err(TrialError::Io(error)) => error.to_string(),
    };
    Err(Missing {
        code: "gvisor_unusable",
        reason: format!("no container of {} comes up: {reason}", settings.binary.display()),
        remedy: remedy(settings),
    })
}

fn remedy(settings: &Settings) -> String {
    match settings.rootless {
        true => "Allow user namespaces to this user, run as root, or choose another provider.",
        false => {
            "Try another way by the option platform (ptrace, systrap, kvm), or another version of gVisor."
        }
    }
    .to_owned()
}

fn prepare(folder: &InstanceFolder, settings: &Settings, runsc: &Runsc) -> io::Result<Kept> {
    let mut config = ComputeConfig::new();
    config.network = Some(match settings.host_network {
        true => NetworkPolicy::Full,
        false => NetworkPolicy::None,
    });
    let name = format!("stead-{}", folder.id());
    let groups = groups::plan(NAME, &Resources::default(), &Hierarchies::look()?, &name);
    let groups = groups.map_err(io::Error::other)?;
    let paths: Vec<_> = groups.iter().map(|group| group.path.clone()).collect();
    folder.write_groups(&paths)?;
    let policy = host_view::policy(NAME, folder, &config, groups).map_err(io::Error::other)?;
    let inside = Inside {
        args: vec!["/bin/true".to_owned()],
        ..inside(folder, &config.resources)
    };
    write(
        folder,
        &compile(&policy, &host()),
        &inside,
        runsc,
        settings,
        false,
    )
}
