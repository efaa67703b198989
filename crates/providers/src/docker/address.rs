//! Where the engine listens, and how it is found when nobody says.

use super::error::EngineError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The port of an engine without TLS, when an address names none.
const PLAIN_PORT: u16 = 2375;

/// Where an engine listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A unix socket of this machine.
    Unix(PathBuf),
    /// `host:port`, HTTP without TLS.
    Tcp(String),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

impl Address {
    /// Reads `unix:///path`, an absolute path, `tcp://host[:port]` or `http://host[:port]`.
    pub fn parse(text: &str) -> Result<Self, EngineError> {
        let bad = |reason: &str| EngineError::Address {
            given: text.to_owned(),
            reason: reason.to_owned(),
        };
        let (scheme, rest) = text.split_once("://").unwrap_or(("unix", text));
        match scheme {
            "unix" if rest.starts_with('/') && !rest.contains('\0') => Ok(Self::Unix(rest.into())),
            "unix" => Err(bad("a socket's path has to be absolute")),
            "tcp" | "http" => Ok(Self::Tcp(host_and_port(rest.trim_end_matches('/')).map_err(bad)?)),
            "https" | "ssh" => Err(bad(
                "only unix sockets and plain HTTP are spoken here; forward the socket",
            )),
            _ => Err(bad("the scheme is not known")),
        }
    }

    /// Whether the engine may be on another machine, so that it cannot mount what is here.
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::Tcp(_))
    }
}

fn host_and_port(text: &str) -> Result<String, &'static str> {
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    if text.is_empty() || !text.chars().all(is_host) {
        return Err("the host is missing or has characters that no host has");
    }
    // In brackets a colon belongs to the address.
    let after_host = text.rfind(']').map_or(text, |at| &text[at + 1..]);
    match after_host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(text.to_owned()),
        Some(_) => Err("the port is not a number from 1 to 65535"),
        None => Ok(format!("{text}:{PLAIN_PORT}")),
    }
}

/// Finds the engine of this machine: `DOCKER_HOST`, else the first socket that exists of the usual ones
/// of Docker and Podman, else where Docker's would be.
pub fn discover() -> Result<Address, EngineError> {
    discover_in(|name| std::env::var_os(name), |path| path.exists())
}

fn discover_in(
    variable: impl Fn(&str) -> Option<OsString>,
    exists: impl Fn(&Path) -> bool,
) -> Result<Address, EngineError> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty());
    if let Some(host) = given("DOCKER_HOST") {
        let address = Address::parse(&host.to_string_lossy())?;
        // Asked for TLS, nothing is sent in the clear.
        if address.is_remote() && given("DOCKER_TLS_VERIFY").is_some() {
            let reason =
                "DOCKER_TLS_VERIFY is set, and TLS is not spoken here; forward the socket".to_owned();
            return Err(EngineError::Address {
                given: address.to_string(),
                reason,
            });
        }
        return Ok(address);
    }
    if let Some(context) = given("DOCKER_CONTEXT").filter(|context| context != "default") {
        let reason = "contexts are not read here; set DOCKER_HOST to the engine's address".to_owned();
        return Err(EngineError::Address {
            given: context.to_string_lossy().into_owned(),
            reason,
        });
    }
    let runtime = given("XDG_RUNTIME_DIR").map(PathBuf::from);
    let sockets = usual_sockets(runtime.as_deref());
    let found = sockets.iter().find(|path| exists(path)).unwrap_or(&sockets[0]);
    Ok(Address::Unix(found.clone()))
}

/// The usual sockets of engines, the one that is looked at first in front.
pub fn usual_sockets(runtime: Option<&Path>) -> Vec<PathBuf> {
    let mut sockets = vec![PathBuf::from("/var/run/docker.sock")];
    sockets.extend(runtime.map(|dir| dir.join("docker.sock")));
    sockets.extend(runtime.map(|dir| dir.join("podman/podman.sock")));
    sockets.push("/run/podman/podman.sock".into());
    sockets
}

/// Whether a program of an engine is on this machine, which tells "not installed" from "not started".
pub(super) fn engine_is_installed() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // The daemons are where a user's PATH often does not look.
    let usual = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"].map(PathBuf::from);
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(usual).collect();
    ["dockerd", "podman"]
        .iter()
        .any(|program| folders.iter().any(|folder| folder.join(program).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let unix = |path: &str| Address::Unix(path.into());
        assert_eq!(Address::parse("unix:///run/a.sock").unwrap(), unix("/run/a.sock"));
        assert_eq!(Address::parse("/run/a.sock").unwrap(), unix("/run/a.sock"));
        assert_eq!(
            Address::parse("tcp://h").unwrap(),
            Address::Tcp("h:2375".to_owned())
        );
        assert_eq!(
            Address::parse("http://[::1]:9/").unwrap(),
            Address::Tcp("[::1]:9".to_owned())
        );
        for bad in [
            "",
            "a.sock",
            "unix://a",
            "tcp://",
            "tcp://h:x",
            "tcp://h/p",
            "ssh://h",
            "https://h",
            "x://h",
        ] {
            assert!(
                matches!(Address::parse(bad), Err(EngineError::Address { .. })),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_environment_comes_first_and_then_the_first_socket_that_exists() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                pairs
                    .iter()
                    .find(|(known, _)| *known == name)
                    .map(|(_, value)| value.into())
            }
        };
        let found = |pairs, exists: &str| discover_in(env(pairs), |path| path == Path::new(exists));
        assert_eq!(
            found(&[("DOCKER_HOST", "tcp://h:1")], "").unwrap(),
            Address::Tcp("h:1".to_owned())
        );
        let podman = "/run/user/7/podman/podman.sock";
        let runtime = &[("XDG_RUNTIME_DIR", "/run/user/7"), ("DOCKER_HOST", "")];
        assert_eq!(found(runtime, podman).unwrap(), Address::Unix(podman.into()));
        assert_eq!(
            found(runtime, "").unwrap(),
            Address::Unix("/var/run/docker.sock".into())
        );
    }

    #[test]
    fn what_was_asked_to_be_encrypted_is_not_sent_in_the_clear() {
        let env = |name: &str| match name {
            "DOCKER_HOST" => Some("tcp://h:1".into()),
            "DOCKER_TLS_VERIFY" => Some("1".into()),
            _ => None,
        };
        assert!(discover_in(env, |_| true).is_err());
        let context = |name: &str| (name == "DOCKER_CONTEXT").then(|| "other".into());
        assert!(discover_in(context, |_| true).is_err());
    }
}
