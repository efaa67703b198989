//! What a request asks for: host, port and path.

use crate::event::Reason;
use crate::head::Head;
use crate::host::{Host, port, split_authority};
use hyper::Method;
use hyper::header::HOST;

/// A target as the place wrote it, not judged yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// What goes on to the host: path and query. Empty for `CONNECT`.
    pub(crate) path: String,
}

const NO_TARGET: Reason = Reason::RequestInvalid("a proxy needs CONNECT host:port or http://host/path");

/// The target of a request to the proxy itself.
pub(crate) fn of_proxy(head: &Head) -> Result<Target, Reason> {
    if head.method == Method::CONNECT {
        return match split_authority(&head.target) {
            (host, Some(digits)) => target(host, digits, String::new()),
            (_, None) => Err(Reason::RequestInvalid("CONNECT needs host:port")),
        };
    }
    let Some((scheme, rest)) = head.target.split_once("://") else {
        return Err(NO_TARGET);
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(Reason::SchemeUnsupported);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = match path.bytes().next() {
        None => "/".to_owned(),
        Some(b'/') => path.to_owned(),
        Some(_) => format!("/{path}"),
    };
    let (host, digits) = split_authority(authority);
    target(host, digits.unwrap_or("80"), path)
}

/// The target of a plain request inside a tunnel: the host is that of the tunnel.
pub(crate) fn of_tunnel(head: &Head, host: &Host, port: u16) -> Result<Target, Reason> {
    if head.method == Method::CONNECT || !head.target.starts_with('/') {
        return Err(Reason::RequestInvalid("a tunnel needs a path"));
    }
    target(host.as_str(), &port.to_string(), head.target.clone())
}

fn target(host: &str, digits: &str, path: String) -> Result<Target, Reason> {
    if host.contains('@') {
        return Err(Reason::RequestInvalid("the target has a user"));
    }
    if path.contains('#') {
        return Err(Reason::RequestInvalid("the target has a fragment"));
    }
    let port = port(digits).ok_or(Reason::RequestInvalid("the port is no number"))?;
    Ok(Target {
        host: host.to_owned(),
        port,
        path,
    })
}

/// The `Host` has to say the same as the target. Only `CONNECT` may leave it out, as clients of HTTP/1.0 do, and
/// only there the port may be missing although it is not 80.
pub(crate) fn check_host(head: &Head, target: &Target) -> Result<(), Reason> {
    let connect = head.method == Method::CONNECT;
    let Some(value) = head.headers.get(HOST) else {
        return match connect {
            true => Ok(()),
            false => Err(Reason::RequestInvalid("there is no Host")),
        };
    };
    let text = value.to_str().map_err(|_| Reason::HostMismatch)?;
    let (host, digits) = split_authority(text);
    let port_fits = match digits {
        Some(digits) => port(digits) == Some(target.port),
        None => connect || target.port == 80,
    };
    if host.eq_ignore_ascii_case(&target.host) && port_fits {
        Ok(())
    } else {
        Err(Reason::HostMismatch)
    }
}
