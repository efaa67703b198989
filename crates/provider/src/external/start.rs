//! Starting a command under a provider program.

use super::connection::Connection;
use super::error::ExternalError;
use super::inner::{Inner, object};
use super::running::{Control, Running};
use super::{MAX_LINE, WINDOW, message};
use crate::contract::effective_timeout;
use crate::process::Process;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use stead_types::config::DEFAULT_GRACE;
use stead_types::{CommandLine, ComputeConfig, ExecuteError, InstanceId, InvalidInput, Stdin};
use tokio::sync::{mpsc, oneshot, watch};

impl Inner {
    pub(super) async fn spawn(
        &self,
        id: &InstanceId,
        command: CommandLine,
        mut config: ComputeConfig,
    ) -> Result<Process, ExecuteError> {
        check(id, &command, &config)?;
        let stdin = config.stdin.take();
        let not_started = |error: ExternalError| ExecuteError::Failed {
            instance: id.clone(),
            reason: error.to_string(),
            source: Some(Box::new(error)),
        };
        let connection = self.connection(self.deadline).await.map_err(not_started)?;
        let (name, routed) = connection.route();
        let body = start_body(id, &name, &command, &config, stdin.is_some());
        let running = self.running(connection, name, id);
        // From here on, leaving early ends the command.
        let control = Control(Arc::clone(&running));
        if let Err(error) = running
            .connection
            .request("start", body, Some(self.deadline))
            .await
        {
            return Err(start_error(&running, error));
        }
        let (output, chunks) = mpsc::channel(1);
        let (exit, end) = oneshot::channel();
        tokio::spawn(Arc::clone(&running).forward(routed, output, exit, self.limit(id, &config)));
        if let Some(Stdin::Bytes(bytes)) = stdin {
            tokio::spawn(async move {
                // A program that stops to read early is no error.
                if running.write(&bytes).await.is_ok() {
                    let _ = running.close_input().await;
                }
            });
        }
        Ok(Process::with_channel(Arc::new(control), chunks, end))
    }

    fn running(&self, connection: Arc<Connection>, command: String, id: &InstanceId) -> Arc<Running> {
        Arc::new(Running {
            connection,
            command,
            instance: id.clone(),
            deadline: self.deadline,
            ended: watch::Sender::new(false),
            cancelled: AtomicBool::new(false),
        })
    }

    /// When a command must have ended if the program enforces its timeout.
    fn limit(&self, id: &InstanceId, config: &ComputeConfig) -> Option<Duration> {
        let own = config.timeout.is_some().then(|| effective_timeout(config));
        let timeouts = self.timeouts();
        let timeout = own.or_else(|| timeouts.get(id).copied()).flatten()?;
        let grace = config.grace.unwrap_or(DEFAULT_GRACE);
        Some(timeout.saturating_add(grace).saturating_add(self.deadline))
    }
}

fn start_body(
    id: &InstanceId,
    name: &str,
    command: &CommandLine,
    config: &ComputeConfig,
    stdin: bool,
) -> Map<String, Value> {
    let (what, line) = message::command(command);
    let mut body = Map::from_iter([(what.to_owned(), line)]);
    body.extend(object(json!({
        "instance": id, "command": name, "config": message::config(config), "stdin": stdin, "window": WINDOW,
    })));
    body
}

fn check(id: &InstanceId, command: &CommandLine, config: &ComputeConfig) -> Result<(), ExecuteError> {
    let invalid = |source| ExecuteError::Invalid {
        instance: id.clone(),
        source,
    };
    command.check().map_err(invalid)?;
    config.check().map_err(invalid)?;
    match config.instance_key() {
        None => Ok(()),
        Some(key) => {
            let reason = "it belongs to the instance".to_owned();
            Err(ExecuteError::Unsupported {
                instance: id.clone(),
                key: key.to_owned(),
                reason,
            })
        }
    }
}

/// What a `start` that was not confirmed means. The caller's `Control` sends the cancel.
fn start_error(running: &Running, error: ExternalError) -> ExecuteError {
    let instance = running.instance.clone();
    match error {
        ExternalError::TooLarge { bytes, .. } => {
            running.not_started();
            ExecuteError::Invalid {
                instance,
                source: InvalidInput::TooLarge {
                    bytes,
                    limit: MAX_LINE,
                },
            }
        }
        ExternalError::Refused {
            kind, message, key, ..
        } => {
            running.not_started();
            refused_start(instance, &kind, message, key)
        }
        ExternalError::Closed { reason } => ExecuteError::Lost { instance, reason },
        other => ExecuteError::Lost {
            instance,
            reason: other.to_string(),
        },
    }
}

fn refused_start(instance: InstanceId, kind: &str, reason: String, key: Option<String>) -> ExecuteError {
    match kind {
        "no_instance" => ExecuteError::NoInstance { instance },
        "no_shell" => ExecuteError::NoShell { instance },
        "launch_failed" => {
            let source = std::io::Error::other(reason.clone());
            ExecuteError::LaunchFailed {
                instance,
                what: reason,
                source,
            }
        }
        "unsupported" => {
            let key = key.unwrap_or_else(|| "the configuration".to_owned());
            ExecuteError::Unsupported {
                instance,
                key,
                reason,
            }
        }
        _ => ExecuteError::Failed {
            instance,
            reason,
            source: None,
        },
    }
}
