//! Observing isolation: a real place of a provider is brought up, the attack probe of the supervisor is run in it as
//! an ordinary command, and what it could reach is compared with what it reaches on the host itself.
//!
//! An axis holds when every attempt with a control was refused, and at least one was made. An attempt that also
//! fails on the host says nothing: it could be broken.

mod targets;
mod verdict;

pub use verdict::{Attempt, AxisVerdict, Outcome, Verdict, axes};

use crate::supervisor::SUPERVISOR;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_provider::Provider;
use stead_provider::automatic::Observer;
use stead_types::error::Code;
use stead_types::{Axes, Axis, CommandLine, ComputeConfig, ExecResult, NetworkPolicy};
use targets::Targets;

/// How long the probe may take in one place: most attempts answer at once, a few wait for a network.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why nothing was observed.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// What the probe is to look for could not be put on this host.
    #[error("the probe's targets could not be made")]
    Targets(#[source] std::io::Error),
    /// The probe could not be run in the place.
    #[error("the probe could not be run on {provider}: {reason}")]
    NotRun {
        /// The provider.
        provider: String,
        /// Why not.
        reason: String,
    },
}

impl Code for DoctorError {
    fn code(&self) -> &'static str {
        "probe_not_run"
    }

    fn remedy(&self) -> String {
        "Correct what the reason names; until then the isolation is not known, which counts as none."
            .to_owned()
    }
}

/// Makes targets and observes places with them.
#[derive(Debug)]
pub struct Doctor {
    targets: Targets,
    control: Vec<Attempt>,
}

impl Doctor {
    /// Puts the targets on this host, and makes every attempt here, by `local`.
    pub async fn new() -> Result<Self, DoctorError> {
        Self::with_state_dir(None).await
    }

    /// The same, with the place on the host in a folder of one's choice.
    pub async fn with_state_dir(directory: Option<PathBuf>) -> Result<Self, DoctorError> {
        let targets = Targets::new().map_err(DoctorError::Targets)?;
        let control = attempts(
            &crate::local::LocalProvider::quiet(directory),
            ComputeConfig::new(),
            &targets,
        )
        .await?;
        Ok(Self { targets, control })
    }

    /// Brings up a place with this configuration and observes it. Without a word about the network it has none where
    /// that can be said. What was seen of a usual place, one without a network, options and mounts, the provider
    /// keeps.
    pub async fn examine(
        &self,
        provider: &dyn Provider,
        mut config: ComputeConfig,
    ) -> Result<Vec<AxisVerdict>, DoctorError> {
        if config.network.is_none() && !provider.inherits_host_env() {
            config.network = Some(NetworkPolicy::None);
        }
        let is_usual = config.network == Some(NetworkPolicy::None)
            && config.options.is_empty()
            && config.mounts.is_empty();
        let made = attempts(provider, config, &self.targets).await?;
        let verdicts: Vec<AxisVerdict> = Axis::ALL
            .into_iter()
            .map(|axis| AxisVerdict::of(axis, &made, &self.control))
            .collect();
        if is_usual {
            provider.keep_observed(axes(&verdicts)).await;
        }
        Ok(verdicts)
    }
}

/// Examines when somebody asks, with targets that are made at the first time.
#[derive(Debug, Default)]
pub struct OnDemand(tokio::sync::OnceCell<Doctor>);

#[async_trait::async_trait]
impl Observer for OnDemand {
    async fn observe(&self, provider: &dyn Provider, config: &ComputeConfig) -> Result<Axes, String> {
        let told = |error: DoctorError| match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        let doctor = self
            .0
            .get_or_try_init(|| async { Doctor::new().await })
            .await
            .map_err(told)?;
        let usual = ComputeConfig {
            image: config.image.clone(),
            ..ComputeConfig::new()
        };
        doctor
            .examine(provider, usual)
            .await
            .map(|verdicts| axes(&verdicts))
            .map_err(told)
    }
}

async fn attempts(
    provider: &dyn Provider,
    config: ComputeConfig,
    targets: &Targets,
) -> Result<Vec<Attempt>, DoctorError> {
    let failed = |reason: String| DoctorError::NotRun {
        provider: provider.name().to_owned(),
        reason,
    };
    let instance = provider
        .provision(config)
        .await
        .map_err(|error| failed(error.to_string()))?;
    let workdir = instance.metadata.get("workdir").and_then(|path| path.as_str());
    let workdir = PathBuf::from(workdir.unwrap_or("/workspace"));
    let result = run(provider, &instance.id, &workdir, targets).await;
    let gone = provider.shutdown(&instance.id).await;
    let result = result.map_err(failed)?;
    gone.map_err(|error| failed(error.to_string()))?;
    if !result.success() {
        return Err(failed(format!("it ended with {result:?}")));
    }
    Ok(verdict::parse(&result.stdout_text()))
}

async fn run(
    provider: &dyn Provider,
    id: &stead_types::InstanceId,
    workdir: &Path,
    targets: &Targets,
) -> Result<ExecResult, String> {
    let files = provider.files(id).await.map_err(|error| error.to_string())?;
    let program = workdir.join("stead-probe");
    files
        .write(&program, SUPERVISOR, Some(0o755))
        .await
        .map_err(|error| error.to_string())?;
    let mut argv: Vec<OsString> = vec![program.into(), "probe".into()];
    argv.extend(targets.arguments(workdir));
    let config = ComputeConfig::new().timeout(PATIENCE);
    provider
        .execute(id, CommandLine::Argv(argv), config)
        .await
        .map_err(|error| error.to_string())
}
