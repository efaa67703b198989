//! Images of a registry: the part of the OCI distribution specification that a pull needs.

use super::challenge::{self, Challenge};
use super::http::{Address, Client, Patience, is_loopback, unreachable};
use super::{Documents, Found, Layer, Opened, Source, find_in};
use crate::digest::Digest;
use crate::error::PullError;
use crate::limits::Limits;
use crate::manifest::{ACCEPT, Descriptor, Listed};
use crate::platform::Platform;
use crate::reference::RegistryName;
use base64::Engine;
use serde::Deserialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use ureq::Body;
use ureq::http::Response;

/// From a blob's address to where it is: more hops than this lead nowhere.
const MAX_HOPS: usize = 5;
/// Tokens are some kilobytes at most.
const MAX_TOKEN: u64 = 128 << 10;
/// Of what a registry says about an error, so much is shown.
const MAX_REASON: u64 = 4 << 10;

/// Name and password for a registry, which only it and the place of its tokens see.
pub(crate) struct Credentials {
    pub username: String,
    pub password: String,
}

/// An image of a registry.
pub(crate) struct Registry {
    client: Client,
    base: Address,
    /// Whether TLS is spoken; a registry of this machine may turn out to.
    is_tls: AtomicBool,
    may_turn_to_tls: bool,
    name: RegistryName,
    credentials: Option<Credentials>,
    /// The value of `Authorization` that was accepted last.
    authorization: Mutex<Option<String>>,
}

/// What is asked for.
struct Request<'a> {
    path: String,
    accept: &'a str,
    range: Option<String>,
    what: &'a str,
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct ErrorAnswer {
    errors: Vec<OneError>,
}

#[derive(Deserialize)]
struct OneError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

impl Registry {
    /// Others speak TLS unless plain HTTP is allowed; one of this machine is asked in plain HTTP first, and says so
    /// if it wants TLS.
    pub fn new(
        name: RegistryName,
        credentials: Option<Credentials>,
        patience: Patience,
        plain_http: bool,
    ) -> Self {
        let host = if name.host == "docker.io" {
            "registry-1.docker.io"
        } else {
            &name.host
        };
        let is_local = is_loopback(host);
        let base = Address {
            is_tls: !is_local && !plain_http,
            authority: host.to_ascii_lowercase(),
            path: format!("/v2/{}", name.repository),
        };
        let client = Client::new(patience, plain_http, is_local);
        Self {
            client,
            is_tls: AtomicBool::new(base.is_tls),
            may_turn_to_tls: is_local && !plain_http,
            base,
            name,
            credentials,
            authorization: Mutex::new(None),
        }
    }

    /// Asks, logs in when told to, and follows where a blob really is.
    fn get(&self, request: &Request<'_>) -> Result<Response<Body>, PullError> {
        let mut address = Address {
            path: format!("{}{}", self.base.path, request.path),
            is_tls: self.is_tls.load(Ordering::Relaxed),
            ..self.base.clone()
        };
        let mut has_logged_in = false;
        for _ in 0..=MAX_HOPS {
            let response = self.send(&address, request)?;
            match response.status().as_u16() {
                200 | 206 | 416 => return Ok(response),
                400 if self.turns_to_tls(&address) => address.is_tls = true,
                401 if !has_logged_in && self.is_ours(&address) => {
                    has_logged_in = true;
                    self.log_in(&response, request.what)?;
                }
                401 | 403 => return Err(self.denied(request.what, &self.reason(response))),
                404 => {
                    return Err(PullError::NotFound {
                        place: self.name.host.clone(),
                        what: self.missing(request.what),
                    });
                }
                301 | 302 | 303 | 307 | 308 => address = self.next(&address, &response, request.what)?,
                status => {
                    let reason = format!("the answer is {status}: {}", self.reason(response));
                    return Err(unreachable(&address.authority, request.what, reason));
                }
            }
        }
        Err(unreachable(
            &self.name.host,
            request.what,
            "it sends us from one address to the next",
        ))
    }

    fn send(&self, address: &Address, request: &Request<'_>) -> Result<Response<Body>, PullError> {
        let authorization = self
            .authorization
            .lock()
            .unwrap_or_else(|lock| lock.into_inner())
            .clone();
        let mut headers = vec![("accept", request.accept)];
        headers.extend(request.range.as_deref().map(|range| ("range", range)));
        // Credentials go to the registry that they are for, and nowhere that it sends us.
        if self.is_ours(address) {
            headers.extend(authorization.as_deref().map(|value| ("authorization", value)));
        }
        self.client.get(address, &headers)
    }

    fn is_ours(&self, address: &Address) -> bool {
        (address.is_tls, &address.authority) == (self.is_tls.load(Ordering::Relaxed), &self.base.authority)
    }

    /// What servers answer to plain HTTP where they want TLS.
    fn turns_to_tls(&self, address: &Address) -> bool {
        self.may_turn_to_tls && self.is_ours(address) && !self.is_tls.swap(true, Ordering::Relaxed)
    }

    fn next(&self, from: &Address, response: &Response<Body>, what: &str) -> Result<Address, PullError> {
        let location = header(response, "location").and_then(|text| Address::parse(text, Some(from)));
        let to =
            location.ok_or_else(|| unreachable(&from.authority, what, "it sends us to no usable address"))?;
        match from.is_tls && !to.is_tls {
            // What was safe on the way stays so.
            true => Err(PullError::PlainHttp { url: to.shown() }),
            false => Ok(to),
        }
    }

    fn log_in(&self, response: &Response<Body>, what: &str) -> Result<(), PullError> {
        let headers = response.headers().get_all("www-authenticate").iter();
        let all: Vec<&str> = headers.filter_map(|value| value.to_str().ok()).collect();
        let value = match challenge::read(&all.join(", ")) {
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => self.token(&realm, service, scope, what)?,
            Some(Challenge::Basic) => match &self.credentials {
                Some(credentials) => credentials.basic(),
                None => return Err(self.denied(what, "it asks for a name and a password")),
            },
            None => return Err(self.denied(what, "it asks for a login in a way that is not known here")),
        };
        *self.authorization.lock().unwrap_or_else(|lock| lock.into_inner()) = Some(value);
        Ok(())
    }

    /// The place of tokens may be another host, and the password is for it.
    fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
        what: &str,
    ) -> Result<String, PullError> {
        let bad = |reason: &str| self.denied(what, reason);
        let address = self.token_address(realm, service, scope, what)?;
        let basic = self.credentials.as_ref().map(Credentials::basic);
        let headers: Vec<_> = basic
            .iter()
            .map(|basic| ("authorization", basic.as_str()))
            .collect();
        let response = self.client.get(&address, &headers)?;
        match response.status().as_u16() {
            200 => {}
            status @ (400..=499) if status != 429 => {
                return Err(bad(&format!("no token for it: {}", self.reason(response))));
            }
            status => {
                return Err(unreachable(
                    &address.authority,
                    "its tokens",
                    format!("the answer is {status}"),
                ));
            }
        }
        let bytes = self
            .client
            .small(response, MAX_TOKEN, &address.authority, "a token")?;
        let answer: Option<TokenAnswer> = serde_json::from_slice(&bytes).ok();
        let token = answer.and_then(|answer| {
            answer
                .token
                .filter(|token| !token.is_empty())
                .or(answer.access_token)
        });
        let sound = token.filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
        sound
            .map(|token| format!("Bearer {token}"))
            .ok_or_else(|| bad("what came as its token is none"))
    }

    fn token_address(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
        what: &str,
    ) -> Result<Address, PullError> {
        let mut address = Address::parse(realm, None)
            .ok_or_else(|| self.denied(what, "the place of its tokens is no address"))?;
        if self.is_tls.load(Ordering::Relaxed) && !address.is_tls {
            return Err(PullError::PlainHttp { url: address.shown() });
        }
        let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.name.repository));
        let query = [("service", service), ("scope", Some(scope))];
        for (name, value) in query.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let separator = if address.path.contains('?') { '&' } else { '?' };
            address.path = format!("{}{separator}{name}={}", address.path, percent_encoded(&value));
        }
        Ok(address)
    }

    fn denied(&self, what: &str, reason: &str) -> PullError {
        let (registry, what) = (self.name.host.clone(), self.missing(what));
        PullError::Denied {
            registry,
            what,
            reason: reason.to_owned(),
        }
    }

    fn missing(&self, what: &str) -> String {
        format!("{what} of {}", self.name)
    }

    /// What the registry says about an error, made harmless for a terminal.
    fn reason(&self, response: Response<Body>) -> String {
        let status = response.status();
        let bytes = self
            .client
            .small(response, MAX_REASON, &self.name.host, "an error")
            .unwrap_or_default();
        let told = serde_json::from_slice::<ErrorAnswer>(&bytes).ok();
        let first = told.and_then(|answer| answer.errors.into_iter().next());
        let text = match first {
            Some(OneError { code, message }) if message.is_empty() => code,
            Some(OneError { message, .. }) => message,
            None => status
                .canonical_reason()
                .unwrap_or("an error without a name")
                .to_owned(),
        };
        text.chars().filter(|c| !c.is_control()).take(200).collect()
    }

    fn document(&self, path: String, limit: u64, what: &str) -> Result<Vec<u8>, PullError> {
        let response = self.get(&Request {
            path,
            accept: ACCEPT,
            range: None,
            what,
        })?;
        self.client.small(response, limit, &self.name.host, what)
    }
}

impl Credentials {
    fn basic(&self) -> String {
        let text = format!("{}:{}", self.username, self.password);
        format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
    }
}

impl Documents for Registry {
    fn image(&self) -> String {
        self.name.to_string()
    }

    fn top(&self, limits: &Limits) -> Result<Vec<u8>, PullError> {
        let by_tag = self.name.tag.clone().unwrap_or_default();
        let by = self.name.digest.map_or(by_tag, |digest| digest.to_string());
        let bytes = self.document(format!("/manifests/{by}"), limits.manifest_bytes, "the manifest")?;
        let found = Digest::of(&bytes);
        match self.name.digest {
            Some(pinned) if pinned != found => {
                let reason = format!("its digest is {found}");
                Err(PullError::Mismatch {
                    what: format!("the manifest {pinned}"),
                    reason,
                })
            }
            _ => Ok(bytes),
        }
    }

    fn named<'a>(&self, _listed: &'a [Listed]) -> Result<Option<&'a Listed>, PullError> {
        Ok(None)
    }

    fn manifest(&self, descriptor: &Descriptor) -> Result<Vec<u8>, PullError> {
        self.document(
            format!("/manifests/{}", descriptor.digest),
            descriptor.size,
            "the manifest",
        )
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, PullError> {
        self.document(
            format!("/blobs/{}", descriptor.digest),
            descriptor.size,
            "the configuration",
        )
    }
}

impl Source for Registry {
    fn find(&self, wanted: &Platform, limits: &Limits) -> Result<Found, PullError> {
        find_in(self, wanted, limits)
    }

    fn open(&self, layer: &Layer, from: u64) -> Result<Opened, PullError> {
        let Some(digest) = layer.digest else {
            return Err(PullError::NotFound {
                place: self.name.host.clone(),
                what: "a layer without a digest".to_owned(),
            });
        };
        let range = (from > 0).then(|| format!("bytes={from}-"));
        let response = self.get(&Request {
            path: format!("/blobs/{digest}"),
            accept: "*/*",
            range,
            what: "a layer",
        })?;
        let from = match response.status().as_u16() {
            206 if begins_at(&response) == Some(from) => from,
            200 => 0,
            // It has other ideas of what there is: once more, from the start.
            _ if from > 0 => return self.open(layer, 0),
            status => {
                return Err(unreachable(
                    &self.name.host,
                    "a layer",
                    format!("the answer is {status}"),
                ));
            }
        };
        Ok(Opened {
            from,
            reader: Box::new(response.into_body().into_reader()),
        })
    }

    fn is_remote(&self) -> bool {
        true
    }
}

/// Where a partial answer begins: `Content-Range: bytes FROM-TO/ALL`.
fn begins_at(response: &Response<Body>) -> Option<u64> {
    let range = header(response, "content-range")?.strip_prefix("bytes ")?;
    range.split('-').next()?.trim().parse().ok()
}

fn header<'a>(response: &'a Response<Body>, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte);
    let byte = |byte: u8| {
        if plain(byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    };
    text.bytes().map(byte).collect()
}
