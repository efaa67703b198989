//! How a failure of Stead itself is told: one sentence that says what failed, one that says what to do, and
//! the code in brackets.

use serde_json::{Value, json};
use std::io::Write;
use stead::error::Code;

/// Stead itself failed; also lost and cancelled.
pub const STEAD_FAILED: u8 = 125;
/// The command's time was over.
pub const TIMED_OUT: u8 = 124;
/// Wrong usage.
pub const USAGE: u8 = 2;

/// A failure with everything that is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Stable.
    pub code: String,
    /// What failed.
    pub message: String,
    /// What to do.
    pub remedy: String,
    /// Whether the same call may pass later.
    pub retryable: bool,
    /// Of this process.
    pub exit: u8,
}

impl Failure {
    /// Wrong usage that the parser of arguments cannot see.
    pub fn usage(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            code: "usage".to_owned(),
            message: message.into(),
            remedy: remedy.into(),
            retryable: false,
            exit: USAGE,
        }
    }

    /// A failure of this program's own doing.
    pub fn new(code: &str, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (message, remedy) = (message.into(), remedy.into());
        Self {
            code: code.to_owned(),
            message,
            remedy,
            retryable: false,
            exit: STEAD_FAILED,
        }
    }

    /// The same with another exit code.
    pub fn exiting(mut self, exit: u8) -> Self {
        self.exit = exit;
        self
    }

    /// The document that tells it.
    pub fn envelope(&self) -> Value {
        let details = json!({"retryable": self.retryable, "remedy": self.remedy});
        json!({"error": {"code": self.code, "message": self.message, "details": details}})
    }

    /// Prints the failure and gives the exit code.
    pub fn report(self, json: bool) -> u8 {
        // Whoever reads may be gone; the exit code says it too.
        let _ = if json {
            writeln!(std::io::stdout(), "{}", self.envelope())
        } else {
            let Self {
                code,
                message,
                remedy,
                ..
            } = &self;
            writeln!(std::io::stderr(), "error: {message}\n{remedy} [{code}]")
        };
        self.exit
    }
}

impl<E: Code> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(next) = source {
            let text = next.to_string();
            // Some errors repeat what they wrap.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = next.source();
        }
        Self {
            code: error.code().to_owned(),
            message,
            remedy: error.remedy(),
            retryable: error.retryable(),
            exit: match error.code() {
                // Wrong in itself: seen without a look at any provider or at this machine.
                "config_invalid" | "command_invalid" | "place_file_invalid" | "image_reference_invalid" => {
                    USAGE
                }
                _ => STEAD_FAILED,
            },
        }
    }
}
