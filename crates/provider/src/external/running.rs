//! A command that runs under a provider program.

use super::connection::{Connection, Routed};
use super::error::ExternalError;
use super::message::{ExitEvent, Refusal, encode, safe_text};
use crate::process::{OutputChunk, ProcessControl, ProcessExit, SignalTarget};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stead_types::config::DEFAULT_GRACE;
use stead_types::{ExecuteError, InstanceId, TerminalSize};
use tokio::sync::{mpsc, oneshot, watch};

/// Bytes of one standard input message.
const STDIN_PIECE: usize = 32 << 10;

/// What is known of a running command.
pub(super) struct Running {
    pub(super) connection: Arc<Connection>,
    pub(super) command: String,
    pub(super) instance: InstanceId,
    pub(super) deadline: Duration,
    pub(super) ended: watch::Sender<bool>,
    pub(super) cancelled: AtomicBool,
}

impl Running {
    pub(super) fn body(&self, more: Value) -> Map<String, Value> {
        let mut body = Map::from_iter([("command".to_owned(), json!(self.command))]);
        if let Value::Object(more) = more {
            body.extend(more);
        }
        body
    }

    /// The program refused it, or it was never sent: there is nothing to cancel.
    pub(super) fn not_started(&self) {
        self.ended.send_replace(true);
        self.connection.unroute(&self.command);
    }

    fn ended_error(&self) -> ExecuteError {
        ExecuteError::NotRunning {
            instance: self.instance.clone(),
            reason: "it ended".to_owned(),
        }
    }

    fn lost(&self, reason: String) -> ExecuteError {
        ExecuteError::Lost {
            instance: self.instance.clone(),
            reason,
        }
    }

    async fn ask(
        &self,
        op: &'static str,
        more: Value,
        deadline: Option<Duration>,
    ) -> Result<(), ExecuteError> {
        if *self.ended.borrow() {
            return Err(self.ended_error());
        }
        let mut ended = self.ended.subscribe();
        let answer = tokio::select! {
            answer = self.connection.request(op, self.body(more), deadline) => answer,
            _ = ended.wait_for(|ended| *ended) => return Err(self.ended_error()),
        };
        answer.map(|_| ()).map_err(|error| match error {
            ExternalError::Closed { reason } => self.lost(reason),
            ExternalError::Refused { message, .. } => ExecuteError::NotRunning {
                instance: self.instance.clone(),
                reason: message,
            },
            other => ExecuteError::Failed {
                instance: self.instance.clone(),
                reason: other.to_string(),
                source: Some(Box::new(other)),
            },
        })
    }

    /// No deadline: a program may read as late as it likes, and the wait ends with the command.
    pub(super) async fn write(&self, bytes: &[u8]) -> Result<(), ExecuteError> {
        for piece in bytes.chunks(STDIN_PIECE) {
            self.ask("stdin", json!({ "data": encode(piece) }), None).await?;
        }
        Ok(())
    }

    pub(super) async fn close_input(&self) -> Result<(), ExecuteError> {
        self.ask("stdin", json!({ "end": true }), None).await
    }

    /// Passes output and the end on. `limit`: when the command must have ended, by its own timeout.
    pub(super) async fn forward(
        self: Arc<Self>,
        mut routed: mpsc::Receiver<Routed>,
        output: mpsc::Sender<OutputChunk>,
        exit: oneshot::Sender<Result<ProcessExit, ExecuteError>>,
        limit: Option<Duration>,
    ) {
        let limit = limit.and_then(|limit| tokio::time::Instant::now().checked_add(limit));
        let overdue = async {
            match limit {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let result = tokio::select! {
            result = self.pump(&mut routed, output) => result,
            () = overdue => {
                self.post_cancel(Duration::ZERO);
                Err(self.lost("it did not end at its timeout".to_owned()))
            }
        };
        self.connection.unroute(&self.command);
        self.ended.send_replace(true);
        // Nobody may be waiting.
        let _ = exit.send(result);
    }

    async fn pump(
        &self,
        routed: &mut mpsc::Receiver<Routed>,
        output: mpsc::Sender<OutputChunk>,
    ) -> Result<ProcessExit, ExecuteError> {
        while let Some(next) = routed.recv().await {
            match next {
                Routed::Output(chunk) => {
                    // Output that nobody reads any more is dropped, so that the command can end.
                    let _ = output.send(chunk).await;
                    self.connection
                        .post("ack", self.body(json!({ "count": 1 })), false);
                }
                Routed::Exit(exit) => return self.outcome(exit),
            }
        }
        let reason = self.connection.closed_reason();
        Err(self.lost(reason.unwrap_or_else(|| "the provider program forgot it".to_owned())))
    }

    fn outcome(&self, exit: ExitEvent) -> Result<ProcessExit, ExecuteError> {
        if self.cancelled.load(Ordering::SeqCst) {
            return Err(ExecuteError::Cancelled {
                instance: self.instance.clone(),
            });
        }
        if let Some(refusal) = exit.error {
            return Err(self.end_error(&refusal));
        }
        Ok(ProcessExit {
            exit_code: exit.exit_code,
            signal: exit.signal.filter(|_| !exit.timed_out),
            timed_out: exit.timed_out,
            oom_killed: exit.oom_killed,
            duration: Duration::from_millis(exit.duration_ms),
            total_bytes: exit.total_bytes,
        })
    }

    fn end_error(&self, refusal: &Refusal) -> ExecuteError {
        let instance = self.instance.clone();
        match refusal.kind.as_str() {
            "cancelled" => ExecuteError::Cancelled { instance },
            "tree_remains" => ExecuteError::TreeRemains { instance },
            // Whatever else it says: the command was started, and its end is not known.
            _ => ExecuteError::Lost {
                instance,
                reason: safe_text(&refusal.message),
            },
        }
    }

    fn post_cancel(&self, grace: Duration) {
        let grace = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.connection
            .post("cancel", self.body(json!({ "grace_ms": grace })), true);
    }
}

/// Held by whoever uses the process; dropping the last reference ends the command.
pub(super) struct Control(pub(super) Arc<Running>);

impl Drop for Control {
    fn drop(&mut self) {
        if !*self.0.ended.borrow() {
            self.0.post_cancel(DEFAULT_GRACE);
        }
    }
}

#[async_trait]
impl ProcessControl for Control {
    async fn write_stdin(&self, bytes: &[u8]) -> Result<(), ExecuteError> {
        self.0.write(bytes).await
    }

    async fn close_stdin(&self) -> Result<(), ExecuteError> {
        self.0.close_input().await
    }

    async fn signal(&self, signal: i32, target: SignalTarget) -> Result<(), ExecuteError> {
        let target = match target {
            SignalTarget::Leader => "leader",
            SignalTarget::Group => "group",
        };
        self.0
            .ask(
                "signal",
                json!({ "signal": signal, "target": target }),
                Some(self.0.deadline),
            )
            .await
    }

    async fn resize(&self, size: TerminalSize) -> Result<(), ExecuteError> {
        let more = json!({ "rows": size.rows, "cols": size.cols });
        self.0.ask("resize", more, Some(self.0.deadline)).await
    }

    async fn cancel(&self, grace: Duration) -> Result<(), ExecuteError> {
        let running = &self.0;
        if *running.ended.borrow() {
            return Err(running.ended_error());
        }
        running.cancelled.store(true, Ordering::SeqCst);
        let more = json!({ "grace_ms": u64::try_from(grace.as_millis()).unwrap_or(u64::MAX) });
        match running
            .ask("cancel", more, Some(running.deadline.saturating_add(grace)))
            .await
        {
            // It ended while it was asked to, which is what was wanted.
            Err(ExecuteError::NotRunning { .. }) => Ok(()),
            other => other,
        }
    }
}
