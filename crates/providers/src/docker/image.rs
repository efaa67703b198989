//! Images: whether they are there, and getting them.

use super::PROVIDER;
use super::engine::Engine;
use super::error::{EngineError, bounded};
use super::options::{PullPolicy, RegistryAuth, invalid};
use super::reference::ImageRef;
use bollard::auth::DockerCredentials;
use bollard::models::{CreateImageInfo, ImageInspect};
use bollard::query_parameters::CreateImageOptionsBuilder;
use futures_util::StreamExt;
use std::time::Duration;
use stead_types::ProvisionError;
pub use stead_types::secret::{EnvSecrets, SecretSource, secret_variable};
use tokio::time::{Instant, timeout};

/// What a plan needs to know of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts {
    /// Its id, which unlike its name cannot come to mean another image.
    pub id: String,
    /// The user that its author chose.
    pub user: Option<String>,
    /// The machine that it is for, as `amd64`.
    pub arch: String,
}

/// One sign of progress of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullProgress {
    /// The layer, or the tag for what concerns the whole image.
    pub layer: String,
    /// The engine's word for what it does.
    pub status: String,
    /// Bytes that are done, where the engine says it.
    pub current: Option<u64>,
    /// Bytes in all, where the engine says it.
    pub total: Option<u64>,
}

/// What makes an image ready.
pub struct Prepare<'a> {
    /// When it is pulled.
    pub policy: PullPolicy,
    /// How to log in.
    pub auth: Option<&'a RegistryAuth>,
    /// Where the password is.
    pub secrets: &'a dyn SecretSource,
    /// Told of each sign of progress.
    pub progress: &'a (dyn Fn(PullProgress) + Send + Sync),
}

impl Engine {
    /// Looks an image up; `None` is an image that the engine does not have.
    pub async fn inspect_image(&self, image: &ImageRef) -> Result<Option<ImageFacts>, EngineError> {
        let name = image.to_string();
        let what = "look the image up";
        let found = self
            .call(what, |docker| async move { docker.inspect_image(&name).await })
            .await;
        match found {
            Ok(found) => Ok(Some(facts_of(what, found)?)),
            Err(error) if error.status() == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes sure that an image is there as the policy says, and describes it.
    pub async fn prepare_image(
        &self,
        image: &ImageRef,
        prepare: &Prepare<'_>,
    ) -> Result<ImageFacts, ProvisionError> {
        if prepare.policy != PullPolicy::Always
            && let Some(found) = self
                .inspect_image(image)
                .await
                .map_err(EngineError::into_provision)?
        {
            return Ok(found);
        }
        if prepare.policy == PullPolicy::Never || image.is_id() {
            return Err(ProvisionError::ImageMissing {
                provider: PROVIDER.to_owned(),
                image: image.to_string(),
            });
        }
        let credentials = prepare
            .auth
            .map(|auth| credentials(image, auth, prepare.secrets))
            .transpose()?;
        self.pull(image, credentials, prepare.progress).await?;
        let found = self
            .inspect_image(image)
            .await
            .map_err(EngineError::into_provision)?;
        found.ok_or_else(|| {
            pull_failed(
                image,
                "the pull ended without an error, but the image is not there",
            )
        })
    }

    async fn pull(
        &self,
        image: &ImageRef,
        credentials: Option<DockerCredentials>,
        progress: &(dyn Fn(PullProgress) + Send + Sync),
    ) -> Result<(), ProvisionError> {
        let what = "pull the image";
        let (docker, address) = self.stream_client().await.map_err(EngineError::into_provision)?;
        let (name, part) = image.pull_parts();
        let options = CreateImageOptionsBuilder::new()
            .from_image(name)
            .tag(part)
            .build();
        let mut steps = std::pin::pin!(docker.create_image(Some(options), None, credentials));
        let deadlines = *self.deadlines();
        let end = Instant::now() + deadlines.pull;
        loop {
            let limit = deadlines
                .pull_stall
                .min(end.saturating_duration_since(Instant::now()));
            match timeout(limit, steps.next()).await {
                Err(_) => return Err(pull_failed(image, &late(&deadlines, end))),
                Ok(None) => return Ok(()),
                Ok(Some(Ok(step))) => report(step, progress),
                Ok(Some(Err(error))) => {
                    let error = self.failed(what, &address, error, limit);
                    return Err(match error {
                        EngineError::NoSocket { .. } | EngineError::NotRunning { .. } => {
                            error.into_provision()
                        }
                        EngineError::Refused { message, .. } => pull_failed(image, &message),
                        EngineError::PermissionDenied { reason, .. } => pull_failed(image, &reason),
                        other => pull_failed(image, &other.whole()),
                    });
                }
            }
        }
    }
}

fn late(deadlines: &super::engine::Deadlines, end: Instant) -> String {
    let seconds = |limit: Duration| format!("{:.1} s", limit.as_secs_f64());
    match Instant::now() >= end {
        true => format!("it took longer than {}", seconds(deadlines.pull)),
        false => format!("there was no progress for {}", seconds(deadlines.pull_stall)),
    }
}

fn report(step: CreateImageInfo, progress: &(dyn Fn(PullProgress) + Send + Sync)) {
    let detail = step.progress_detail.unwrap_or_default();
    let bytes = |count: Option<i64>| count.and_then(|count| u64::try_from(count).ok());
    let step = PullProgress {
        layer: step.id.map(|id| bounded(&id)).unwrap_or_default(),
        status: step.status.map(|status| bounded(&status)).unwrap_or_default(),
        current: bytes(detail.current),
        total: bytes(detail.total).filter(|total| *total > 0),
    };
    tracing::debug!(
        layer = step.layer,
        status = step.status,
        current = step.current,
        total = step.total,
        "pull"
    );
    progress(step);
}

fn facts_of(what: &'static str, found: ImageInspect) -> Result<ImageFacts, EngineError> {
    let no_id = || EngineError::Unreadable {
        what,
        source: "there is no id in it".into(),
    };
    let user = found
        .config
        .and_then(|config| config.user)
        .filter(|user| !user.is_empty());
    Ok(ImageFacts {
        id: found.id.filter(|id| !id.is_empty()).ok_or_else(no_id)?,
        user,
        arch: found.architecture.unwrap_or_default(),
    })
}

fn credentials(
    image: &ImageRef,
    auth: &RegistryAuth,
    secrets: &dyn SecretSource,
) -> Result<DockerCredentials, ProvisionError> {
    let password = secrets.secret(&auth.password_secret).map_err(|reason| {
        let name = &auth.password_secret;
        invalid(
            "registry_auth.password_secret",
            format!("there is no secret {name:?}: {reason}"),
        )
    })?;
    Ok(DockerCredentials {
        username: Some(auth.username.clone()),
        password: Some(password),
        serveraddress: Some(image.registry().to_owned()),
        ..DockerCredentials::default()
    })
}

fn pull_failed(image: &ImageRef, reason: &str) -> ProvisionError {
    ProvisionError::PullFailed {
        provider: PROVIDER.to_owned(),
        image: image.to_string(),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secrets_variable_has_only_letters_that_variables_have() {
        assert_eq!(secret_variable("ghcr.io/token-1"), "STEAD_SECRET_GHCR_IO_TOKEN_1");
    }
}
