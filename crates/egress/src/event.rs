//! What was decided, and why.

use crate::address::AddressKind;
use crate::host::HostError;
use serde::{Serialize, Serializer};
use std::net::SocketAddr;
use stead_types::error::Code;
use time::OffsetDateTime;

/// One decision about one request of a place. A `CONNECT` is one request, and so is each plain request of a
/// connection that is kept alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EgressEvent {
    /// When it was decided.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The host as the place wrote it, at most 255 bytes of it. `None` when the request could not be read so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The port that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What came of it.
    pub decision: Decision,
    /// Why it was not allowed. As JSON this is the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The address that was connected to, or the one that was refused. The place is never told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
}

/// What came of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// Bytes of the place go to the host.
    Allowed,
    /// A rule forbids it.
    Refused,
    /// No rule forbids it, but it could not be carried out.
    Failed,
}

/// Why a request was not let out. The text is for the place: it names no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reason {
    /// No entry of the policy has the host.
    #[error("the network policy of this place does not have this host")]
    HostNotAllowed,
    /// The policy has the host with other ports.
    #[error("the network policy of this place has this host, but not with this port")]
    PortNotAllowed,
    /// An address instead of a name, in whatever form.
    #[error("an address cannot be asked for, only a name")]
    IpLiteral,
    /// The name of the host breaks a rule.
    #[error("the host cannot be asked for: {0}")]
    HostInvalid(HostError),
    /// The name has an address that no place may reach.
    #[error("the name has an address that is not on the public internet")]
    AddressRefused(AddressKind),
    /// The request can be read in more ways than one, or in none.
    #[error("the request is malformed: {0}")]
    RequestInvalid(&'static str),
    /// The head of the request is too long.
    #[error("the head of the request is too long")]
    RequestTooLarge,
    /// The `Host` of a request is not the host that it asks for.
    #[error("the Host header is not the host that was asked for")]
    HostMismatch,
    /// Another scheme than `http`, or plain HTTP to the port of HTTPS.
    #[error("only http:// is forwarded, and not to port 443; use CONNECT for https")]
    SchemeUnsupported,
    /// After `CONNECT` something else came than TLS, or than plain HTTP where that is allowed.
    #[error("what came after CONNECT is not what this port may carry")]
    ProtocolRefused,
    /// The greeting of TLS is malformed, or in pieces.
    #[error("the TLS greeting cannot be read: {0}")]
    TlsInvalid(&'static str),
    /// The greeting of TLS does not name its host.
    #[error("the TLS greeting names no host")]
    SniMissing,
    /// The greeting of TLS names another host than `CONNECT` did.
    #[error("the TLS greeting names another host than CONNECT did")]
    SniMismatch,
    /// The greeting of TLS encrypts the host that it is for, and names another one in the clear.
    #[error("the TLS greeting hides its host behind another one (ECH)")]
    SniHidden,
    /// Nothing whole came in time.
    #[error("the first bytes did not come in time")]
    FirstBytesMissing,
    /// The name could not be resolved.
    #[error("the name could not be resolved")]
    NameUnresolved,
    /// No address of the host took the connection in time, or it broke off.
    #[error("the host could not be reached")]
    Unreachable,
    /// The answer of the host was no HTTP/1.1, or did not come in time.
    #[error("the host gave no answer that can be passed on")]
    AnswerInvalid,
    /// Nobody takes the events any more, and nothing is let out unrecorded.
    #[error("decisions cannot be recorded, so that nothing is let out")]
    EventsLost,
}

impl Reason {
    /// Whether a rule forbids the request, or it could only not be carried out.
    pub fn decision(&self) -> Decision {
        match self {
            Self::FirstBytesMissing
            | Self::NameUnresolved
            | Self::Unreachable
            | Self::AnswerInvalid
            | Self::EventsLost => Decision::Failed,
            Self::HostNotAllowed
            | Self::PortNotAllowed
            | Self::IpLiteral
            | Self::HostInvalid(_)
            | Self::AddressRefused(_)
            | Self::RequestInvalid(_)
            | Self::RequestTooLarge
            | Self::HostMismatch
            | Self::SchemeUnsupported
            | Self::ProtocolRefused
            | Self::TlsInvalid(_)
            | Self::SniMissing
            | Self::SniMismatch
            | Self::SniHidden => Decision::Refused,
        }
    }
}

impl Code for Reason {
    fn code(&self) -> &'static str {
        match self {
            Self::HostNotAllowed => "egress_host_not_allowed",
            Self::PortNotAllowed => "egress_port_not_allowed",
            Self::IpLiteral => "egress_ip_literal",
            Self::HostInvalid(_) => "egress_host_invalid",
            Self::AddressRefused(_) => "egress_address_refused",
            Self::RequestInvalid(_) => "egress_request_invalid",
            Self::RequestTooLarge => "egress_request_too_large",
            Self::HostMismatch => "egress_host_mismatch",
            Self::SchemeUnsupported => "egress_scheme_unsupported",
            Self::ProtocolRefused => "egress_protocol_refused",
            Self::TlsInvalid(_) => "egress_tls_invalid",
            Self::SniMissing => "egress_sni_missing",
            Self::SniMismatch => "egress_sni_mismatch",
            Self::SniHidden => "egress_sni_hidden",
            Self::FirstBytesMissing => "egress_first_bytes_missing",
            Self::NameUnresolved => "egress_name_unresolved",
            Self::Unreachable => "egress_unreachable",
            Self::AnswerInvalid => "egress_answer_invalid",
            Self::EventsLost => "egress_events_lost",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::HostNotAllowed => "Add the host to the network policy of the place, if it may be reached.",
            Self::PortNotAllowed => {
                "Add the host with this port to the network policy, as in example.org:8443."
            }
            Self::IpLiteral | Self::HostInvalid(_) => {
                "Ask for the host by its whole name, without a dot at the end."
            }
            Self::AddressRefused(_) => "Only hosts on the public internet can be reached from a place.",
            Self::RequestInvalid(_) => "Send one well-formed HTTP/1.1 request to the proxy.",
            Self::RequestTooLarge => "Send fewer or shorter headers.",
            Self::HostMismatch => "Send the Host that belongs to the URL.",
            Self::SchemeUnsupported => "Use CONNECT for https, which clients do with HTTPS_PROXY.",
            Self::ProtocolRefused => "Use TLS on port 443 and plain HTTP on port 80.",
            Self::TlsInvalid(_) => "Use a client that sends its greeting in one record.",
            Self::SniMissing | Self::SniMismatch => "Use a client that sends the host's name by SNI.",
            Self::SniHidden => "Switch Encrypted Client Hello off in the client.",
            Self::FirstBytesMissing => "Try again, and send the request without delay.",
            Self::NameUnresolved => "Check the name; if it is right, check the resolver of the host.",
            Self::Unreachable | Self::AnswerInvalid => {
                "Try again; if it stays so, the host is the one to look at."
            }
            Self::EventsLost => "The program that runs this place has to take its events.",
        }
        .to_owned()
    }

    fn retryable(&self) -> bool {
        self.decision() == Decision::Failed
    }
}

impl From<HostError> for Reason {
    fn from(error: HostError) -> Self {
        match error {
            HostError::IpLiteral => Self::IpLiteral,
            other => Self::HostInvalid(other),
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object() {
        let event = EgressEvent {
            at: OffsetDateTime::UNIX_EPOCH,
            host: Some("example.org".to_owned()),
            port: Some(443),
            decision: Decision::Refused,
            reason: Some(Reason::AddressRefused(AddressKind::Private)),
            address: Some(([10, 0, 0, 1], 443).into()),
        };
        insta::assert_snapshot!(serde_json::to_string(&event).unwrap(), @r#"{"at":"1970-01-01T00:00:00Z","host":"example.org","port":443,"decision":"refused","reason":"egress_address_refused","address":"10.0.0.1:443"}"#);
    }
}
