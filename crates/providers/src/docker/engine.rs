//! The connection to the engine: found, negotiated, and every call with a deadline.

use super::address::{self, Address};
use super::error::EngineError;
use bollard::errors::Error as ClientError;
use bollard::{API_DEFAULT_VERSION, BollardRequest, Docker};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_types::Availability;
use tokio::time::Instant;

/// The oldest API that has all we use: Docker 19.03, Podman 3.
pub const OLDEST_API: ApiVersion = ApiVersion(1, 40);

/// The newest API that the client knows.
pub const NEWEST_API: ApiVersion = ApiVersion(1, 53);

/// No probe takes longer, whatever deadline was asked for.
const LONGEST_PROBE: Duration = Duration::from_secs(15);

/// An older answer of [`Engine::probe`] is not given, whatever age was asked for.
const OLDEST_PROBE: Duration = Duration::from_secs(5);

/// The client's own limit ends only the head of an answer, and counts whole seconds. Ours is around each
/// call, so the client's is set out of its way.
const CLIENT_LIMIT: u64 = 365 * 24 * 3600;

/// A version of the engine's API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion(pub u16, pub u16);

impl std::fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl ApiVersion {
    fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }
}

/// How long the engine may take.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// For [`Engine::probe`]; more than 15 s is 15 s.
    pub probe: Duration,
    /// How old an answer of a probe may be; more than 5 s is 5 s.
    pub probe_age: Duration,
    /// For one call.
    pub call: Duration,
    /// For a removal until it is confirmed.
    pub remove: Duration,
    /// For a whole pull.
    pub pull: Duration,
    /// Between two signs of progress of a pull.
    pub pull_stall: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            probe: Duration::from_secs(10),
            probe_age: OLDEST_PROBE,
            call: Duration::from_secs(60),
            remove: Duration::from_secs(60),
            pull: Duration::from_secs(30 * 60),
            pull_stall: Duration::from_secs(300),
        }
    }
}

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFacts {
    /// Where it listens.
    pub address: Address,
    /// The version of the API that is spoken with it.
    pub api: ApiVersion,
    /// Its own version.
    pub version: String,
    /// Its machine, as `amd64`.
    pub arch: String,
    /// Whether it is Podman.
    pub podman: bool,
}

impl EngineFacts {
    /// What the isolation of its containers rests on: an engine elsewhere, or another version, is to be observed anew.
    pub fn identity(&self) -> String {
        format!("{:?} {} {}", self.address, self.version, self.arch)
    }
}

#[derive(Clone)]
struct Connection {
    docker: Docker,
    facts: EngineFacts,
}

/// An engine that may or may not be there. Cheap to clone; nothing is opened before the first call.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    address: Option<Address>,
    deadlines: Deadlines,
    connection: Mutex<Option<Connection>>,
    probed: tokio::sync::Mutex<Option<(Instant, Availability)>>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("address", &self.inner.address)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// The engine at an address, or the one that [`address::discover`] finds at each new connection.
    pub fn new(address: Option<Address>, deadlines: Deadlines) -> Self {
        let (connection, probed) = (Mutex::default(), tokio::sync::Mutex::default());
        Self {
            inner: Arc::new(Inner {
                address,
                deadlines,
                connection,
                probed,
            }),
        }
    }

    /// The deadlines that were given.
    pub fn deadlines(&self) -> &Deadlines {
        &self.inner.deadlines
    }

    /// Whether the engine can be used, from a cache that is at most 5 s old.
    pub async fn probe(&self) -> Availability {
        let limit = self.inner.deadlines.probe.min(LONGEST_PROBE);
        let age = self.inner.deadlines.probe_age.min(OLDEST_PROBE);
        // Around the wait for another probe too: whoever asks is answered in time.
        let probed = tokio::time::timeout(limit, async {
            let mut probed = self.inner.probed.lock().await;
            match &*probed {
                Some((at, answer)) if at.elapsed() < age => answer.clone(),
                _ => {
                    let answer = self.probe_now(limit).await;
                    *probed = Some((Instant::now(), answer.clone()));
                    answer
                }
            }
        });
        probed.await.unwrap_or_else(|_| {
            let error = EngineError::TimedOut {
                what: "answer the probe",
                limit,
            };
            Availability::Unavailable(error.missing())
        })
    }

    async fn probe_now(&self, limit: Duration) -> Availability {
        // Anew each time: what was connected before says nothing about now.
        *self.connection() = None;
        match self.connect(limit).await {
            Ok(_) => Availability::Available,
            Err(error) => Availability::Unavailable(error.missing()),
        }
    }

    /// What the engine said of itself, if it was asked before.
    pub fn known_facts(&self) -> Option<EngineFacts> {
        self.connection()
            .as_ref()
            .map(|connection| connection.facts.clone())
    }

    /// What the engine says of itself, asked once for a connection.
    pub async fn facts(&self) -> Result<EngineFacts, EngineError> {
        let limit = self.inner.deadlines.call;
        let connected = tokio::time::timeout(limit, self.connect(limit)).await;
        let late = EngineError::TimedOut {
            what: "say its version",
            limit,
        };
        Ok(connected.unwrap_or(Err(late))?.facts)
    }

    /// One call, at most as long as [`Deadlines::call`], negotiation and the whole answer included.
    pub(super) async fn call<T, F>(
        &self,
        what: &'static str,
        request: impl FnOnce(Docker) -> F,
    ) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.call_within(self.inner.deadlines.call, what, request).await
    }

    /// One call with its own deadline.
    pub(super) async fn call_within<T, F>(
        &self,
        limit: Duration,
        what: &'static str,
        request: impl FnOnce(Docker) -> F,
    ) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let answered = tokio::time::timeout(limit, async {
            let Connection { docker, facts } = self.connect(limit).await?;
            let answer = request(docker).await;
            answer.map_err(|error| self.failed(what, &facts.address, error, limit))
        });
        answered
            .await
            .unwrap_or(Err(EngineError::TimedOut { what, limit }))
    }

    /// Sorts an error; after a failed connection the next call looks for the engine again.
    pub(super) fn failed(
        &self,
        what: &'static str,
        address: &Address,
        error: ClientError,
        limit: Duration,
    ) -> EngineError {
        let error = EngineError::of(what, address, error, limit);
        if matches!(
            error,
            EngineError::NoSocket { .. } | EngineError::NotRunning { .. }
        ) {
            *self.connection() = None;
        }
        error
    }

    /// The client for calls whose answer is a stream; the caller has to keep the deadline.
    pub(super) async fn stream_client(&self) -> Result<(Docker, Address), EngineError> {
        let limit = self.inner.deadlines.call;
        let connection = self.connect(limit).await?;
        Ok((connection.docker, connection.facts.address))
    }

    async fn connect(&self, limit: Duration) -> Result<Connection, EngineError> {
        if let Some(connection) = self.connection().clone() {
            return Ok(connection);
        }
        let address = match &self.inner.address {
            Some(address) => address.clone(),
            None => address::discover()?,
        };
        let connection = tokio::time::timeout(limit, negotiate(address, limit)).await;
        let late = EngineError::TimedOut {
            what: "say its version",
            limit,
        };
        let connection = connection.unwrap_or(Err(late))?;
        *self.connection() = Some(connection.clone());
        Ok(connection)
    }

    fn connection(&self) -> MutexGuard<'_, Option<Connection>> {
        // The lock is held for a clone or an assignment, neither of which leaves anything half done.
        self.inner
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for the engine's versions and settles on the newest that both sides know.
async fn negotiate(address: Address, limit: Duration) -> Result<Connection, EngineError> {
    let what = "say its version";
    let opened = match &address {
        Address::Unix(path) => {
            Docker::connect_with_unix(&path.to_string_lossy(), CLIENT_LIMIT, API_DEFAULT_VERSION)
        }
        Address::Tcp(host) => Docker::connect_with_http(host, CLIENT_LIMIT, API_DEFAULT_VERSION),
    };
    let sort = |error| EngineError::of(what, &address, error, limit);
    let docker = opened.map_err(sort)?;
    let said = docker.version().await.map_err(sort)?;
    let api = agree(what, said.api_version.as_deref(), said.min_api_version.as_deref())?;
    if said.os.as_deref().is_some_and(|os| os != "linux") {
        let message = "it runs containers of another system than Linux".to_owned();
        return Err(EngineError::Refused {
            what: "run Linux containers",
            status: None,
            message,
        });
    }
    let components = said.components.unwrap_or_default();
    let facts = EngineFacts {
        api,
        version: super::error::bounded(&said.version.unwrap_or_default()),
        arch: super::error::bounded(&said.arch.unwrap_or_default()),
        podman: components
            .iter()
            .any(|component| component.name.contains("Podman")),
        address,
    };
    let prefix = format!("/v{api}");
    let docker = docker.with_request_modifier(move |request| adjusted(request, &prefix));
    Ok(Connection { docker, facts })
}

/// The newest version that both sides speak.
fn agree(what: &'static str, newest: Option<&str>, oldest: Option<&str>) -> Result<ApiVersion, EngineError> {
    let Some(newest) = newest.and_then(ApiVersion::parse) else {
        let source = "there is no version of an API in it".into();
        return Err(EngineError::Unreadable { what, source });
    };
    // Engines before 1.24 do not say their oldest.
    let oldest = oldest.and_then(ApiVersion::parse).unwrap_or(newest);
    let spoken = newest.min(NEWEST_API);
    if newest < OLDEST_API || oldest > NEWEST_API {
        let reason = format!(
            "the engine speaks {} to {newest}, and Stead {OLDEST_API} to {NEWEST_API}",
            oldest.min(newest)
        );
        return Err(EngineError::ApiVersion { reason });
    }
    Ok(spoken)
}

/// What the client leaves out of its requests: the version that was agreed on, without which an engine
/// takes its newest; and an encoding of credentials that an engine can read, for the client's alphabet
/// has two letters that engines take for damage, and then they go on without credentials.
fn adjusted(mut request: BollardRequest, prefix: &str) -> BollardRequest {
    let uri = request.uri();
    if let (Some(scheme), Some(authority), Some(path)) =
        (uri.scheme_str(), uri.authority(), uri.path_and_query())
        && let Ok(versioned) = format!("{scheme}://{authority}{prefix}{path}").parse()
    {
        *request.uri_mut() = versioned;
    }
    if let Some(auth) = request.headers_mut().get_mut("x-registry-auth")
        && let Ok(text) = auth.to_str()
        && let Ok(url_safe) = text.replace('+', "-").replace('/', "_").parse()
    {
        *auth = url_safe;
        auth.set_sensitive(true);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_the_newest_they_share() {
        let agreed = |newest, oldest| agree("x", newest, oldest).map_err(|error| error.code());
        assert_eq!(agreed(Some("1.41"), Some("1.12")), Ok(ApiVersion(1, 41)));
        assert_eq!(agreed(Some("1.99"), Some("1.44")), Ok(NEWEST_API));
        assert_eq!(agreed(Some("1.41"), None), Ok(ApiVersion(1, 41)));
        assert_eq!(agreed(Some("1.39"), Some("1.12")), Err("docker_api_version"));
        assert_eq!(agreed(Some("1.99"), Some("1.60")), Err("docker_api_version"));
        assert_eq!(agreed(Some("new"), None), Err("docker_error"));
        assert_eq!(agreed(None, None), Err("docker_error"));
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(ApiVersion(1, 9) < ApiVersion(1, 40));
        assert_eq!(ApiVersion::parse("1.40"), Some(ApiVersion(1, 40)));
        for bad in ["", "1", "1.x", "a.1", "1.2.3"] {
            assert_eq!(ApiVersion::parse(bad), None, "{bad}");
        }
    }
}
