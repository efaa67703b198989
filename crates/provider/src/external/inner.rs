//! What a provider program is asked, and what its answers mean.

use super::connection::Connection;
use super::error::ExternalError;
use super::message::{self, InstanceAnswer, safe_text};
use crate::contract::effective_timeout;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_types::error::Code;
use stead_types::{
    Axis, ComputeConfig, ComputeInstance, InstanceId, ListError, Missing, ProvisionError, ShutdownError,
    Timeout,
};

pub(super) struct Inner {
    pub(super) name: String,
    pub(super) argv: Vec<OsString>,
    pub(super) deadline: Duration,
    pub(super) provision_deadline: Duration,
    pub(super) trust_isolation: bool,
    pub(super) connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// The default timeout of each instance's commands.
    pub(super) timeouts: Mutex<HashMap<InstanceId, Option<Duration>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.get_mut() {
            connection.close("its provider was dropped");
        }
    }
}

impl Inner {
    /// The running program; starts it when there is none.
    pub(super) async fn connection(&self, deadline: Duration) -> Result<Arc<Connection>, ExternalError> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot
            .as_ref()
            .filter(|connection| connection.closed_reason().is_none())
        {
            return Ok(Arc::clone(connection));
        }
        let connection = Connection::open(&self.argv, deadline).await?;
        *slot = Some(Arc::clone(&connection));
        Ok(connection)
    }

    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        op: &'static str,
        body: Value,
        deadline: Duration,
    ) -> Result<T, ExternalError> {
        let connection = self.connection(self.deadline.min(deadline)).await?;
        read(op, connection.request(op, object(body), Some(deadline)).await?)
    }

    pub(super) fn instance(&self, answer: InstanceAnswer) -> ComputeInstance {
        let mut isolation = answer.isolation;
        for axis in Axis::ALL {
            if isolation.holds(axis) && !self.trust_isolation {
                isolation.set(axis, None);
            }
        }
        ComputeInstance {
            id: InstanceId::new(safe_text(&answer.id)),
            provider: self.name.clone(),
            status: answer.status,
            created_at: answer.created_at.unwrap_or_else(time::OffsetDateTime::now_utc),
            isolation,
            metadata: answer.metadata,
        }
    }

    pub(super) async fn provision(&self, config: ComputeConfig) -> Result<ComputeInstance, ProvisionError> {
        let (config, timeout) = self.prepare(config)?;
        let id = InstanceId::generate();
        let body = json!({ "instance": id, "config": message::config(&config) });
        let asked = self
            .ask::<InstanceAnswer>("provision", body, self.provision_deadline)
            .await;
        let checked = asked.and_then(|answer| match answer.id == id.as_str() {
            true => Ok(answer),
            false => {
                let reason = "it is about another instance".to_owned();
                Err(ExternalError::Answer {
                    op: "provision",
                    reason,
                })
            }
        });
        match checked {
            Ok(answer) => {
                self.timeouts().insert(id, timeout);
                Ok(self.instance(answer))
            }
            Err(error) => {
                // It may have been brought up all the same.
                if matches!(
                    error,
                    ExternalError::TimedOut { .. } | ExternalError::Answer { .. }
                ) {
                    self.give_up(&id).await;
                }
                Err(self.provision_error(id, error))
            }
        }
    }

    /// Checks a configuration and fills in the timeout, which the program need not know the default of.
    fn prepare(
        &self,
        mut config: ComputeConfig,
    ) -> Result<(ComputeConfig, Option<Duration>), ProvisionError> {
        let provider = self.name.clone();
        if config.stdin.take().is_some() {
            let (key, reason) = ("stdin".to_owned(), "it belongs to one command".to_owned());
            return Err(ProvisionError::Unsupported {
                provider,
                key,
                reason,
            });
        }
        config
            .check()
            .map_err(|source| ProvisionError::Invalid { provider, source })?;
        let timeout = effective_timeout(&config);
        config.timeout = Some(timeout.map_or(Timeout::Never, Timeout::After));
        Ok((config, timeout))
    }

    pub(super) fn timeouts(&self) -> MutexGuard<'_, HashMap<InstanceId, Option<Duration>>> {
        // No code that can panic runs under the lock.
        self.timeouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn give_up(&self, id: &InstanceId) {
        if let Err(error) = self.shutdown(id).await {
            tracing::warn!(provider = self.name, instance = %id, %error, "instance may be left behind");
        }
    }

    fn provision_error(&self, instance: InstanceId, error: ExternalError) -> ProvisionError {
        let provider = self.name.clone();
        match error {
            ExternalError::TimedOut { seconds, .. } => ProvisionError::TimedOut {
                provider,
                instance,
                seconds,
            },
            ExternalError::Start { .. } | ExternalError::Version { .. } => ProvisionError::Unavailable {
                provider,
                missing: missing(&error),
            },
            ExternalError::Refused {
                kind, message, key, ..
            } => refused_provision(provider, &kind, message, key),
            other => {
                let reason = other.to_string();
                ProvisionError::Failed {
                    provider,
                    reason,
                    source: Some(Box::new(other)),
                }
            }
        }
    }

    pub(super) async fn shutdown(&self, id: &InstanceId) -> Result<(), ShutdownError> {
        match self
            .ask::<Value>("shutdown", json!({ "instance": id }), self.deadline)
            .await
        {
            Ok(_) => {
                self.timeouts().remove(id);
                Ok(())
            }
            Err(error) => {
                let (provider, instance, reason) = (self.name.clone(), id.clone(), error.to_string());
                Err(ShutdownError::StillThere {
                    provider,
                    instance,
                    reason,
                    source: Some(Box::new(error)),
                })
            }
        }
    }

    pub(super) fn list_error(&self, error: ExternalError) -> ListError {
        let (provider, reason) = (self.name.clone(), error.to_string());
        ListError::Failed {
            provider,
            reason,
            source: Some(Box::new(error)),
        }
    }
}

fn refused_provision(provider: String, kind: &str, reason: String, key: Option<String>) -> ProvisionError {
    let key = key.unwrap_or_else(|| "the configuration".to_owned());
    match kind {
        "unavailable" => {
            let remedy = "Do what the provider program's message says.".to_owned();
            let missing = Missing {
                code: "external_unavailable",
                reason,
                remedy,
            };
            ProvisionError::Unavailable { provider, missing }
        }
        "unsupported" => ProvisionError::Unsupported {
            provider,
            key,
            reason,
        },
        "option" => ProvisionError::Option {
            provider,
            option: key,
            reason,
        },
        _ => ProvisionError::Failed {
            provider,
            reason,
            source: None,
        },
    }
}

pub(super) fn missing(error: &ExternalError) -> Missing {
    Missing {
        code: error.code(),
        reason: error.to_string(),
        remedy: error.remedy(),
    }
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

fn read<T: DeserializeOwned>(op: &'static str, value: Value) -> Result<T, ExternalError> {
    serde_json::from_value(value).map_err(|error| ExternalError::Answer {
        op,
        reason: safe_text(&error.to_string()),
    })
}
