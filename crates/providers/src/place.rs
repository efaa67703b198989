//! What all providers with a supervisor share: from the contract's words to the protocol's, and back.

use crate::link::{Ended, Link, LinkFiles, StartError};
use async_trait::async_trait;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;
use stead_provider::contract::effective_timeout;
use stead_provider::{Files, Process, ProcessControl, ProcessExit, SignalTarget};
use stead_types::command::InvalidInput;
use stead_types::config::{DEFAULT_GRACE, DEFAULT_MAX_OUTPUT};
use stead_types::{
    CommandLine, ComputeConfig, ComputeInstance, Descendants, ExecResult, ExecuteError, InstanceId,
    ProvisionError, Stdin, TerminalSize,
};
use stead_wire::{
    CommandSpec, ExitStatus, LaunchStage, PlaceProblem, Program, Refusal, StdinMode, StopCause,
};
use tokio::sync::oneshot;

/// A live place: its link, and the configuration that every command starts from.
#[derive(Debug, Clone)]
pub struct Place {
    /// What the contract says of it.
    pub instance: ComputeInstance,
    /// The configuration that was given at provision.
    pub config: ComputeConfig,
    /// The connection to its supervisor.
    pub link: Link,
}

/// A command that was checked and put into the protocol's words.
struct Prepared {
    spec: CommandSpec,
    stdin: Option<Stdin>,
    /// How the program is named when it cannot be executed.
    name: String,
    is_shell: bool,
}

impl Place {
    fn id(&self) -> InstanceId {
        self.instance.id.clone()
    }

    /// Files of the place.
    pub fn files(&self) -> Box<dyn Files> {
        Box::new(LinkFiles::new(self.link.clone(), self.id()))
    }

    /// Runs one command to its end.
    pub async fn execute(
        &self,
        command: CommandLine,
        config: ComputeConfig,
    ) -> Result<ExecResult, ExecuteError> {
        let mut prepared = self.prepare(command, &config, Some(DEFAULT_MAX_OUTPUT))?;
        let stdin = match prepared.stdin.take() {
            None => None,
            Some(Stdin::Bytes(bytes)) => Some(bytes),
            Some(Stdin::Stream) => {
                let reason = "execute has no way to write a stream; use spawn".to_owned();
                return Err(ExecuteError::Unsupported {
                    instance: self.id(),
                    key: "stdin".to_owned(),
                    reason,
                });
            }
        };
        let ended = self
            .link
            .execute(&prepared.spec, stdin)
            .await
            .map_err(|error| self.not_started(error))?;
        self.result(ended, &prepared)
    }

    /// Starts one command.
    pub fn spawn(&self, command: CommandLine, config: ComputeConfig) -> Result<Process, ExecuteError> {
        let mut prepared = self.prepare(command, &config, None)?;
        let mut running = self
            .link
            .spawn(&prepared.spec)
            .map_err(|error| self.not_started(error))?;
        let (sender, receiver) = oneshot::channel();
        let done = running.take_done();
        let running_output = running.output();
        let control = Arc::new(Control {
            running,
            instance: self.id(),
            has_terminal: prepared.spec.tty.is_some(),
        });
        if let Some(Stdin::Bytes(bytes)) = prepared.stdin.take() {
            feed_in_background(&control, bytes);
        }
        let place = self.clone();
        tokio::spawn(async move {
            let ended = match done {
                Some(done) => done
                    .await
                    .unwrap_or_else(|_| Ended::Lost("its link ended".to_owned())),
                None => return,
            };
            // Nobody may be waiting any more.
            let _ = sender.send(place.exit(ended, &prepared));
        });
        let chunks = futures_util::stream::unfold(running_output, |mut output| async move {
            output.next().await.map(|chunk| (chunk, output))
        });
        Ok(Process::new(control, chunks, receiver))
    }

    fn invalid(&self, source: InvalidInput) -> ExecuteError {
        ExecuteError::Invalid {
            instance: self.id(),
            source,
        }
    }

    fn prepare(
        &self,
        command: CommandLine,
        config: &ComputeConfig,
        default_limit: Option<u64>,
    ) -> Result<Prepared, ExecuteError> {
        if let Some(key) = config.instance_key() {
            let reason = "it holds for the whole instance".to_owned();
            return Err(ExecuteError::Unsupported {
                instance: self.id(),
                key: key.to_owned(),
                reason,
            });
        }
        command.check().map_err(|source| self.invalid(source))?;
        config.check().map_err(|source| self.invalid(source))?;
        let config = self.config.overridden_by(config);
        let (program, name, is_shell) = match command {
            CommandLine::Shell(text) => (Program::Shell(text.into_bytes()), "/bin/sh".to_owned(), true),
            CommandLine::Argv(argv) => {
                let name = argv
                    .first()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default();
                (
                    Program::Argv(argv.iter().map(|arg| arg.as_bytes().to_vec()).collect()),
                    name,
                    false,
                )
            }
        };
        let spec = CommandSpec {
            program,
            cwd: config
                .workdir
                .as_ref()
                .map(|path| path.as_os_str().as_bytes().to_vec()),
            env: env_of(&config),
            user: config.user.clone(),
            stdin: if config.stdin.is_some() {
                StdinMode::Stream
            } else {
                StdinMode::Empty
            },
            tty: config.tty.map(size),
            timeout_ms: effective_timeout(&config).map(millis),
            grace_ms: millis(config.grace.unwrap_or(DEFAULT_GRACE)),
            descendants: match config.descendants.unwrap_or_default() {
                Descendants::Sweep => stead_wire::Descendants::Sweep,
                Descendants::Keep => stead_wire::Descendants::Keep,
            },
            output_limit: config.max_output_bytes.or(default_limit),
        };
        Ok(Prepared {
            spec,
            stdin: config.stdin,
            name,
            is_shell,
        })
    }

    fn not_started(&self, error: StartError) -> ExecuteError {
        let instance = self.id();
        match error {
            // Nothing was sent, so nothing ran; but the place is as gone as if something had.
            StartError::Closed(reason) => ExecuteError::Lost { instance, reason },
            StartError::TooLarge(bytes) => {
                let source = InvalidInput::TooLarge {
                    bytes,
                    limit: stead_wire::MAX_COMMAND,
                };
                ExecuteError::Invalid { instance, source }
            }
            StartError::Failed(reason) => ExecuteError::Failed {
                instance,
                reason,
                source: None,
            },
        }
    }

    /// The end of `execute`: a program that cannot be executed is a result too.
    fn result(&self, ended: Ended, prepared: &Prepared) -> Result<ExecResult, ExecuteError> {
        if let Ended::LaunchFailed {
            stage: LaunchStage::Exec,
            errno,
        } = ended
        {
            return self.not_executable(errno, prepared);
        }
        let mut ended = ended;
        let output = match &mut ended {
            Ended::Exited { collected, .. } => std::mem::take(collected),
            Ended::LaunchFailed { .. } | Ended::Refused(_) | Ended::Lost(_) => Default::default(),
        };
        Ok(self.exit(ended, prepared)?.with_output(output))
    }

    fn not_executable(&self, errno: i32, prepared: &Prepared) -> Result<ExecResult, ExecuteError> {
        if prepared.is_shell {
            return Err(ExecuteError::NoShell { instance: self.id() });
        }
        let stderr = format!("stead: {}: {}\n", prepared.name, describe(errno)).into_bytes();
        Ok(ExecResult {
            exit_code: Some(exec_code(errno)),
            stderr_total_bytes: stderr.len() as u64,
            stderr,
            ..ExecResult::default()
        })
    }

    fn exit(&self, ended: Ended, prepared: &Prepared) -> Result<ProcessExit, ExecuteError> {
        let instance = self.id();
        match ended {
            Ended::Exited {
                exit, total_bytes, ..
            } => self.exited(exit, total_bytes),
            Ended::LaunchFailed { stage, errno } => self.launch_failed(stage, errno, prepared),
            Ended::Refused(reason) => {
                let reason = match reason {
                    Refusal::TooMany => "too many commands run there",
                    Refusal::ShuttingDown => "it is shutting down",
                    Refusal::BadCommand => "its supervisor does not understand the description",
                    Refusal::OtherFingerprint | Refusal::CancelledBefore => "its id was used before",
                };
                Err(ExecuteError::Failed {
                    instance,
                    reason: reason.to_owned(),
                    source: None,
                })
            }
            Ended::Lost(reason) => Err(ExecuteError::Lost { instance, reason }),
        }
    }

    fn exited(&self, exit: stead_wire::Exit, total_bytes: [u64; 2]) -> Result<ProcessExit, ExecuteError> {
        let instance = self.id();
        if exit.stopped.is_some() && !exit.tree_gone {
            return Err(ExecuteError::TreeRemains { instance });
        }
        let duration = Duration::from_micros(exit.duration_us);
        let (exit_code, signal, timed_out) = match (exit.stopped, exit.status) {
            (Some(StopCause::Timeout), _) => (None, None, true),
            (Some(StopCause::Cancel), _) => return Err(ExecuteError::Cancelled { instance }),
            (Some(StopCause::ShutDown), _) => {
                let reason = "its supervisor was ended from outside".to_owned();
                return Err(ExecuteError::Lost { instance, reason });
            }
            (None, ExitStatus::Code(code)) => (Some(code.into()), None, false),
            (None, ExitStatus::Signal { signal, .. }) => {
                (Some(128 + i32::from(signal)), Some(signal.into()), false)
            }
            (None, ExitStatus::Unknown) => {
                let reason = "the process that watched it was killed".to_owned();
                return Err(ExecuteError::Lost { instance, reason });
            }
        };
        Ok(ProcessExit {
            exit_code,
            signal,
            timed_out,
            oom_killed: exit.oom_killed,
            duration,
            total_bytes,
        })
    }

    fn launch_failed(
        &self,
        stage: LaunchStage,
        errno: i32,
        prepared: &Prepared,
    ) -> Result<ProcessExit, ExecuteError> {
        let instance = self.id();
        let source = io::Error::from_raw_os_error(errno);
        let what = match stage {
            LaunchStage::Exec if prepared.is_shell => return Err(ExecuteError::NoShell { instance }),
            LaunchStage::Exec => {
                return Ok(ProcessExit {
                    exit_code: Some(exec_code(errno)),
                    signal: None,
                    timed_out: false,
                    oom_killed: false,
                    duration: Duration::ZERO,
                    total_bytes: [0, 0],
                });
            }
            LaunchStage::User => match &prepared.spec.user {
                Some(user) => format!("the user {user} cannot be taken on"),
                None => "its user cannot be taken on".to_owned(),
            },
            LaunchStage::Cwd => match &prepared.spec.cwd {
                Some(cwd) => format!(
                    "the working directory {} cannot be entered",
                    String::from_utf8_lossy(cwd)
                ),
                None => "the working directory cannot be entered".to_owned(),
            },
            LaunchStage::Setup => "the system gave no process".to_owned(),
        };
        Err(ExecuteError::LaunchFailed {
            instance,
            what,
            source,
        })
    }
}

/// What keeps commands from being started in a new place, as an error of `provision`.
pub fn place_error(
    provider: &str,
    config: &ComputeConfig,
    workdir: &str,
    problem: PlaceProblem,
) -> ProvisionError {
    let reason = describe(problem.errno);
    let provider = provider.to_owned();
    match problem.stage {
        LaunchStage::User => {
            let user = config.user.clone().unwrap_or_default();
            let reason = "the place has no such user or group".to_owned();
            ProvisionError::User {
                provider,
                user,
                reason,
            }
        }
        LaunchStage::Cwd => ProvisionError::Workdir {
            provider,
            workdir: workdir.to_owned(),
            reason,
        },
        LaunchStage::Exec | LaunchStage::Setup => ProvisionError::Failed {
            provider,
            reason,
            source: None,
        },
    }
}

fn env_of(config: &ComputeConfig) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bytes = |text: &OsStr| text.as_bytes().to_vec();
    config
        .env
        .iter()
        .map(|(name, value)| (bytes(name), bytes(value)))
        .collect()
}

fn size(size: TerminalSize) -> stead_wire::TerminalSize {
    stead_wire::TerminalSize {
        rows: size.rows,
        cols: size.cols,
    }
}

fn millis(duration: Duration) -> u64 {
    // A part of a millisecond is a whole one: a timeout is never early.
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// What a shell answers: 127 for what is not there, 126 for what cannot be executed.
fn exec_code(errno: i32) -> i32 {
    let missing = [rustix::io::Errno::NOENT, rustix::io::Errno::NOTDIR].map(rustix::io::Errno::raw_os_error);
    if missing.contains(&errno) { 127 } else { 126 }
}

fn describe(errno: i32) -> String {
    if exec_code(errno) == 127 {
        return "not found".to_owned();
    }
    let text = io::Error::from_raw_os_error(errno).to_string();
    // Without the number in parentheses that the standard library adds.
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// Writes input for a caller that gave it as bytes; ends when the command or its handle does.
fn feed_in_background(control: &Arc<Control>, bytes: Vec<u8>) {
    let weak = Arc::downgrade(control);
    tokio::spawn(async move {
        for part in bytes.chunks(stead_wire::MAX_CHUNK) {
            // Only for the moment of one part: the handle must be free to be dropped.
            let Some(control) = weak.upgrade() else { return };
            if control.running.write_stdin(part).await.is_err() {
                return;
            }
        }
        if let Some(control) = weak.upgrade() {
            control.running.close_stdin();
        }
    });
}

struct Control {
    running: crate::link::LinkProcess,
    instance: InstanceId,
    has_terminal: bool,
}

impl Control {
    fn not_running(&self, error: crate::link::NotRunning) -> ExecuteError {
        ExecuteError::NotRunning {
            instance: self.instance.clone(),
            reason: error.0.to_owned(),
        }
    }
}

#[async_trait]
impl ProcessControl for Control {
    async fn write_stdin(&self, bytes: &[u8]) -> Result<(), ExecuteError> {
        self.running
            .write_stdin(bytes)
            .await
            .map_err(|error| self.not_running(error))
    }

    async fn close_stdin(&self) -> Result<(), ExecuteError> {
        self.running.close_stdin();
        Ok(())
    }

    async fn signal(&self, signal: i32, target: SignalTarget) -> Result<(), ExecuteError> {
        let number = u8::try_from(signal)
            .ok()
            .filter(|number| (1..=64).contains(number))
            .ok_or_else(|| {
                let source = InvalidInput::OutOfRange {
                    what: "signal".to_owned(),
                    reason: "1 to 64".to_owned(),
                };
                ExecuteError::Invalid {
                    instance: self.instance.clone(),
                    source,
                }
            })?;
        let target = match target {
            SignalTarget::Leader => stead_wire::SignalTarget::Leader,
            SignalTarget::Group => stead_wire::SignalTarget::Group,
        };
        self.running
            .signal(number, target)
            .map_err(|error| self.not_running(error))
    }

    async fn resize(&self, new: TerminalSize) -> Result<(), ExecuteError> {
        if !self.has_terminal {
            return Err(self.not_running(crate::link::NotRunning("it has no terminal")));
        }
        self.running
            .resize(size(new))
            .map_err(|error| self.not_running(error))
    }

    async fn cancel(&self, grace: Duration) -> Result<(), ExecuteError> {
        self.running.cancel(grace);
        Ok(())
    }
}
