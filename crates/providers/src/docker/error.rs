//! What goes wrong between us and the engine, and what it means for the provider.

use super::PROVIDER;
use super::address::Address;
use bollard::errors::Error as ClientError;
use std::error::Error;
use std::io::ErrorKind;
use std::time::Duration;
use stead_types::{Missing, ProvisionError};

/// How much of an engine's own words is kept.
const MAX_MESSAGE: usize = 2000;

/// A call to the engine that gave nothing that can be used.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The address of the engine cannot be used.
    #[error("the engine's address {given:?} cannot be used: {reason}")]
    Address {
        /// What was given.
        given: String,
        /// Why not.
        reason: String,
    },
    /// There is no socket.
    #[error("there is no engine's socket at {address}")]
    NoSocket {
        /// Where it was looked for.
        address: Address,
        /// Whether an engine's program is on this machine.
        installed: bool,
    },
    /// The socket is there, or the host is named, but nobody answers.
    #[error("no engine answers at {address}")]
    NotRunning {
        /// Where.
        address: Address,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system, the engine or something between them does not let us in.
    #[error("the use of the engine at {address} is denied: {reason}")]
    PermissionDenied {
        /// Where.
        address: Address,
        /// What was said.
        reason: String,
    },
    /// The engine and we have no version of its API in common.
    #[error("the engine's API does not fit: {reason}")]
    ApiVersion {
        /// Its versions and ours.
        reason: String,
    },
    /// No whole answer in time.
    #[error("the engine did not {what} within {} ms", .limit.as_millis())]
    TimedOut {
        /// What it was asked.
        what: &'static str,
        /// The deadline.
        limit: Duration,
    },
    /// The engine answered with an error.
    #[error("the engine refused to {what}: {message}")]
    Refused {
        /// What it was asked.
        what: &'static str,
        /// HTTP's number, `None` for an error within a stream.
        status: Option<u16>,
        /// Its words.
        message: String,
    },
    /// The answer is not one of the engine's API, or broke off.
    #[error("the engine gave an answer to '{what}' that cannot be read")]
    Unreadable {
        /// What it was asked.
        what: &'static str,
        /// What is wrong with it.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl EngineError {
    /// Sorts an error of the client by what it means.
    pub(super) fn of(what: &'static str, address: &Address, error: ClientError, limit: Duration) -> Self {
        match error {
            ClientError::RequestTimeoutError => Self::TimedOut { what, limit },
            ClientError::SocketNotFoundError(_) => Self::no_socket(address),
            ClientError::DockerResponseServerError { status_code, message } => {
                Self::of_status(what, address, status_code, bounded(&message))
            }
            ClientError::DockerStreamError { error } => Self::Refused {
                what,
                status: None,
                message: bounded(&error),
            },
            ClientError::HyperLegacyError { err } if err.is_connect() => match io_kind(&err) {
                Some(kind) => Self::of_connect(address, kind),
                None => Self::Unreadable {
                    what,
                    source: Box::new(err),
                },
            },
            other => Self::Unreadable {
                what,
                source: Box::new(other),
            },
        }
    }

    fn of_status(what: &'static str, address: &Address, status: u16, message: String) -> Self {
        let address = address.clone();
        // The engine itself uses 400 for a version it does not speak, and says so in these words.
        let is_version = message.contains("client version") && message.contains("API version");
        match status {
            401 | 403 => Self::PermissionDenied {
                address,
                reason: message,
            },
            400 if is_version => Self::ApiVersion { reason: message },
            _ => Self::Refused {
                what,
                status: Some(status),
                message,
            },
        }
    }

    /// What a failed connection means.
    fn of_connect(address: &Address, kind: ErrorKind) -> Self {
        let address = address.clone();
        match (kind, &address) {
            (ErrorKind::PermissionDenied, _) => {
                let reason = "the system does not let this user connect".to_owned();
                Self::PermissionDenied { address, reason }
            }
            (ErrorKind::NotFound, Address::Unix(_)) => Self::no_socket(&address),
            _ => Self::NotRunning {
                address,
                source: kind.into(),
            },
        }
    }

    fn no_socket(address: &Address) -> Self {
        Self::NoSocket {
            address: address.clone(),
            installed: super::address::engine_is_installed(),
        }
    }

    /// HTTP's number, when the engine answered with an error.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => *status,
            _ => None,
        }
    }

    /// Whether the engine does not see the host's files: what was to be mounted is not there for it.
    pub fn is_bind_source_missing(&self) -> bool {
        matches!(self, Self::Refused { status: Some(400), message, .. }
            if message.contains("bind source path does not exist"))
    }

    /// Stable; docs/errors explains it.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Address { .. } => "docker_address_invalid",
            Self::NoSocket { installed: false, .. } => "docker_not_found",
            Self::NoSocket { installed: true, .. } | Self::NotRunning { .. } => "docker_not_running",
            Self::PermissionDenied { .. } => "docker_permission_denied",
            Self::ApiVersion { .. } => "docker_api_version",
            Self::TimedOut { .. } => "docker_timed_out",
            Self::Refused { .. } | Self::Unreadable { .. } => "docker_error",
        }
    }

    fn remedy(&self) -> &'static str {
        match self {
            Self::Address { .. } => "Set DOCKER_HOST to unix:///PATH or tcp://HOST:PORT, or unset it.",
            Self::NoSocket { installed: false, .. } => {
                "Install Docker or Podman, or set DOCKER_HOST to the engine's address."
            }
            Self::NoSocket { installed: true, .. } | Self::NotRunning { .. } => {
                "Start the engine (systemctl start docker, or systemctl --user start podman.socket), or correct DOCKER_HOST."
            }
            Self::PermissionDenied { .. } => {
                "Add this user to the group that owns the socket (usermod -aG docker USER) and log in again."
            }
            Self::ApiVersion { .. } => {
                "Update the engine, or Stead, so that their versions of the API overlap."
            }
            Self::TimedOut { .. } => "Look at the engine's log and the machine's load, then try again.",
            Self::Refused { .. } | Self::Unreadable { .. } => {
                "Look at the engine's log, and make sure that a container engine listens at this address."
            }
        }
    }

    /// What stands in the way of using the provider at all.
    pub fn missing(&self) -> Missing {
        Missing {
            code: self.code(),
            reason: self.whole(),
            remedy: self.remedy().to_owned(),
        }
    }

    /// The error of a provision that this ends.
    pub fn into_provision(self) -> ProvisionError {
        let provider = PROVIDER.to_owned();
        match self {
            Self::Refused { .. } => ProvisionError::Failed {
                provider,
                reason: self.whole(),
                source: Some(Box::new(self)),
            },
            _ => ProvisionError::Unavailable {
                provider,
                missing: self.missing(),
            },
        }
    }

    /// This error and what is behind it, as one text.
    pub fn whole(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(error) = next {
            let part = bounded(&error.to_string());
            // Transparent wrappers say the same again.
            if !text.ends_with(&part) {
                text = format!("{text}: {part}");
            }
            next = error.source();
        }
        text
    }
}

/// The kind of the system's error at the bottom of a chain.
fn io_kind(error: &(dyn Error + 'static)) -> Option<ErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        next = error.source();
    }
    None
}

/// An engine's words: bounded, on one line, without what a terminal would act on.
pub(super) fn bounded(message: &str) -> String {
    let cleaned = message.chars().map(|c| if c.is_control() { ' ' } else { c });
    let text: String = cleaned.skip_while(|c| *c == ' ').take(MAX_MESSAGE).collect();
    match text.trim_end() {
        "" => "it gave no reason".to_owned(),
        text => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix() -> Address {
        Address::Unix("/run/x.sock".into())
    }

    #[test]
    fn a_connection_that_fails_says_why() {
        let code = |kind| EngineError::of_connect(&unix(), kind).missing().code;
        assert_eq!(code(ErrorKind::PermissionDenied), "docker_permission_denied");
        assert_eq!(code(ErrorKind::ConnectionRefused), "docker_not_running");
        let tcp = EngineError::of_connect(&Address::Tcp("h:1".to_owned()), ErrorKind::NotFound);
        assert_eq!(tcp.missing().code, "docker_not_running");
    }

    #[test]
    fn not_installed_and_not_started_are_different() {
        let code = |installed| {
            EngineError::NoSocket {
                address: unix(),
                installed,
            }
            .missing()
            .code
        };
        assert_eq!(
            (code(false), code(true)),
            ("docker_not_found", "docker_not_running")
        );
    }

    #[test]
    fn an_engines_words_are_bounded_and_harmless() {
        let words = bounded(&format!("\x1b[31m{}", "x".repeat(10_000)));
        assert_eq!(words.chars().count(), MAX_MESSAGE);
        assert!(!words.contains('\x1b'));
        assert_eq!(bounded("\n"), "it gave no reason");
    }

    #[test]
    fn a_version_that_the_engine_refuses_is_told_from_other_bad_requests() {
        let of = |status, message: &str| EngineError::of_status("x", &unix(), status, message.to_owned());
        let version = "client version 1.53 is too new. Maximum supported API version is 1.41";
        assert_eq!(of(400, version).missing().code, "docker_api_version");
        assert_eq!(of(400, "bad parameter").missing().code, "docker_error");
        assert_eq!(of(403, "no").missing().code, "docker_permission_denied");
        assert!(
            of(400, "invalid mount config: bind source path does not exist: /a").is_bind_source_missing()
        );
    }
}
