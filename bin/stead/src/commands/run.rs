//! `stead run`: provision, execute, stream, shut down.

use super::run_options::{Placed, command, place};
use super::show::unprintable;
use super::signals::Ending;
use crate::args::Run;
use crate::config::Config;
use crate::failure::{Failure, STEAD_FAILED, TIMED_OUT};
use crate::output;
use crate::terminal::{self, Raw};
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use stead::{
    CommandLine, ComputeConfig, ComputeInstance, ExecResult, ExecuteError, Process, ProcessControl,
    ProcessExit, Provider, Stream,
};
use tokio::io::AsyncReadExt;

/// Time between SIGTERM and SIGKILL after a signal to us; a second signal ends it at once.
const GRACE: Duration = Duration::from_secs(2);

/// How it went.
enum Went {
    Exited(ProcessExit),
    /// We were asked to end by this signal.
    Signalled(u8),
}

/// Runs one command in a fresh place.
pub async fn run(run: Run, config: &Config) -> Result<u8, Failure> {
    let mut ending =
        Ending::listen().map_err(|error| Failure::new("signals_failed", error.to_string(), "Try again."))?;
    let command = command(&run)?;
    let Placed {
        chosen,
        command: command_config,
    } = tokio::select! {
        placed = place(&run, config) => placed?,
        signal = ending.next() => return Ok(128 + signal),
    };
    let provider = Arc::clone(&chosen.offer.provider);
    let instance = tokio::select! {
        provisioned = chosen.provision() => provisioned?,
        // Dropping the future takes back what was made so far.
        signal = ending.next() => return Ok(128 + signal),
    };
    let outcome = in_place(&run, &provider, &instance, command, command_config, &mut ending).await;
    let gone = provider.shutdown(&instance.id).await;
    let code = outcome?;
    gone?;
    Ok(code)
}

async fn in_place(
    run: &Run,
    provider: &Arc<dyn Provider>,
    instance: &ComputeInstance,
    command: CommandLine,
    config: ComputeConfig,
    ending: &mut Ending,
) -> Result<u8, Failure> {
    let limit = run.json.then_some(stead::config::DEFAULT_MAX_OUTPUT);
    let config = ComputeConfig {
        max_output_bytes: limit,
        ..config
    };
    let name = match &command {
        CommandLine::Argv(argv) => argv.first().map(|name| name.to_string_lossy().into_owned()),
        CommandLine::Shell(_) => None,
    };
    let has_terminal = config.tty.is_some();
    let feeds = config.stdin.is_some();
    let mut process = provider.spawn(&instance.id, command, config).await?;
    let control = process.control();
    let raw = if has_terminal { Raw::enter() } else { None };
    let feeder = feeds.then(|| tokio::spawn(feed(Arc::clone(&control))));
    let resizer = has_terminal.then(|| tokio::spawn(follow_size(Arc::clone(&control))));
    drop(control);
    let mut sink = Sink::new(run.json);
    let went = follow(&mut process, &mut sink, ending).await;
    for task in feeder.into_iter().chain(resizer) {
        task.abort();
    }
    drop(raw);
    match went? {
        Went::Signalled(signal) if run.json => interrupted(sink, signal),
        Went::Signalled(signal) => Ok(128 + signal),
        Went::Exited(exit) => {
            sink.explain_missing(&exit, name.as_deref());
            finish(run, sink, exit, provider.name(), instance)
        }
    }
}

fn finish(
    run: &Run,
    sink: Sink,
    exit: ProcessExit,
    provider: &str,
    instance: &ComputeInstance,
) -> Result<u8, Failure> {
    let code = match (exit.timed_out, exit.exit_code) {
        (true, _) => TIMED_OUT,
        (false, Some(code)) => u8::try_from(code).unwrap_or(STEAD_FAILED),
        (false, None) => STEAD_FAILED,
    };
    if run.json {
        let result = sink.into_result(&exit);
        output::print(output::result(&result, provider, &instance.isolation)).map_err(unprintable)?;
    } else if exit.timed_out {
        eprintln!("stead: the command was ended because its time was over");
    } else if exit.oom_killed {
        eprintln!("stead: a process was killed because the memory limit of the place was reached");
    }
    Ok(code)
}

/// A document is owed also when a signal ended it; how the command would have ended is not known.
fn interrupted(sink: Sink, signal: u8) -> Result<u8, Failure> {
    let message = format!("the command was ended because this process got signal {signal}");
    let failure = Failure::new(
        "command_cancelled",
        message,
        "Run it again if it is still wanted.",
    );
    let mut envelope = failure.envelope();
    if let Some(details) = envelope["error"]["details"].as_object_mut() {
        let [stdout, stderr] = sink.collected.unwrap_or_default();
        output::text_or_bytes(details, "stdout", &stdout);
        output::text_or_bytes(details, "stderr", &stderr);
    }
    output::print(envelope).map_err(unprintable)?;
    Ok(128 + signal)
}

/// Takes output until the end, and ends the command when a signal says so.
async fn follow(process: &mut Process, sink: &mut Sink, ending: &mut Ending) -> Result<Went, Failure> {
    let control = process.control();
    let mut signalled = None;
    loop {
        tokio::select! {
            chunk = process.next_output() => match chunk {
                // Nobody reads us any more: then nobody wants it to go on.
                Some(chunk) if !sink.take(chunk.stream, &chunk.bytes)? => control.cancel(GRACE).await?,
                Some(_) => {}
                None => break,
            },
            signal = ending.next() => on_signal(&*control, &mut signalled, signal).await?,
        }
    }
    let exit = loop {
        tokio::select! {
            exit = process.wait() => break exit,
            signal = ending.next() => on_signal(&*control, &mut signalled, signal).await?,
        }
    };
    match (exit, signalled) {
        (_, Some(signal)) => Ok(Went::Signalled(signal)),
        (Ok(exit), None) => Ok(Went::Exited(exit)),
        // Ended because our own output was closed: as if by SIGPIPE.
        (Err(ExecuteError::Cancelled { .. }), None) if sink.closed => Ok(Went::Signalled(13)),
        (Err(error), None) => Err(error.into()),
    }
}

/// The first signal ends the command in order, the second at once.
async fn on_signal(control: &dyn ProcessControl, first: &mut Option<u8>, signal: u8) -> Result<(), Failure> {
    let grace = if first.is_some() { Duration::ZERO } else { GRACE };
    first.get_or_insert(signal);
    Ok(control.cancel(grace).await?)
}

/// Passes our standard input on. A program that stops to read is no error.
async fn feed(control: Arc<dyn ProcessControl>) {
    let mut stdin = tokio::io::stdin();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match stdin.read(&mut buffer).await {
            Ok(0) => break,
            Err(error) => {
                // The command sees the end; what was there before it is not all there was.
                eprintln!("note: standard input cannot be read, so it ends here: {error}");
                break;
            }
            Ok(count) => {
                if control.write_stdin(&buffer[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = control.close_stdin().await;
}

/// Passes changes of our terminal's size on.
async fn follow_size(control: Arc<dyn ProcessControl>) {
    let Ok(mut changed) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change())
    else {
        return;
    };
    while changed.recv().await.is_some() {
        if control.resize(terminal::size()).await.is_err() {
            return;
        }
    }
}

/// Where output goes: to our own streams as it comes, or into a result.
struct Sink {
    collected: Option<[Vec<u8>; 2]>,
    closed: bool,
}

impl Sink {
    fn new(collect: bool) -> Self {
        Self {
            collected: collect.then(Default::default),
            closed: false,
        }
    }

    /// `false` when whoever reads us is gone.
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> Result<bool, Failure> {
        let written = match (&mut self.collected, stream) {
            (Some([stdout, _]), Stream::Stdout) => {
                stdout.extend_from_slice(bytes);
                Ok(())
            }
            (Some([_, stderr]), Stream::Stderr) => {
                stderr.extend_from_slice(bytes);
                Ok(())
            }
            (None, Stream::Stdout) => write_whole(std::io::stdout().lock(), bytes),
            (None, Stream::Stderr) => write_whole(std::io::stderr().lock(), bytes),
        };
        match written {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                let first = !self.closed;
                self.closed = true;
                Ok(!first)
            }
            Err(error) => Err(unprintable(error)),
        }
    }

    /// A program that could not be executed has said nothing itself.
    fn explain_missing(&mut self, exit: &ProcessExit, name: Option<&str>) {
        let Some(name) = name else { return };
        let ran = exit.total_bytes != [0, 0] || exit.duration > Duration::ZERO || exit.signal.is_some();
        let reason = match exit.exit_code {
            Some(127) if !ran => "not found",
            Some(126) if !ran => "cannot be executed",
            _ => return,
        };
        let text = format!("stead: {name}: {reason}\n");
        // Told by the exit code too.
        let _ = self.take(Stream::Stderr, text.as_bytes());
    }

    fn into_result(self, exit: &ProcessExit) -> ExecResult {
        exit.clone().with_output(self.collected.unwrap_or_default())
    }
}

fn write_whole(mut stream: impl Write, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}
