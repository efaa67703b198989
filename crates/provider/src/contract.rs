//! The provider contract.

use crate::files::Files;
use crate::process::{Process, ProcessControl};
use async_trait::async_trait;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stead_types::config::{DEFAULT_MAX_OUTPUT, Timeout};
use stead_types::{
    Availability, Axes, CommandLine, ComputeConfig, ComputeInstance, ExecResult, ExecuteError, FilesError,
    InstanceId, ListError, MemoryError, ProvisionError, ShutdownError, Stdin, Stream,
};

/// A way to obtain instances. All methods may be called from many tasks at once.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// The lower-case name, as it is registered.
    fn name(&self) -> &str;

    /// Whether this provider can be used here, and if not, why and what to do. Never panics, takes at
    /// most 15 s, may answer from a cache that is at most 5 s old.
    async fn probe(&self) -> Availability;

    /// What was observed on this machine of the isolation of instances with the default configuration.
    /// Answers at once. Default: nobody looked.
    fn observed_axes(&self) -> Axes {
        Axes::UNKNOWN
    }

    /// Takes what was observed of an instance of its default configuration without a network. Later instances say
    /// so, here and in other processes, until what the isolation rests on changes. Default: it is not kept.
    async fn keep_observed(&self, axes: Axes) {
        let _ = axes;
    }

    /// Refuses a configuration that cannot be honoured, as far as that can be told without starting anything.
    /// [`Self::provision`] refuses the same and more. Default: nothing can be told.
    fn check(&self, config: &ComputeConfig) -> Result<(), ProvisionError> {
        let _ = config;
        Ok(())
    }

    /// Whether its commands are processes of the host that get the host's environment unless
    /// [`ComputeConfig::inherit_env`] says otherwise. Default: only `local`.
    fn inherits_host_env(&self) -> bool {
        self.name() == "local"
    }

    /// Brings up an instance. All or nothing: on failure nothing is left behind, also when the caller
    /// drops the future.
    async fn provision(&self, config: ComputeConfig) -> Result<ComputeInstance, ProvisionError>;

    /// Starts one command with live input and output. With [`Stdin::Stream`] the caller writes the
    /// input; with [`Stdin::Bytes`] it is written for the caller. The keys of `config` override those given at
    /// provision; see [`ComputeConfig`]. Commands of one instance do not wait for each other.
    async fn spawn(
        &self,
        id: &InstanceId,
        command: CommandLine,
        config: ComputeConfig,
    ) -> Result<Process, ExecuteError>;

    /// Runs one command to its end. A non-zero exit is a result; a program that cannot be executed is
    /// 127 or 126 with its name on standard error. Dropping the future ends the command's tree.
    async fn execute(
        &self,
        id: &InstanceId,
        command: CommandLine,
        config: ComputeConfig,
    ) -> Result<ExecResult, ExecuteError> {
        execute_on_spawn(self, id, command, config).await
    }

    /// Tears an instance down and confirms it. Unknown or already gone is `Ok`. After a failure the
    /// instance is in status `error`, and a later shutdown tries again.
    async fn shutdown(&self, id: &InstanceId) -> Result<(), ShutdownError>;

    /// All instances of this provider on this host that still exist, also those that another process
    /// of this user brought up.
    async fn list_instances(&self) -> Result<Vec<ComputeInstance>, ListError>;

    /// One instance, `None` when there is none.
    async fn status(&self, id: &InstanceId) -> Result<Option<ComputeInstance>, ListError>;

    /// The files of an instance.
    async fn files(&self, id: &InstanceId) -> Result<Box<dyn Files>, FilesError>;

    /// Saves the memory of an instance with all its processes in `image`, an absolute directory that is empty or not
    /// there, and lets nothing of it run afterwards: its status is `stopped`, its files and what was started in it
    /// stay. Commands that are under way go on after [`Provider::restore_memory`]; what they wrote and nobody has
    /// read is not lost. After a failure it goes on, or the error says that it was lost. Default: unsupported.
    async fn save_memory(&self, _id: &InstanceId, _image: &Path) -> Result<(), MemoryError> {
        let provider = self.name().to_owned();
        Err(MemoryError::Unsupported { provider })
    }

    /// Goes on where [`Provider::save_memory`] stopped. The image is only read, and stays. After a failure the
    /// instance is as it was. Default: unsupported.
    async fn restore_memory(&self, _id: &InstanceId, _image: &Path) -> Result<(), MemoryError> {
        let provider = self.name().to_owned();
        Err(MemoryError::Unsupported { provider })
    }

    /// Removes what processes that are gone have left: instances whose owner does not live any more and
    /// that were not detached. Returns the ids of what was removed.
    async fn prune(&self) -> Result<Vec<InstanceId>, ListError> {
        Ok(Vec::new())
    }
}

/// `execute` in terms of `spawn`: feeds standard input, keeps the first bytes of each stream, counts all.
///
/// For a provider whose `spawn` does not honour `max_output_bytes` by itself.
pub async fn execute_on_spawn<P: Provider + ?Sized>(
    provider: &P,
    id: &InstanceId,
    command: CommandLine,
    mut config: ComputeConfig,
) -> Result<ExecResult, ExecuteError> {
    // Not filled in: the instance may have a limit of its own, which the provider knows.
    let limit = config.max_output_bytes.unwrap_or(DEFAULT_MAX_OUTPUT);
    let stdin = match config.stdin.take() {
        None => None,
        Some(Stdin::Bytes(bytes)) => {
            config.stdin = Some(Stdin::Stream);
            Some(bytes)
        }
        Some(Stdin::Stream) => {
            let reason = "execute has no way to write a stream; use spawn".to_owned();
            return Err(ExecuteError::Unsupported {
                instance: id.clone(),
                key: "stdin".to_owned(),
                reason,
            });
        }
    };
    let mut process = provider.spawn(id, command, config).await?;
    let feed = feed(process.control(), stdin);
    let collect = async {
        let mut collected = Collected::new(limit);
        while let Some(chunk) = process.next_output().await {
            collected.take(chunk.stream, &chunk.bytes);
        }
        let exit = process.wait().await?;
        Ok(collected.into_result(exit))
    };
    tokio::pin!(feed, collect);
    tokio::select! {
        biased;
        result = &mut collect => result,
        // The end of the input says nothing about the end of the program.
        () = &mut feed => collect.await,
    }
}

/// Writes `stdin` and ends it. A program that stops to read early is no error: `wait` says how it ended.
async fn feed(control: Arc<dyn ProcessControl>, stdin: Option<Vec<u8>>) {
    if let Some(bytes) = stdin
        && control.write_stdin(&bytes).await.is_ok()
    {
        let _ = control.close_stdin().await;
    }
}

struct Collected {
    limit: u64,
    kept: [Vec<u8>; 2],
    seen: [u64; 2],
}

impl Collected {
    fn new(limit: u64) -> Self {
        Self {
            limit,
            kept: [Vec::new(), Vec::new()],
            seen: [0, 0],
        }
    }

    fn take(&mut self, stream: Stream, bytes: &[u8]) {
        let at = match stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
        };
        self.seen[at] += bytes.len() as u64;
        let room = self.limit.saturating_sub(self.kept[at].len() as u64);
        let take = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
        self.kept[at].extend_from_slice(&bytes[..take]);
    }

    fn into_result(self, exit: crate::process::ProcessExit) -> ExecResult {
        let [stdout, stderr] = self.kept;
        // What the provider counted includes what it did not pass on.
        let total = |at: usize| exit.total_bytes[at].max(self.seen[at]);
        ExecResult {
            stdout_total_bytes: total(0),
            stderr_total_bytes: total(1),
            stdout_truncated: total(0) > stdout.len() as u64,
            stderr_truncated: total(1) > stderr.len() as u64,
            stdout,
            stderr,
            exit_code: exit.exit_code,
            signal: exit.signal,
            timed_out: exit.timed_out,
            oom_killed: exit.oom_killed,
            duration: exit.duration,
        }
    }
}

/// The timeout that a configuration asks for, with the default filled in.
pub fn effective_timeout(config: &ComputeConfig) -> Option<Duration> {
    match config.timeout {
        None => Some(stead_types::config::DEFAULT_TIMEOUT),
        Some(Timeout::After(after)) => Some(after),
        Some(Timeout::Never) => None,
    }
}
