//! What goes wrong between Stead and an out-of-process provider.

use stead_types::error::Code;

/// Why a request to an out-of-process provider has no answer that can be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExternalError {
    /// The executable could not be started.
    #[error("the provider program {program} could not be started")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The program speaks no version of the protocol that this build speaks.
    #[error("the provider program speaks {theirs}, not {}", super::VERSION)]
    Version {
        /// What it answered.
        theirs: String,
    },
    /// It ended, or was ended because it broke the protocol.
    #[error("the provider program is gone: {reason}")]
    Closed {
        /// Why.
        reason: String,
    },
    /// It did not answer in time.
    #[error("the provider program did not answer '{op}' within {seconds} s")]
    TimedOut {
        /// The request.
        op: &'static str,
        /// The limit.
        seconds: u64,
    },
    /// The request does not fit into one line of the protocol. It was not sent.
    #[error(
        "the request '{op}' takes {bytes} bytes, at most {} are possible",
        super::MAX_LINE
    )]
    TooLarge {
        /// The request.
        op: &'static str,
        /// What it takes.
        bytes: usize,
    },
    /// The answer has another shape than the protocol says.
    #[error("the answer to '{op}' is not what the protocol says: {reason}")]
    Answer {
        /// The request.
        op: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// It refused. The text is its own, made safe to print.
    #[error("the provider program refused '{op}' ({kind}): {message}")]
    Refused {
        /// The request.
        op: &'static str,
        /// One of the protocol's kinds, or another word.
        kind: String,
        /// What it said.
        message: String,
        /// The configuration's key that it is about.
        key: Option<String>,
    },
}

impl Code for ExternalError {
    fn code(&self) -> &'static str {
        match self {
            Self::Start { .. } => "external_start_failed",
            Self::Version { .. } => "external_version",
            Self::Closed { .. } => "external_closed",
            Self::TimedOut { .. } => "external_timed_out",
            Self::TooLarge { .. } => "external_request_too_large",
            Self::Answer { .. } => "external_answer_invalid",
            Self::Refused { .. } => "external_refused",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Start { .. } => "Check the program's path, its permissions and its interpreter.",
            Self::Version { .. } => "Use a provider program and a Stead that speak the same version.",
            Self::Closed { .. } => "Read the program's own log; it is started again by the next call.",
            Self::TimedOut { .. } => "Find out why the program is slow, or give it a longer deadline.",
            Self::TooLarge { .. } => "Pass large input through standard input or files.",
            Self::Answer { .. } => "Report this to whoever wrote the provider program.",
            Self::Refused { .. } => "Do what the program's message says.",
        }
        .to_owned()
    }

    fn retryable(&self) -> bool {
        matches!(self, Self::Closed { .. } | Self::TimedOut { .. })
    }
}
