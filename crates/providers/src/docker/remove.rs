//! Removal that is confirmed.

use super::engine::Engine;
use super::error::EngineError;
use bollard::query_parameters::RemoveContainerOptionsBuilder;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long an engine may take to make a container that was asked for and given up.
const COMES_LATE: Duration = Duration::from_secs(10);

/// How long a removal that the engine took on is only watched before it is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

impl Engine {
    /// Ends a container by force, removes it with its own volumes, and returns when the engine does not
    /// know it any more. One that is not there is fine. Errors that may pass are tried again until
    /// [`super::engine::Deadlines::remove`] is over.
    pub async fn remove_container(&self, container: &str) -> Result<(), EngineError> {
        let limit = self.deadlines().remove;
        let mut last = None;
        let removal = async {
            let mut pause = FIRST_PAUSE;
            loop {
                match self.try_remove(container).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(error @ EngineError::Refused { .. }) => last = Some(error),
                    Err(error) => return Err(error),
                }
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        let what = "remove the container";
        let removed = timeout(limit, removal).await;
        // What the engine said says more than that it took long.
        removed.unwrap_or_else(|_| Err(last.unwrap_or(EngineError::TimedOut { what, limit })))
    }

    /// The same for a container that the engine was asked to make and of which it has not said that it did: it may
    /// make it although nobody waits any more, so it is looked for again for a while.
    pub async fn remove_unseen_container(&self, container: &str) -> Result<(), EngineError> {
        let until = Instant::now() + COMES_LATE;
        loop {
            let was_there = self.inspect_container(container).await?.is_some();
            self.remove_container(container).await?;
            if was_there || Instant::now() >= until {
                return Ok(());
            }
            sleep(LONGEST_PAUSE).await;
        }
    }

    /// Asks once and watches; whether the container was seen to be gone.
    async fn try_remove(&self, container: &str) -> Result<bool, EngineError> {
        let name = container.to_owned();
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        let request =
            |docker: bollard::Docker| async move { docker.remove_container(&name, Some(options)).await };
        match self.call("remove the container", request).await {
            Ok(()) => {}
            // Not there, or somebody else's removal is under way: seen below.
            Err(error) if matches!(error.status(), Some(404 | 409)) => {}
            Err(error) => return Err(error),
        }
        self.seen_gone(container).await
    }

    async fn seen_gone(&self, container: &str) -> Result<bool, EngineError> {
        let (end, mut pause) = (Instant::now() + ASK_AGAIN, FIRST_PAUSE);
        loop {
            if self.inspect_container(container).await?.is_none() {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
