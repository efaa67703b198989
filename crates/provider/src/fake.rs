//! A provider for the tests of this crate: counts, fails on demand, and runs nothing.

use crate::Provider;
use crate::files::Files;
use crate::process::Process;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use stead_types::{
    Availability, Axes, CommandLine, ComputeConfig, ComputeInstance, ExecResult, ExecuteError, FilesError,
    InstanceId, InstanceStatus, ListError, ProvisionError, ShutdownError,
};

type Answer = Box<dyn Fn(&CommandLine) -> Result<ExecResult, ExecuteError> + Send + Sync>;

pub(crate) struct Fake {
    pub(crate) name: String,
    pub(crate) missing: Mutex<Option<Availability>>,
    /// From the probe of this number on it is missing.
    pub(crate) missing_from: AtomicUsize,
    pub(crate) probes: AtomicUsize,
    pub(crate) refuses: AtomicBool,
    pub(crate) axes: Mutex<Axes>,
    pub(crate) provision_takes: Duration,
    pub(crate) provision_fails: AtomicBool,
    pub(crate) shutdown_fails: AtomicBool,
    pub(crate) provisions: AtomicUsize,
    pub(crate) live: Mutex<BTreeMap<InstanceId, ComputeConfig>>,
    pub(crate) executed: Mutex<Vec<(CommandLine, ComputeConfig)>>,
    pub(crate) answer: Mutex<Answer>,
}

impl Fake {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            missing: Mutex::default(),
            missing_from: AtomicUsize::new(usize::MAX),
            probes: AtomicUsize::new(0),
            refuses: AtomicBool::new(false),
            axes: Mutex::new(Axes::UNKNOWN),
            provision_takes: Duration::from_millis(20),
            provision_fails: AtomicBool::new(false),
            shutdown_fails: AtomicBool::new(false),
            provisions: AtomicUsize::new(0),
            live: Mutex::default(),
            executed: Mutex::default(),
            answer: Mutex::new(Box::new(|line| {
                let stdout = format!("{line:?}").into_bytes();
                let total = stdout.len() as u64;
                Ok(ExecResult {
                    stdout,
                    stdout_total_bytes: total,
                    exit_code: Some(0),
                    ..ExecResult::default()
                })
            })),
        }
    }

    pub(crate) fn answers(
        &self,
        answer: impl Fn(&CommandLine) -> Result<ExecResult, ExecuteError> + Send + Sync + 'static,
    ) {
        *self.answer.lock().unwrap() = Box::new(answer);
    }

    pub(crate) fn provisions(&self) -> usize {
        self.provisions.load(Ordering::SeqCst)
    }

    pub(crate) fn live(&self) -> usize {
        self.live.lock().unwrap().len()
    }

    fn instance(&self, id: &InstanceId) -> ComputeInstance {
        ComputeInstance {
            id: id.clone(),
            provider: self.name.clone(),
            status: InstanceStatus::Running,
            created_at: time::OffsetDateTime::now_utc(),
            isolation: Axes::UNKNOWN,
            metadata: serde_json::Map::new(),
        }
    }
}

#[async_trait]
impl Provider for Fake {
    fn name(&self) -> &str {
        &self.name
    }

    async fn probe(&self) -> Availability {
        if self.probes.fetch_add(1, Ordering::SeqCst) >= self.missing_from.load(Ordering::SeqCst) {
            return Availability::missing("probe_failed", "it went away", "Wait.");
        }
        let missing = self.missing.lock().unwrap().clone();
        missing.unwrap_or(Availability::Available)
    }

    fn observed_axes(&self) -> Axes {
        *self.axes.lock().unwrap()
    }

    fn check(&self, _config: &ComputeConfig) -> Result<(), ProvisionError> {
        match self.refuses.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(ProvisionError::Unsupported {
                provider: self.name.clone(),
                key: "image".to_owned(),
                reason: "it has none".to_owned(),
            }),
        }
    }

    async fn provision(&self, config: ComputeConfig) -> Result<ComputeInstance, ProvisionError> {
        self.provisions.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(self.provision_takes).await;
        if self.provision_fails.load(Ordering::SeqCst) {
            let (provider, reason) = (self.name.clone(), "asked to".to_owned());
            return Err(ProvisionError::Failed {
                provider,
                reason,
                source: None,
            });
        }
        let id = InstanceId::generate();
        self.live.lock().unwrap().insert(id.clone(), config);
        Ok(self.instance(&id))
    }

    async fn spawn(
        &self,
        id: &InstanceId,
        _command: CommandLine,
        _config: ComputeConfig,
    ) -> Result<Process, ExecuteError> {
        Err(ExecuteError::NoInstance { instance: id.clone() })
    }

    async fn execute(
        &self,
        id: &InstanceId,
        command: CommandLine,
        config: ComputeConfig,
    ) -> Result<ExecResult, ExecuteError> {
        tokio::task::yield_now().await;
        if !self.live.lock().unwrap().contains_key(id) {
            return Err(ExecuteError::NoInstance { instance: id.clone() });
        }
        self.executed.lock().unwrap().push((command.clone(), config));
        (self.answer.lock().unwrap())(&command)
    }

    async fn shutdown(&self, id: &InstanceId) -> Result<(), ShutdownError> {
        if self.shutdown_fails.load(Ordering::SeqCst) {
            let (provider, instance, reason) = (self.name.clone(), id.clone(), "asked to".to_owned());
            return Err(ShutdownError::StillThere {
                provider,
                instance,
                reason,
                source: None,
            });
        }
        self.live.lock().unwrap().remove(id);
        Ok(())
    }

    async fn list_instances(&self) -> Result<Vec<ComputeInstance>, ListError> {
        Ok(self
            .live
            .lock()
            .unwrap()
            .keys()
            .map(|id| self.instance(id))
            .collect())
    }

    async fn status(&self, id: &InstanceId) -> Result<Option<ComputeInstance>, ListError> {
        Ok(self
            .live
            .lock()
            .unwrap()
            .contains_key(id)
            .then(|| self.instance(id)))
    }

    async fn files(&self, _id: &InstanceId) -> Result<Box<dyn Files>, FilesError> {
        Err(FilesError::Unsupported {
            provider: self.name.clone(),
        })
    }
}
