//! An instance as the cases use it.

use super::case::{Failure, ensure};
use super::subject::Subject;
use crate::{Files, Process};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_types::{CommandLine, ComputeConfig, ExecResult, ExecuteError, FilesError, InstanceId};

/// Between two looks at something that is to become true.
const POLL: Duration = Duration::from_millis(50);

/// One instance of the subject.
pub(super) struct Place<'s> {
    pub(super) subject: &'s Subject,
    pub(super) id: InstanceId,
}

impl<'s> Place<'s> {
    pub(super) fn new(subject: &'s Subject, id: InstanceId) -> Self {
        Self { subject, id }
    }

    pub(super) async fn execute(
        &self,
        command: impl Into<CommandLine>,
        config: ComputeConfig,
    ) -> Result<ExecResult, ExecuteError> {
        self.subject
            .provider
            .execute(&self.id, command.into(), config)
            .await
    }

    pub(super) async fn spawn(
        &self,
        command: impl Into<CommandLine>,
        config: ComputeConfig,
    ) -> Result<Process, ExecuteError> {
        self.subject
            .provider
            .spawn(&self.id, command.into(), config)
            .await
    }

    /// Runs shell text with the default configuration.
    pub(super) async fn sh(&self, text: impl Into<String>) -> Result<ExecResult, Failure> {
        Ok(self.execute(text.into(), ComputeConfig::new()).await?)
    }

    /// Runs shell text that has to exit with 0 and returns its standard output.
    pub(super) async fn sh_ok(&self, text: impl Into<String>) -> Result<String, Failure> {
        let text = text.into();
        let result = self.sh(text.clone()).await?;
        ensure!(
            result.success(),
            "a step of the case failed: {text:?} gave {}",
            shown(&result)
        );
        Ok(result.stdout_text())
    }

    /// Makes a fresh directory below the scratch directory.
    pub(super) async fn directory(&self) -> Result<PathBuf, Failure> {
        let path = self.subject.fresh_path();
        self.sh_ok(format!("mkdir -p {}", quoted(&path))).await?;
        Ok(path)
    }

    pub(super) async fn exists(&self, path: &Path) -> Result<bool, Failure> {
        let result = self
            .sh(format!(
                "if [ -e {} ]; then echo yes; else echo no; fi",
                quoted(path)
            ))
            .await?;
        match result.stdout_text().as_str() {
            "yes\n" => Ok(true),
            "no\n" => Ok(false),
            _ => Err(Failure::new(format!(
                "could not look for {path:?}: {}",
                shown(&result)
            ))),
        }
    }

    /// Waits until there is something at the path; the case's limit ends a wait that is in vain.
    pub(super) async fn until_exists(&self, path: &Path) -> Result<(), Failure> {
        while !self.exists(path).await? {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Lines that say which processes have `token` in their command line, as far as the place can see
    /// processes at all.
    pub(super) async fn processes_with(&self, token: &str) -> Result<Option<String>, Failure> {
        // A pattern that does not match its own text, so that the shell does not find itself; and only
        // what the shell itself can do, so that nothing else of ours carries the token.
        let (first, rest) = token.split_at(1);
        let text = format!(
            "[ -r /proc/self/cmdline ] || {{ echo none; exit 0; }}
            look() {{ while IFS= read -r line || [ -n \"$line\" ]; do
                case $line in *[{first}]{rest}*) echo \"$1 $line\"; return;; esac; done; }}
            for f in /proc/[0-9]*/cmdline; do {{ look \"$f\" < \"$f\"; }} 2>/dev/null; done; echo end"
        );
        let found = self.sh_ok(text).await?;
        Ok(match found.as_str() {
            "none\n" => None,
            lines => Some(lines.trim_end().trim_end_matches("end").trim().to_owned()),
        })
    }

    /// Waits until no process with `token` in its command line is left.
    pub(super) async fn until_no_process_with(&self, token: &str) -> Result<(), Failure> {
        while self
            .processes_with(token)
            .await?
            .is_some_and(|found| !found.is_empty())
        {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// The files of the place, `None` when the provider says that it has no access to them.
    pub(super) async fn files(&self) -> Result<Option<Box<dyn Files>>, Failure> {
        match self.subject.provider.files(&self.id).await {
            Ok(files) => Ok(Some(files)),
            Err(FilesError::Unsupported { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A path as one word of shell text.
pub(super) fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

/// The last component, which is unique to the case.
pub(super) fn token(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// A result in short, for messages.
pub(super) fn shown(result: &ExecResult) -> String {
    format!(
        "exit_code {:?}, signal {:?}, timed_out {}, stdout {}, stderr {}",
        result.exit_code,
        result.signal,
        result.timed_out,
        shown_bytes(&result.stdout),
        shown_bytes(&result.stderr),
    )
}

/// The first bytes, readable.
pub(super) fn shown_bytes(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(200)];
    let rest = if bytes.len() > head.len() {
        format!("… ({} bytes)", bytes.len())
    } else {
        String::new()
    };
    format!("{:?}{rest}", OsStr::from_bytes(head))
}

/// Fails unless the two are the same bytes; says where they begin to differ.
pub(super) fn ensure_bytes(what: &str, got: &[u8], expected: &[u8]) -> Result<(), Failure> {
    if got == expected {
        return Ok(());
    }
    let at = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
    Err(Failure::new(format!(
        "{what}: {} bytes, expected {}; they differ from byte {at}: {} instead of {}",
        got.len(),
        expected.len(),
        shown_bytes(&got[at..]),
        shown_bytes(&expected[at..]),
    )))
}

/// Bytes that repeat after 16 MiB at the earliest, so that a lost or doubled piece shows.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}
