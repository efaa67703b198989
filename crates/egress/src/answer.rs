//! What the proxy itself says to a place.

use crate::event::{Decision, Reason};
use stead_types::error::Code;

/// To `CONNECT`, before the greeting is judged: the client sends nothing before it.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// To a request that waits before it sends its body.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A fatal `access_denied` of TLS (RFC 8446 section 6.2): what a client of TLS can understand after `CONNECT`.
pub(crate) const TLS_ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 49];

/// An answer with a reason. The connection ends after it, so that nothing of a request that was not understood can
/// be taken for the next one.
pub(crate) fn refusal(reason: &Reason, with_body: bool) -> Vec<u8> {
    let (code, status) = (reason.code(), status(reason));
    let word = match reason.decision() {
        Decision::Failed => "failed",
        Decision::Refused | Decision::Allowed => "refused",
    };
    let body = format!("stead: {word}: {reason}. {}\ncode: {code}\n", reason.remedy());
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\
         Stead-Error: {code}\r\nConnection: close\r\n\r\n"
    );
    let body = if with_body { body.as_str() } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

fn status(reason: &Reason) -> &'static str {
    match reason {
        Reason::RequestInvalid(_) => "400 Bad Request",
        Reason::RequestTooLarge => "431 Request Header Fields Too Large",
        Reason::FirstBytesMissing => "408 Request Timeout",
        Reason::EventsLost => "503 Service Unavailable",
        reason => match reason.decision() {
            Decision::Failed => "502 Bad Gateway",
            Decision::Refused | Decision::Allowed => "403 Forbidden",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::AddressKind;

    #[test]
    fn a_refusal_says_its_code_and_no_address() {
        let text = |reason, body| String::from_utf8(refusal(&reason, body)).unwrap();
        insta::assert_snapshot!(text(Reason::AddressRefused(AddressKind::Loopback), true).replace('\r', ""));
        assert!(text(Reason::RequestTooLarge, true).starts_with("HTTP/1.1 431 "));
        assert!(text(Reason::Unreachable, true).starts_with("HTTP/1.1 502 "));
        assert!(text(Reason::HostNotAllowed, false).ends_with("\r\n\r\n"));
    }
}
