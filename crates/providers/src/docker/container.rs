//! Containers: make, start, look at, find.

use super::engine::Engine;
use super::error::{EngineError, bounded};
use super::labels::{InstanceLabels, MANAGED};
use bollard::errors::Error as ClientError;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary,
    ContainerSummaryStateEnum,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder,
    StartContainerOptions, UploadToContainerOptionsBuilder, WaitContainerOptions,
};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::HashMap;
use std::time::Duration;
use stead_types::InstanceStatus;
use tokio::task::JoinHandle;

/// How long a creation that nobody waits for any more may take until what it made is looked for.
const LATE_CREATION: Duration = Duration::from_secs(600);

/// Where a container is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Made and not started.
    Created,
    /// Its processes run, or are frozen.
    Running,
    /// Its first process ended.
    Exited,
    /// Somebody is removing it.
    Removing,
    /// A removal failed.
    Dead,
    /// The engine does not say.
    Unknown,
}

impl Phase {
    /// The same in the words of the contract.
    pub fn status(self) -> InstanceStatus {
        match self {
            Self::Created => InstanceStatus::Starting,
            Self::Running => InstanceStatus::Running,
            Self::Exited | Self::Removing => InstanceStatus::Stopped,
            Self::Dead | Self::Unknown => InstanceStatus::Error,
        }
    }
}

/// One of our containers, as the engine lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The engine's id.
    pub container: String,
    /// What its labels say.
    pub labels: InstanceLabels,
    /// Where it is in its life.
    pub phase: Phase,
    /// The image, as the engine names it.
    pub image: String,
}

/// One container, looked at closely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// The engine's id.
    pub container: String,
    /// What its labels say; `None` when it is not ours.
    pub labels: Option<InstanceLabels>,
    /// Where it is in its life.
    pub phase: Phase,
    /// How its first process exited, once it did.
    pub exit_code: Option<i64>,
    /// Whether the kernel ended a process of it for want of memory.
    pub oom_killed: bool,
    /// What the engine says went wrong.
    pub error: Option<String>,
}

/// How a container ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerExit {
    /// Its first process exited so.
    Code(i64),
    /// It is not there any more, so nobody knows.
    Gone,
}

impl Engine {
    /// Makes a container and gives the engine's id of it. When this fails by a deadline or is dropped, what
    /// the engine still makes of it is removed as soon as it is there.
    pub async fn create_container(
        &self,
        name: &str,
        body: ContainerCreateBody,
    ) -> Result<String, EngineError> {
        let (what, limit) = ("make the container", self.deadlines().call);
        let (engine, options) = (
            self.clone(),
            CreateContainerOptionsBuilder::new().name(name).build(),
        );
        let task = tokio::spawn(async move {
            let request =
                |docker: bollard::Docker| async move { docker.create_container(Some(options), body).await };
            engine
                .call_within(LATE_CREATION, what, request)
                .await
                .map(|made| made.id)
        });
        let mut creation = Creation {
            engine: self.clone(),
            name: name.to_owned(),
            task: Some(task),
        };
        let Some(task) = creation.task.as_mut() else {
            return Err(EngineError::TimedOut { what, limit });
        };
        let made = match tokio::time::timeout(limit, task).await {
            // The guard takes over.
            Err(_) => return Err(EngineError::TimedOut { what, limit }),
            Ok(Err(join)) => Err(EngineError::Unreadable {
                what,
                source: Box::new(join),
            }),
            Ok(Ok(made)) => made,
        };
        creation.task = None;
        made
    }

    /// Starts a container. One that runs already is fine.
    pub async fn start_container(&self, container: &str) -> Result<(), EngineError> {
        let name = container.to_owned();
        let request = |docker: bollard::Docker| async move {
            docker.start_container(&name, None::<StartContainerOptions>).await
        };
        self.call("start the container", request).await
    }

    /// Unpacks a tar archive in a container that need not run.
    pub async fn upload_archive(&self, container: &str, folder: &str, tar: Bytes) -> Result<(), EngineError> {
        let name = container.to_owned();
        let options = UploadToContainerOptionsBuilder::new().path(folder).build();
        let request = |docker: bollard::Docker| async move {
            docker
                .upload_to_container(&name, Some(options), bollard::body_full(tar))
                .await
        };
        self.call("take the files", request).await
    }

    /// Looks at a container, by the engine's id or by name. `None` is one that is not there.
    pub async fn inspect_container(&self, container: &str) -> Result<Option<Inspected>, EngineError> {
        let (name, what) = (container.to_owned(), "look at the container");
        let request = |docker: bollard::Docker| async move {
            docker
                .inspect_container(&name, None::<InspectContainerOptions>)
                .await
        };
        match self.call(what, request).await {
            Ok(found) => inspected(what, found).map(Some),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All containers that have our labels, those of other processes and those that ended among them.
    pub async fn list_containers(&self) -> Result<Vec<Listed>, EngineError> {
        let filters = HashMap::from([("label", vec![format!("{MANAGED}=true")])]);
        let options = ListContainersOptionsBuilder::new()
            .all(true)
            .filters(&filters)
            .build();
        let request = |docker: bollard::Docker| async move { docker.list_containers(Some(options)).await };
        let found = self.call("list the containers", request).await?;
        Ok(found.into_iter().filter_map(listed).collect())
    }

    /// Waits until a container's first process ended, however long that takes.
    pub async fn wait_container(&self, container: &str) -> Result<ContainerExit, EngineError> {
        let (docker, address) = self.stream_client().await?;
        let mut ends = std::pin::pin!(docker.wait_container(container, None::<WaitContainerOptions>));
        let what = "wait for the container";
        match ends.next().await {
            Some(Ok(end)) => Ok(ContainerExit::Code(end.status_code)),
            // The client takes every code but 0 for an error.
            Some(Err(ClientError::DockerContainerWaitError { code, .. })) => Ok(ContainerExit::Code(code)),
            Some(Err(error)) => match self.failed(what, &address, error, self.deadlines().call) {
                error if error.status() == Some(404) => Ok(ContainerExit::Gone),
                error => Err(error),
            },
            None => Err(EngineError::Unreadable {
                what,
                source: "the answer ended before it began".into(),
            }),
        }
    }
}

/// A creation under way. Dropped, it goes on by itself, and what it makes is removed.
struct Creation {
    engine: Engine,
    name: String,
    task: Option<JoinHandle<Result<String, EngineError>>>,
}

impl Drop for Creation {
    fn drop(&mut self) {
        let (Some(task), Ok(runtime)) = (self.task.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let (engine, name) = (self.engine.clone(), std::mem::take(&mut self.name));
        runtime.spawn(async move {
            let made = task.await;
            tracing::warn!(
                container = name,
                ?made,
                "a creation was given up; removing what it made"
            );
            if let Err(error) = engine.remove_container(&name).await {
                tracing::error!(
                    container = name,
                    error = error.whole(),
                    "what was made could not be removed"
                );
            }
        });
    }
}

fn listed(found: ContainerSummary) -> Option<Listed> {
    Some(Listed {
        container: found.id?,
        labels: InstanceLabels::from_map(&found.labels?)?,
        phase: found.state.map_or(Phase::Unknown, phase_listed),
        image: found.image.map(|image| bounded(&image)).unwrap_or_default(),
    })
}

fn phase_listed(state: ContainerSummaryStateEnum) -> Phase {
    use ContainerSummaryStateEnum as State;
    match state {
        State::CREATED => Phase::Created,
        State::RUNNING | State::PAUSED | State::RESTARTING | State::STOPPING => Phase::Running,
        State::EXITED => Phase::Exited,
        State::REMOVING => Phase::Removing,
        State::DEAD => Phase::Dead,
        State::EMPTY => Phase::Unknown,
    }
}

fn phase_inspected(state: ContainerStateStatusEnum) -> Phase {
    use ContainerStateStatusEnum as State;
    match state {
        State::CREATED => Phase::Created,
        State::RUNNING | State::PAUSED | State::RESTARTING | State::STOPPING => Phase::Running,
        State::EXITED => Phase::Exited,
        State::REMOVING => Phase::Removing,
        State::DEAD => Phase::Dead,
        State::EMPTY => Phase::Unknown,
    }
}

fn inspected(what: &'static str, found: ContainerInspectResponse) -> Result<Inspected, EngineError> {
    let no_id = || EngineError::Unreadable {
        what,
        source: "there is no id in it".into(),
    };
    let state = found.state.unwrap_or_default();
    let phase = state.status.map_or(Phase::Unknown, phase_inspected);
    Ok(Inspected {
        container: found.id.filter(|id| !id.is_empty()).ok_or_else(no_id)?,
        labels: found
            .config
            .and_then(|config| InstanceLabels::from_map(&config.labels?)),
        phase,
        exit_code: state
            .exit_code
            .filter(|_| matches!(phase, Phase::Exited | Phase::Dead)),
        oom_killed: state.oom_killed.unwrap_or(false),
        error: state
            .error
            .filter(|error| !error.is_empty())
            .map(|error| bounded(&error)),
    })
}
