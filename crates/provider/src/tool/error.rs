//! Why a tool call has no result.

use super::template::TemplateError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use stead_types::error::{Code, Source};
use stead_types::{ExecuteError, Missing, ProvisionError};

/// Bytes of a tool's output that an error shows: the last ones.
pub const ERROR_OUTPUT_BYTES: usize = 8 << 10;

/// The end of what a tool printed, for an error message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputTail {
    /// At most [`ERROR_OUTPUT_BYTES`], invalid bytes replaced, blanks at both ends removed.
    pub text: Box<str>,
    /// Whether there was more before it, or more that was not kept.
    pub cut: bool,
}

impl OutputTail {
    /// The tail of `kept`, of which `total` bytes were printed.
    pub(crate) fn of(kept: &[u8], total: u64) -> Self {
        let mut from = kept.len().saturating_sub(ERROR_OUTPUT_BYTES);
        // Not in the middle of a character: at most three continuation bytes.
        let limit = kept.len().min(from + 3);
        while from > 0 && from < limit && kept[from] & 0xc0 == 0x80 {
            from += 1;
        }
        let text = String::from_utf8_lossy(&kept[from..]).trim().into();
        Self {
            text,
            cut: from > 0 || total > kept.len() as u64,
        }
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }
}

impl fmt::Display for OutputTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = if self.cut { "[not all of it] " } else { "" };
        write!(f, "{cut}{}", self.text)
    }
}

/// Why a tool call has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The place is strict and has no command for the tool. Nothing was run, neither there nor on the host.
    #[error("tool '{tool}' has no command on {place}, which is strict; nothing was run on the host")]
    NotDeclared {
        /// The tool.
        tool: String,
        /// The place's provider.
        place: String,
    },
    /// The place cannot be used here. Nothing was run.
    #[error(
        "tools_run_on='{place}' but that provider is not available here: {}. Tool '{tool}' was not run; nothing was run on the host",
        .missing.reason.trim_end_matches('.')
    )]
    Unavailable {
        /// The tool.
        tool: String,
        /// The place's provider.
        place: String,
        /// Why not.
        missing: Missing,
    },
    /// The place could not be brought up. Nothing was run.
    #[error("tool '{tool}' was not run: {place} could not be brought up; nothing was run on the host")]
    Provision {
        /// The tool.
        tool: String,
        /// The place's provider.
        place: String,
        /// Why not; calls that waited for the same attempt share it.
        source: Arc<ProvisionError>,
    },
    /// The attempt to bring the place up ended without an answer. Nothing was run.
    #[error("tool '{tool}' was not run: bringing up {place} was broken off; nothing was run on the host")]
    ProvisionAborted {
        /// The tool.
        tool: String,
        /// The place's provider.
        place: String,
    },
    /// The command or its settings are no template. Nothing was declared.
    #[error("the command of tool '{tool}' cannot be declared")]
    Template {
        /// The tool.
        tool: String,
        /// What is wrong.
        source: TemplateError,
    },
    /// The arguments are not an object, or a value cannot be passed. Nothing was run.
    #[error("the arguments of tool '{tool}' are invalid: {reason}")]
    Arguments {
        /// The tool.
        tool: String,
        /// What is wrong.
        reason: String,
    },
    /// The place died under the call. The command may have run; it is not run again by itself.
    #[error("{place} died during tool '{tool}'; how the call ended is not known, and it was not run again")]
    PlaceDied {
        /// The tool.
        tool: String,
        /// The place's provider.
        place: String,
        /// What was seen.
        source: Box<ExecuteError>,
    },
    /// The provider gave no result, while the place lives.
    #[error("tool '{tool}' gave no result on {place}")]
    Execute {
        /// The tool.
        tool: String,
        /// The place's provider.
        place: String,
        /// What was seen.
        source: Box<ExecuteError>,
    },
    /// The call was ended by its timeout.
    #[error("tool '{tool}' timed out on {place} after {after:?}. {}", so_far(.stdout, .stderr))]
    TimedOut {
        /// The tool.
        tool: String,
        /// The place's provider.
        place: String,
        /// How long it ran.
        after: Duration,
        /// Standard output until then.
        stdout: OutputTail,
        /// Standard error until then.
        stderr: OutputTail,
    },
    /// The command exited with another code than 0.
    #[error("tool '{tool}' failed on {place} with {}: {}", ended(*.exit_code, *.signal), output_or(.output))]
    Failed {
        /// The tool.
        tool: String,
        /// The place's provider.
        place: String,
        /// As in [`stead_types::ExecResult`].
        exit_code: Option<i32>,
        /// As in [`stead_types::ExecResult`].
        signal: Option<i32>,
        /// The end of standard error, or of standard output when that is blank.
        output: OutputTail,
    },
    /// The local implementation failed; the tool has no command on the place.
    #[error("the local implementation of tool '{tool}' failed")]
    Local {
        /// The tool.
        tool: String,
        /// What it said.
        source: Source,
    },
}

fn so_far(stdout: &OutputTail, stderr: &OutputTail) -> String {
    let part = |name: &str, tail: &OutputTail| match tail.is_empty() {
        true => String::new(),
        false => format!("\n{name} so far: {tail}"),
    };
    match stdout.is_empty() && stderr.is_empty() {
        true => {
            "No output was produced, and an empty result would read as a call that found nothing".to_owned()
        }
        false => format!("It was ended{}{}", part("stdout", stdout), part("stderr", stderr)),
    }
}

fn ended(exit_code: Option<i32>, signal: Option<i32>) -> String {
    match (exit_code, signal) {
        (Some(code), None) => format!("exit code {code}"),
        (Some(code), Some(signal)) => format!("exit code {code} (signal {signal})"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no exit code".to_owned(),
    }
}

fn output_or(output: &OutputTail) -> String {
    if output.is_empty() {
        "no output".to_owned()
    } else {
        output.to_string()
    }
}

impl Code for ToolError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotDeclared { .. } => "tool_not_declared",
            Self::Unavailable { .. } => "place_unavailable",
            Self::Provision { .. } | Self::ProvisionAborted { .. } => "place_provision_failed",
            Self::Template { source, .. } => source.code(),
            Self::Arguments { .. } => "tool_arguments_invalid",
            Self::PlaceDied { .. } => "place_died",
            Self::Execute { .. } => "tool_no_result",
            Self::TimedOut { .. } => "tool_timed_out",
            Self::Failed { .. } => "tool_failed",
            Self::Local { .. } => "tool_local_failed",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::NotDeclared { tool, .. } => {
                return format!(
                    "Declare a command for '{tool}' (set_command), or build the place without strict."
                );
            }
            Self::Unavailable { missing, .. } => return missing.remedy.clone(),
            Self::Provision { source, .. } => return source.remedy(),
            Self::ProvisionAborted { .. } => "Call again from a runtime that keeps running.",
            Self::Template { source, .. } => return source.remedy(),
            Self::Arguments { .. } => "Pass an object of arguments without NUL bytes in their values.",
            Self::PlaceDied { .. } => {
                "Decide whether it is safe to call again; the next call brings up a new place."
            }
            Self::Execute { source, .. } => return source.remedy(),
            Self::TimedOut { .. } => "Give the tool a longer timeout, or find out why it does not end.",
            Self::Failed { .. } => "Read its output; the command itself failed.",
            Self::Local { .. } => "Read the source of the error; it comes from your own function.",
        }
        .to_owned()
    }

    fn retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::ProvisionAborted { .. } => true,
            Self::Provision { source, .. } => source.retryable(),
            _ => false,
        }
    }
}
