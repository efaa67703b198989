//! The answer of a host, written anew for the place.

use crate::activity::Activity;
use crate::exchange::After;
use crate::head::Head;
use crate::tunnel::write;
use hyper::body::{Body, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::response::Parts;
use hyper::{Method, Response, StatusCode, Version};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use tokio::io::AsyncWrite;

/// What concerns one connection alone and never goes on (RFC 9110 section 7.6.1), with what older clients send.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Takes out what concerns one connection alone, and what `Connection` names.
pub(crate) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::try_from(name.trim()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// How an answer has to be written.
pub(crate) struct Reply {
    bodiless: bool,
    chunks: bool,
    keep: bool,
}

impl Reply {
    pub(crate) fn to(head: &Head) -> Self {
        let closes = |value: &HeaderValue| value.to_str().is_ok_and(|text| has_token(text, "close"));
        let modern = head.version == Version::HTTP_11;
        let named = [header::CONNECTION, HeaderName::from_static("proxy-connection")];
        let asked = named
            .iter()
            .any(|name| head.headers.get_all(name).iter().any(closes));
        Self {
            bodiless: head.method == Method::HEAD,
            chunks: modern,
            keep: modern && !asked,
        }
    }

    pub(crate) async fn write<W: AsyncWrite + Unpin>(
        self,
        response: Response<Incoming>,
        to: &mut W,
        activity: &Activity,
    ) -> io::Result<After> {
        let (mut parts, mut body) = response.into_parts();
        let form = self.form(parts.status, body.size_hint().exact());
        form.put_into(&mut parts);
        write(to, &head_text(&parts), activity).await?;
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let Ok(bytes) = frame.map_err(io::Error::other)?.into_data() else {
                continue;
            };
            activity.touch();
            if form.chunked && !bytes.is_empty() {
                let size = format!("{:x}\r\n", bytes.len());
                write(to, &[size.as_bytes(), &bytes, b"\r\n"].concat(), activity).await?;
            } else {
                write(to, &bytes, activity).await?;
            }
        }
        if form.chunked {
            write(to, b"0\r\n\r\n", activity).await?;
        }
        Ok(if form.keep { After::Next } else { After::Close })
    }

    /// The form of one answer. `length` is that of its body, where it is known.
    fn form(&self, status: StatusCode, length: Option<u64>) -> Form {
        let never = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let bodiless = self.bodiless || never;
        let length = length.filter(|_| !bodiless);
        let chunked = !bodiless && length.is_none() && self.chunks;
        Form {
            bodiless,
            length,
            chunked,
            keep: self.keep && (bodiless || length.is_some() || chunked),
        }
    }
}

/// How the end of one answer is known.
struct Form {
    bodiless: bool,
    length: Option<u64>,
    chunked: bool,
    keep: bool,
}

impl Form {
    fn put_into(&self, parts: &mut Parts) {
        remove_hop_by_hop(&mut parts.headers);
        // Without a body the length is that of the body that another request would have.
        if !self.bodiless || parts.status == StatusCode::NO_CONTENT {
            parts.headers.remove(header::CONTENT_LENGTH);
        }
        if let Some(length) = self.length {
            parts.headers.insert(header::CONTENT_LENGTH, length.into());
        }
        let mut set = |name, value| parts.headers.insert(name, HeaderValue::from_static(value));
        if self.chunked {
            set(header::TRANSFER_ENCODING, "chunked");
        }
        if !self.keep {
            set(header::CONNECTION, "close");
        }
    }
}

/// The head of an answer. hyper's types hold no byte that could end a line.
fn head_text(parts: &Parts) -> Vec<u8> {
    let status = parts.status;
    let reason = status.canonical_reason().unwrap_or_default();
    let mut text = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    for (name, value) in &parts.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            text.extend_from_slice(part);
        }
    }
    text.extend_from_slice(b"\r\n");
    text
}

fn has_token(list: &str, token: &str) -> bool {
    list.split(',')
        .any(|part| part.trim().eq_ignore_ascii_case(token))
}
