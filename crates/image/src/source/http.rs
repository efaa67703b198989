//! HTTP as registries need it: no address is followed without a look at it, and nothing waits for ever.

use crate::error::PullError;
use rustls_native_certs::load_native_certs;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};
use ureq::http::{Response, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, Body};

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Until there is a connection. 30 s.
    pub connect: Duration,
    /// Until something comes. 30 s; of a document, until all of it is there.
    pub silence: Duration,
    /// Over so long, a transfer has to make [`Self::FLOOR`] bytes a second. 60 s.
    pub window: Duration,
    /// Between the first tries of a transfer; doubled each time, to 10 s at most. 500 ms.
    pub pause: Duration,
}

impl Patience {
    /// Bytes a second below which a transfer is broken off and taken up again: no link that people use is
    /// slower than a modem.
    pub const FLOOR: u64 = 1024;
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            silence: Duration::from_secs(30),
            window: Duration::from_secs(60),
            pause: Duration::from_millis(500),
        }
    }
}

/// An `http` or `https` address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    pub is_tls: bool,
    /// Host and port as written.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.origin(), self.path)
    }
}

impl Address {
    /// Reads an absolute address, or one on the same host. No user, no fragment.
    pub fn parse(text: &str, beside: Option<&Self>) -> Option<Self> {
        if text.len() > 8192 || text.contains(|c: char| c.is_control() || c == ' ') {
            return None;
        }
        if let (Some(beside), true, false) = (beside, text.starts_with('/'), text.starts_with("//")) {
            return Some(Self {
                path: text.to_owned(),
                ..beside.clone()
            });
        }
        let uri: Uri = text.split('#').next()?.parse().ok()?;
        let is_tls = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?.as_str().to_ascii_lowercase();
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        (!authority.contains('@') && !authority.is_empty()).then_some(Self {
            is_tls,
            authority,
            path,
        })
    }

    pub fn origin(&self) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://{}", self.authority)
    }

    /// Without its query, which may be a ticket for whoever has it.
    pub fn shown(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{}{path}", self.origin())
    }

    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.authority)
    }
}

/// Whether a host, with or without a port, is this machine whatever a name server says.
pub(crate) fn is_loopback(authority: &str) -> bool {
    if let Some(rest) = authority.strip_prefix('[') {
        let address = rest.split(']').next().unwrap_or_default();
        return address
            .parse::<std::net::Ipv6Addr>()
            .is_ok_and(|address| address.is_loopback());
    }
    let host = authority.split(':').next().unwrap_or_default();
    host == "localhost"
        || host
            .parse::<std::net::Ipv4Addr>()
            .is_ok_and(|address| address.is_loopback())
}

/// A client of one registry or engine.
pub(crate) struct Client {
    agent: Agent,
    patience: Patience,
    /// Whether addresses without TLS that are not of this machine are allowed.
    plain_http: bool,
}

impl Client {
    pub fn new(patience: Patience, plain_http: bool, direct: bool) -> Self {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("stead/", env!("CARGO_PKG_VERSION")))
            .max_response_header_size(64 << 10)
            .timeout_resolve(Some(patience.connect))
            .timeout_connect(Some(patience.connect))
            .timeout_send_request(Some(patience.silence))
            .timeout_recv_response(Some(patience.silence))
            .timeout_per_read(Some(patience.silence))
            .timeout_per_write(Some(patience.silence))
            .tls_config(tls());
        if direct {
            config = config.proxy(None);
        }
        Self {
            agent: config.build().into(),
            patience,
            plain_http,
        }
    }

    /// Asks once, and gives whatever is answered.
    pub fn get(&self, address: &Address, headers: &[(&str, &str)]) -> Result<Response<Body>, PullError> {
        if !address.is_tls && !self.plain_http && !address.is_loopback() {
            return Err(PullError::PlainHttp { url: address.shown() });
        }
        let mut request = self.agent.get(address.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
            .call()
            .map_err(|error| unreachable(&address.authority, &address.shown(), error))
    }

    /// The whole of a small body.
    pub fn small(
        &self,
        response: Response<Body>,
        limit: u64,
        place: &str,
        what: &str,
    ) -> Result<Vec<u8>, PullError> {
        let mut reader = response.into_body().into_reader().take(limit.saturating_add(1));
        let (mut bytes, mut buffer) = (Vec::new(), [0; 16 << 10]);
        let deadline = Instant::now() + self.patience.silence;
        loop {
            let count = reader
                .read(&mut buffer)
                .map_err(|error| unreachable(place, what, error))?;
            if count == 0 {
                break;
            }
            bytes.extend_from_slice(&buffer[..count]);
            if Instant::now() > deadline {
                return Err(unreachable(place, what, io::Error::from(io::ErrorKind::TimedOut)));
            }
        }
        match bytes.len() as u64 > limit {
            true => Err(PullError::TooLarge {
                what: what.to_owned(),
                limit,
            }),
            false => Ok(bytes),
        }
    }
}

pub(crate) fn unreachable(
    place: &str,
    what: &str,
    source: impl Into<stead_types::error::Source>,
) -> PullError {
    PullError::Unreachable {
        place: place.to_owned(),
        what: what.to_owned(),
        source: source.into(),
    }
}

/// Trust is what this machine trusts, with `SSL_CERT_FILE` and `SSL_CERT_DIR` as everywhere.
fn tls() -> TlsConfig {
    let certificates = load_native_certs().certs;
    let certificates: Vec<_> = certificates
        .iter()
        .map(|one| Certificate::from_der(one.as_ref()).to_owned())
        .collect();
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let base = Address::parse("https://R.x:1/v2/", None).unwrap();
        assert_eq!(base.to_string(), "https://r.x:1/v2/");
        assert_eq!(
            Address::parse("/a?b#c", Some(&base)).unwrap().origin(),
            "https://r.x:1"
        );
        assert_eq!(
            Address::parse("http://h/a?ticket=1", Some(&base))
                .unwrap()
                .shown(),
            "http://h/a"
        );
        for bad in [
            "",
            "a",
            "//h/a",
            "ftp://h/",
            "https://u:p@h/",
            "https://",
            "https://h/ a",
            "/a\n",
            "file:///etc",
        ] {
            assert_eq!(Address::parse(bad, Some(&base)), None, "{bad:?}");
        }
    }

    #[test]
    fn only_what_cannot_be_elsewhere_is_loopback() {
        for this in [
            "localhost",
            "localhost:5000",
            "127.0.0.1",
            "127.9.9.9:1",
            "[::1]:5",
        ] {
            assert!(is_loopback(this), "{this}");
        }
        for other in [
            "localhost.evil",
            "127.0.0.1.evil",
            "127.evil",
            "0.0.0.0",
            "10.0.0.1",
            "[::2]",
            "a",
            "",
            "0177.0.0.1",
        ] {
            assert!(!is_loopback(other), "{other}");
        }
    }
}
