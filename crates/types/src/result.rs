//! What one command gave.

use std::time::Duration;

/// An output stream. With a terminal everything is `Stdout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output, or the terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The result of one command. A non-zero exit is a result; a timeout is its own outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecResult {
    /// The first bytes of standard output, up to `max_output_bytes`.
    pub stdout: Vec<u8>,
    /// The first bytes of standard error, up to `max_output_bytes`.
    pub stderr: Vec<u8>,
    /// The program's own code; 128 + n when signal n ended it; `None` exactly when `timed_out`.
    pub exit_code: Option<i32>,
    /// The signal that ended the program, unless our timeout sent it.
    pub signal: Option<i32>,
    /// Whether our timeout ended it.
    pub timed_out: bool,
    /// Whether a process of the place was killed while the command ran, because the place's memory limit was
    /// reached. False also where that cannot be seen.
    pub oom_killed: bool,
    /// From the program's start to its end.
    pub duration: Duration,
    /// All bytes that the program wrote to standard output.
    pub stdout_total_bytes: u64,
    /// All bytes that the program wrote to standard error.
    pub stderr_total_bytes: u64,
    /// Whether `stdout` lacks bytes that were written.
    pub stdout_truncated: bool,
    /// Whether `stderr` lacks bytes that were written.
    pub stderr_truncated: bool,
}

impl ExecResult {
    /// Whether the program exited with 0.
    pub fn success(&self) -> bool {
        self.exit_code == Some(0)
    }

    /// Standard output as text, invalid bytes replaced.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text, invalid bytes replaced.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}
