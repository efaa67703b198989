//! One exec whose input and output carry the supervisor's protocol, where its socket cannot be reached.

use super::engine::Engine;
use super::error::EngineError;
use bollard::container::LogOutput;
use bollard::errors::Error as ClientError;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite, Join};
use tokio_util::io::StreamReader;

/// How much of what the relay says on its standard error is kept.
const MAX_DIAGNOSTICS: usize = 4096;

/// The client's buffer for output.
const CAPACITY: usize = 64 * 1024;

/// The reading half of a relay.
pub type RelayRead = Pin<Box<dyn AsyncRead + Send>>;

/// The writing half of a relay.
pub type RelayWrite = Pin<Box<dyn AsyncWrite + Send>>;

/// The bytes of an exec, both ways. The end of reading is the end of the program; dropping it ends the
/// program's input.
pub struct Relay {
    /// Its standard output and input.
    pub stream: Join<RelayRead, RelayWrite>,
    /// What it says on its standard error.
    pub diagnostics: Diagnostics,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay")
            .field("diagnostics", &self.diagnostics)
            .finish_non_exhaustive()
    }
}

/// The first bytes of a relay's standard error. Untrusted: for logs and errors only.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics(Arc<Mutex<Vec<u8>>>);

impl Diagnostics {
    /// What was said so far, as one harmless line; empty when nothing was.
    pub fn text(&self) -> String {
        let said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match said.is_empty() {
            true => String::new(),
            false => super::error::bounded(&String::from_utf8_lossy(&said)),
        }
    }

    fn add(&self, bytes: &[u8]) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_DIAGNOSTICS.saturating_sub(said.len()).min(bytes.len());
        said.extend_from_slice(&bytes[..room]);
    }
}

impl Engine {
    /// Starts a program in a running container and gives its input and output. `user` is `uid:gid` or a
    /// name; `None` is the container's.
    pub async fn exec_relay(
        &self,
        container: &str,
        argv: &[&str],
        user: Option<&str>,
    ) -> Result<Relay, EngineError> {
        let (what, name) = ("start the relay", container.to_owned());
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(false),
            cmd: Some(argv.iter().map(|arg| (*arg).to_owned()).collect()),
            user: user.map(str::to_owned),
            ..CreateExecOptions::default()
        };
        let start = StartExecOptions {
            detach: false,
            tty: false,
            output_capacity: Some(CAPACITY),
        };
        let request = |docker: bollard::Docker| async move {
            let exec = docker.create_exec(&name, options).await?;
            docker.start_exec(&exec.id, Some(start)).await
        };
        match self.call(what, request).await? {
            StartExecResults::Attached { output, input } => {
                let diagnostics = Diagnostics::default();
                let read = StreamReader::new(Box::pin(stdout_of(output, diagnostics.clone())));
                Ok(Relay {
                    stream: tokio::io::join(Box::pin(read), input),
                    diagnostics,
                })
            }
            StartExecResults::Detached => Err(EngineError::Unreadable {
                what,
                source: "there is no stream in it".into(),
            }),
        }
    }
}

/// Standard output alone; standard error goes to the diagnostics.
fn stdout_of(
    output: impl Stream<Item = Result<LogOutput, ClientError>> + Send,
    diagnostics: Diagnostics,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    output.filter_map(move |item| {
        let kept = match item {
            Ok(LogOutput::StdOut { message }) => Some(Ok(message)),
            Ok(LogOutput::StdErr { message }) => {
                diagnostics.add(&message);
                None
            }
            // Bytes without a header: a stream that was cut, or no engine's.
            Ok(LogOutput::Console { .. } | LogOutput::StdIn { .. }) => Some(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the exec's stream is damaged",
            ))),
            Err(error) => Some(Err(io::Error::other(error))),
        };
        std::future::ready(kept)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn out(message: &'static [u8]) -> Result<LogOutput, ClientError> {
        Ok(LogOutput::StdOut {
            message: Bytes::from_static(message),
        })
    }

    fn err(message: &'static [u8]) -> Result<LogOutput, ClientError> {
        Ok(LogOutput::StdErr {
            message: Bytes::from_static(message),
        })
    }

    async fn read(items: Vec<Result<LogOutput, ClientError>>) -> (io::Result<Vec<u8>>, String) {
        let diagnostics = Diagnostics::default();
        let stream = stdout_of(futures_util::stream::iter(items), diagnostics.clone());
        let (mut bytes, mut reader) = (Vec::new(), StreamReader::new(Box::pin(stream)));
        let read = reader.read_to_end(&mut bytes).await;
        (read.map(|_| bytes), diagnostics.text())
    }

    #[tokio::test]
    async fn output_is_exact_and_errors_are_kept_apart() {
        let (bytes, said) = read(vec![out(b"a\0"), err(b"no\x1b"), out(b"\xffb")]).await;
        assert_eq!(bytes.unwrap(), b"a\0\xffb");
        assert_eq!(said, "no");
    }

    #[tokio::test]
    async fn a_damaged_stream_is_an_error_and_not_an_end() {
        let damaged = Ok(LogOutput::Console {
            message: Bytes::from_static(b"x"),
        });
        assert!(read(vec![out(b"a"), damaged]).await.0.is_err());
    }

    #[tokio::test]
    async fn diagnostics_are_bounded() {
        let (_, said) = read(vec![err(&[b'x'; MAX_DIAGNOSTICS]), err(b"y")]).await;
        assert!(!said.contains('y'));
    }
}
