//! One running provider program: its pipes, the requests that wait, and the commands that run.

use super::error::ExternalError;
use super::message::{self, Answer, Event, ExitEvent, Incoming, Refusal, safe_text};
use super::{MAX_LINE, VERSION, WINDOW};
use crate::process::OutputChunk;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::ffi::OsString;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot, watch};

/// How long a program has to end by itself after its standard input ended.
const LEAVE: Duration = Duration::from_secs(2);

/// What is passed on to a running command.
pub(super) enum Routed {
    Output(OutputChunk),
    Exit(ExitEvent),
}

#[derive(Default)]
struct State {
    /// Why nothing works any more.
    closed: Option<String>,
    /// The last number that was given to a request or a command.
    last: u64,
    pending: HashMap<u64, oneshot::Sender<Result<Value, Refusal>>>,
    commands: HashMap<String, mpsc::Sender<Routed>>,
}

pub(super) struct Connection {
    state: Mutex<State>,
    lines: mpsc::UnboundedSender<String>,
    closed: watch::Sender<bool>,
}

impl Connection {
    /// Starts the program and agrees on the version.
    pub(super) async fn open(argv: &[OsString], deadline: Duration) -> Result<Arc<Self>, ExternalError> {
        let program = argv
            .first()
            .map(|program| program.to_string_lossy().into_owned())
            .unwrap_or_default();
        let failed = |source| ExternalError::Start {
            program: program.clone(),
            source,
        };
        let mut command = Command::new(argv.first().map(OsString::as_os_str).unwrap_or_default());
        command.args(argv.iter().skip(1)).kill_on_drop(true);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed(std::io::Error::other("its pipes are missing")));
        };
        let (lines, queue) = mpsc::unbounded_channel();
        let connection = Arc::new(Self {
            state: Mutex::default(),
            lines,
            closed: watch::Sender::new(false),
        });
        tokio::spawn(write_lines(stdin, queue, connection.closed.subscribe()));
        tokio::spawn(read_lines(stdout, Arc::clone(&connection)));
        tokio::spawn(log_lines(stderr, program.clone()));
        tokio::spawn(outlive(child, connection.closed.subscribe()));
        let mut opening = Opening(Some(connection));
        if let Some(connection) = &opening.0 {
            connection.hello(deadline).await?;
        }
        opening
            .0
            .take()
            .ok_or_else(|| failed(std::io::Error::other("it was taken")))
    }

    async fn hello(&self, deadline: Duration) -> Result<(), ExternalError> {
        let body = Map::from_iter([("version".to_owned(), json!(VERSION))]);
        let answer = self.request("hello", body, Some(deadline)).await?;
        match answer.get("version").and_then(Value::as_str) {
            Some(VERSION) => Ok(()),
            theirs => Err(ExternalError::Version {
                theirs: safe_text(theirs.unwrap_or("no version")),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why it is closed, if it is.
    pub(super) fn closed_reason(&self) -> Option<String> {
        self.lock().closed.clone()
    }

    /// Ends it: waiting requests fail, running commands are lost, the program is ended.
    pub(super) fn close(&self, reason: &str) {
        let mut state = self.lock();
        if state.closed.is_none() {
            state.closed = Some(reason.to_owned());
        }
        // Dropped without the lock: this wakes the other ends.
        let gone = (
            std::mem::take(&mut state.pending),
            std::mem::take(&mut state.commands),
        );
        drop(state);
        drop(gone);
        self.closed.send_replace(true);
    }

    fn gone(&self) -> ExternalError {
        ExternalError::Closed {
            reason: self.closed_reason().unwrap_or_else(|| "it ended".to_owned()),
        }
    }

    /// Asks, and waits for the answer. Without a deadline the caller bounds the wait.
    pub(super) async fn request(
        &self,
        op: &'static str,
        body: Map<String, Value>,
        deadline: Option<Duration>,
    ) -> Result<Value, ExternalError> {
        let (sender, receiver) = oneshot::channel();
        let id = self.next();
        let line = encode(op, Some(id), body)?;
        {
            let mut state = self.lock();
            if state.closed.is_some() {
                drop(state);
                return Err(self.gone());
            }
            state.pending.insert(id, sender);
        }
        let _pending = Pending { connection: self, id };
        // Fails only when it is closed, which the answer's end says too.
        let _ = self.lines.send(line);
        let answer = match deadline {
            None => receiver.await,
            Some(after) => {
                tokio::time::timeout(after, receiver)
                    .await
                    .map_err(|_| ExternalError::TimedOut {
                        op,
                        seconds: after.as_secs(),
                    })?
            }
        };
        answer
            .map_err(|_| self.gone())?
            .map_err(|refusal| ExternalError::Refused {
                op,
                kind: safe_text(&refusal.kind),
                message: safe_text(&refusal.message),
                key: refusal.key.as_deref().map(safe_text),
            })
    }

    /// Says something without waiting for an answer; one that comes is ignored.
    pub(super) fn post(&self, op: &'static str, body: Map<String, Value>, answered: bool) {
        let id = answered.then(|| self.next());
        if let Ok(line) = encode(op, id, body) {
            let _ = self.lines.send(line);
        }
    }

    fn next(&self) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        state.last
    }

    /// A name for a new command, and where its output and end arrive.
    pub(super) fn route(&self) -> (String, mpsc::Receiver<Routed>) {
        // One more than the window: the end always has room.
        let (sender, receiver) = mpsc::channel(WINDOW + 1);
        let command = format!("c{}", self.next());
        let mut state = self.lock();
        if state.closed.is_none() {
            state.commands.insert(command.clone(), sender);
        }
        (command, receiver)
    }

    pub(super) fn unroute(&self, command: &str) {
        self.lock().commands.remove(command);
    }

    fn take(&self, line: &[u8]) -> Result<(), String> {
        match message::parse(line)? {
            Incoming::Answer(answer) => self.answer(answer),
            Incoming::Event(Event::Output {
                command,
                stream,
                data,
            }) => {
                let chunk = OutputChunk {
                    stream: stream.into(),
                    bytes: message::decode(&data)?,
                };
                self.pass_on(&command, Routed::Output(chunk))
            }
            Incoming::Event(Event::Exit(exit)) => {
                let ends = exit.error.is_some() || exit.exit_code.is_some() != exit.timed_out;
                if !ends {
                    return Err(
                        "an exit event has not exactly one of exit_code, timed_out and error".to_owned(),
                    );
                }
                let command = exit.command.clone();
                self.pass_on(&command, Routed::Exit(exit))?;
                self.unroute(&command);
                Ok(())
            }
        }
    }

    fn answer(&self, answer: Answer) -> Result<(), String> {
        let mut state = self.lock();
        let Some(waiting) = state.pending.remove(&answer.id) else {
            // A late answer is fine, one to a question that nobody asked is not.
            return if answer.id <= state.last {
                Ok(())
            } else {
                Err("it answered what was not asked".to_owned())
            };
        };
        drop(state);
        // Whoever asked may have gone.
        let _ = waiting.send(
            answer
                .error
                .map_or_else(|| Ok(answer.ok.unwrap_or_default()), Err),
        );
        Ok(())
    }

    fn pass_on(&self, command: &str, what: Routed) -> Result<(), String> {
        let state = self.lock();
        let number = command
            .strip_prefix('c')
            .and_then(|number| number.parse::<u64>().ok());
        match state.commands.get(command) {
            None if number.is_some_and(|number| number <= state.last) => Ok(()),
            None => Err("it speaks of a command that was not started".to_owned()),
            Some(route) => match route.try_send(what) {
                Err(mpsc::error::TrySendError::Full(_)) => Err("it sent more than its window".to_owned()),
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            },
        }
    }
}

/// Ends a program that nobody agreed with, also when the caller goes away meanwhile.
struct Opening(Option<Arc<Connection>>);

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.close("it did not agree on a version");
        }
    }
}

/// Forgets a request whose caller went away.
struct Pending<'a> {
    connection: &'a Connection,
    id: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.connection.lock().pending.remove(&self.id);
    }
}

fn encode(op: &'static str, id: Option<u64>, body: Map<String, Value>) -> Result<String, ExternalError> {
    let mut message = Map::new();
    if let Some(id) = id {
        message.insert("id".to_owned(), json!(id));
    }
    message.insert("op".to_owned(), json!(op));
    message.extend(body);
    let mut line = Value::Object(message).to_string();
    line.push('\n');
    if line.len() > MAX_LINE {
        return Err(ExternalError::TooLarge {
            op,
            bytes: line.len(),
        });
    }
    Ok(line)
}

async fn write_lines(
    mut stdin: ChildStdin,
    mut queue: mpsc::UnboundedReceiver<String>,
    mut closed: watch::Receiver<bool>,
) {
    let write = async {
        while let Some(line) = queue.recv().await {
            // A program that reads no more shows by its answers that do not come.
            if stdin.write_all(line.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = write => {}
        _ = closed.wait_for(|closed| *closed) => {}
    }
}

async fn read_lines(stdout: impl AsyncRead + Unpin, connection: Arc<Connection>) {
    let mut reader = BufReader::new(stdout);
    let reason = loop {
        match read_line(&mut reader).await {
            Ok(Some(line)) => {
                if let Err(reason) = connection.take(&line) {
                    break reason;
                }
            }
            Ok(None) => break "it ended".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    connection.close(&reason);
}

/// One line without its end; none at the end of the stream. A line that is too long is an error.
async fn read_line(reader: &mut (impl AsyncBufReadExt + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        let buffer = reader.fill_buf().await?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let take = end.unwrap_or(buffer.len());
        if line.len() + take > MAX_LINE {
            return Err(std::io::Error::other("it sent a line that is too long"));
        }
        line.extend_from_slice(&buffer[..take]);
        reader.consume(take + usize::from(end.is_some()));
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

/// The program's standard error goes to the log, in pieces that are safe there.
async fn log_lines(mut stderr: impl AsyncRead + Unpin, program: String) {
    use tokio::io::AsyncReadExt;
    let mut buffer = vec![0; 4096];
    while let Ok(length @ 1..) = stderr.read(&mut buffer).await {
        for line in String::from_utf8_lossy(&buffer[..length]).lines() {
            tracing::debug!(program, text = safe_text(line), "provider program");
        }
    }
}

/// Waits for the program's end; when the connection closes first, gives it a moment and kills it.
async fn outlive(mut child: Child, mut closed: watch::Receiver<bool>) {
    tokio::select! {
        _ = child.wait() => return,
        _ = closed.wait_for(|closed| *closed) => {}
    }
    if tokio::time::timeout(LEAVE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}
