//! A running command.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use stead_types::{ExecResult, ExecuteError, Stream as OutputStream, TerminalSize};
use tokio::sync::{mpsc, oneshot};

/// Bytes of one stream as they came: not lines, not characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputChunk {
    /// The stream.
    pub stream: OutputStream,
    /// At least one byte.
    pub bytes: Bytes,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessExit {
    /// As in [`stead_types::ExecResult`].
    pub exit_code: Option<i32>,
    /// As in [`stead_types::ExecResult`].
    pub signal: Option<i32>,
    /// As in [`stead_types::ExecResult`].
    pub timed_out: bool,
    /// As in [`stead_types::ExecResult`].
    pub oom_killed: bool,
    /// As in [`stead_types::ExecResult`].
    pub duration: Duration,
    /// Bytes that the program wrote to standard output and standard error, also those over the limit.
    pub total_bytes: [u64; 2],
}

impl ProcessExit {
    /// The result of a command of which this much output was kept.
    pub fn with_output(self, [stdout, stderr]: [Vec<u8>; 2]) -> ExecResult {
        // Nothing that was kept can have been written less than once.
        let [stdout_total_bytes, stderr_total_bytes] = [
            self.total_bytes[0].max(stdout.len() as u64),
            self.total_bytes[1].max(stderr.len() as u64),
        ];
        ExecResult {
            stdout_truncated: stdout_total_bytes > stdout.len() as u64,
            stderr_truncated: stderr_total_bytes > stderr.len() as u64,
            stdout,
            stderr,
            exit_code: self.exit_code,
            signal: self.signal,
            timed_out: self.timed_out,
            oom_killed: self.oom_killed,
            duration: self.duration,
            stdout_total_bytes,
            stderr_total_bytes,
        }
    }
}

/// Whom a signal reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalTarget {
    /// The first process of the command.
    Leader,
    /// The leader's process group.
    Group,
}

/// What a provider does for a running command. Dropping the last reference ends the command's tree.
#[async_trait]
pub trait ProcessControl: Send + Sync {
    /// Writes to standard input; waits while the program does not read.
    async fn write_stdin(&self, bytes: &[u8]) -> Result<(), ExecuteError>;
    /// Ends standard input.
    async fn close_stdin(&self) -> Result<(), ExecuteError>;
    /// Sends a signal.
    async fn signal(&self, signal: i32, target: SignalTarget) -> Result<(), ExecuteError>;
    /// Changes the size of the terminal.
    async fn resize(&self, size: TerminalSize) -> Result<(), ExecuteError>;
    /// Ends the tree: SIGTERM, then SIGKILL after the grace. `wait` then gives `Cancelled`.
    async fn cancel(&self, grace: Duration) -> Result<(), ExecuteError>;
}

/// A running command. Dropping it ends the command's tree.
pub struct Process {
    control: Arc<dyn ProcessControl>,
    output: BoxStream<'static, OutputChunk>,
    exit: Exit,
}

enum Exit {
    Pending(oneshot::Receiver<Result<ProcessExit, ExecuteError>>),
    Known(ProcessExit),
    Taken,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Process")
    }
}

impl Process {
    /// Puts a process together. `output` ends when no more output will come; `exit` must be sent
    /// exactly once.
    pub fn new(
        control: Arc<dyn ProcessControl>,
        output: impl Stream<Item = OutputChunk> + Send + 'static,
        exit: oneshot::Receiver<Result<ProcessExit, ExecuteError>>,
    ) -> Self {
        Self {
            control,
            output: output.boxed(),
            exit: Exit::Pending(exit),
        }
    }

    /// The same with the receiving end of a channel, which bounds what is held.
    pub fn with_channel(
        control: Arc<dyn ProcessControl>,
        mut output: mpsc::Receiver<OutputChunk>,
        exit: oneshot::Receiver<Result<ProcessExit, ExecuteError>>,
    ) -> Self {
        Self::new(
            control,
            futures_util::stream::poll_fn(move |context| output.poll_recv(context)),
            exit,
        )
    }

    /// The next output of either stream; `None` when no more will come. While it is not called, the
    /// program waits as soon as the bounded buffers are full.
    pub async fn next_output(&mut self) -> Option<OutputChunk> {
        self.output.next().await
    }

    /// Waits for the end. An error is an answer too: `Lost`, `Cancelled`.
    ///
    /// Output that nobody reads can keep the program from ending: read it first, or drop what comes.
    pub async fn wait(&mut self) -> Result<ProcessExit, ExecuteError> {
        match &mut self.exit {
            Exit::Known(exit) => Ok(exit.clone()),
            Exit::Taken => Err(lost("its end was already reported")),
            Exit::Pending(receiver) => {
                let result = receiver.await.unwrap_or_else(|_| Err(lost("its provider ended")));
                self.exit = match &result {
                    Ok(exit) => Exit::Known(exit.clone()),
                    Err(_) => Exit::Taken,
                };
                result
            }
        }
    }

    /// Waits for the end and drops the output that comes meanwhile.
    pub async fn wait_discarding_output(&mut self) -> Result<ProcessExit, ExecuteError> {
        while self.next_output().await.is_some() {}
        self.wait().await
    }

    /// Input, signals, size and cancelling; can be used from other tasks.
    pub fn control(&self) -> Arc<dyn ProcessControl> {
        Arc::clone(&self.control)
    }
}

fn lost(reason: &str) -> ExecuteError {
    ExecuteError::Lost {
        instance: stead_types::InstanceId::new(""),
        reason: reason.to_owned(),
    }
}
