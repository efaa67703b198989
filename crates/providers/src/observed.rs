//! What was observed of a provider's places on this machine, kept for the processes that come after.
//!
//! It counts as long as the kernel, this build and the provider's own version are those that were observed.

use crate::state::State;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::PathBuf;
use stead_types::Axes;
use time::OffsetDateTime;

/// What an observation rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Conditions {
    /// Release, version and machine of the running kernel.
    kernel: String,
    /// This library and its supervisor.
    build: String,
    /// What the provider adds: the version of an engine or a runtime.
    provider: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Observation {
    conditions: Conditions,
    #[serde(with = "time::serde::rfc3339")]
    observed_at: OffsetDateTime,
    axes: Axes,
}

impl Conditions {
    fn now(provider: &str) -> Self {
        let kernel = rustix::system::uname();
        let part = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let kernel = [kernel.release(), kernel.version(), kernel.machine()].map(part);
        Self {
            kernel: kernel.join(" "),
            build: format!("{} {}", env!("CARGO_PKG_VERSION"), crate::supervisor::HASH),
            provider: provider.to_owned(),
        }
    }
}

impl State {
    /// What was observed of a provider of this version. Unknown when nobody looked, or when what was seen then says
    /// nothing of now.
    pub fn observed(&self, provider: &str, version: &str) -> Axes {
        let read = fs::read(self.observation(provider)).ok();
        let found = read.and_then(|bytes| serde_json::from_slice::<Observation>(&bytes).ok());
        found
            .filter(|found| found.conditions == Conditions::now(version))
            .map_or(Axes::UNKNOWN, |found| found.axes)
    }

    /// Keeps what was observed, whole or not at all.
    pub fn keep_observed(&self, provider: &str, version: &str, axes: Axes) -> io::Result<()> {
        let observation = Observation {
            conditions: Conditions::now(version),
            observed_at: OffsetDateTime::now_utc(),
            axes,
        };
        let path = self.observation(provider);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder)?;
        let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut temporary, &observation)?;
        temporary.persist(&path).map_err(|error| error.error)?;
        Ok(())
    }

    fn observation(&self, provider: &str) -> PathBuf {
        self.root().join("observed").join(format!("{provider}.json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_counts_until_what_it_rests_on_changes() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::open(dir.path().join("state")).unwrap();
        let axes = Axes {
            process_contained: Some(true),
            network_restricted: Some(false),
            ..Axes::UNKNOWN
        };
        assert_eq!(state.observed("docker", "20"), Axes::UNKNOWN, "nobody looked");
        state.keep_observed("docker", "20", axes).unwrap();
        assert_eq!(state.observed("docker", "20"), axes, "the control");
        assert_eq!(state.observed("docker", "21"), Axes::UNKNOWN, "another engine");
        assert_eq!(state.observed("native", "20"), Axes::UNKNOWN, "another provider");
        let path = state.observation("docker");
        let kept = fs::read_to_string(&path).unwrap();
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        for (was, is) in [(release.as_str(), "1.2.3"), (crate::supervisor::HASH, "0123")] {
            let changed = kept.replace(was, is);
            assert_ne!(changed, kept);
            fs::write(&path, changed).unwrap();
            assert_eq!(state.observed("docker", "20"), Axes::UNKNOWN, "{was}");
        }
        for garbage in ["", "{}", &kept[..kept.len() / 2]] {
            fs::write(&path, garbage).unwrap();
            assert_eq!(state.observed("docker", "20"), Axes::UNKNOWN, "{garbage}");
        }
    }
}
