//! One plain request and its answer.
//!
//! The request is written anew by hyper from its parts, on a connection of its own; the answer is read by hyper and
//! written anew here. Neither side's bytes reach the other as they came. Nothing follows a redirect: it goes to the
//! place like any answer, and what the place then asks for is judged like any request.

use crate::activity::Activity;
use crate::answer;
use crate::body::{Decoder, Piece};
use crate::dial::Io;
use crate::event::Reason;
use crate::head::{Framing, Head};
use crate::host::Host;
use crate::inbound::Inbound;
use crate::limits::Limits;
use crate::target::Target;
use crate::tunnel::write;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, WriteHalf};
use tokio::sync::mpsc;

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

/// The smallest buffer that hyper takes, in bytes.
const LEAST_BUFFER: usize = 8 * 1024;

/// A request that was let out.
pub(crate) struct Request<'a> {
    pub(crate) head: Head,
    pub(crate) host: &'a Host,
    pub(crate) target: &'a Target,
}

/// Both sides of the place's connection, and how long the body is that comes next.
pub(crate) struct Exchange<'a, S> {
    pub(crate) limits: Limits,
    pub(crate) inbound: &'a mut Inbound<S>,
    pub(crate) outbound: &'a mut WriteHalf<S>,
    pub(crate) framing: Framing,
}

/// What becomes of the place's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    Next,
    Close,
}

impl<S: AsyncRead + AsyncWrite> Exchange<'_, S> {
    /// Carries it out. An error means that nothing of an answer was written yet.
    pub(crate) async fn run(self, request: Request<'_>, stream: Box<dyn Io>) -> Result<After, Reason> {
        let activity = Activity::new();
        let begun = AtomicBool::new(false);
        let (pieces, body) = body(self.framing);
        let reply = Reply::to(&request.head);
        if request.head.headers.contains_key(header::EXPECT) && self.framing != Framing::Length(0) {
            // Judged it is; whether the host wants the body, its answer will say.
            let said = write(self.outbound, answer::CONTINUE, &activity);
            said.await.map_err(|_| Reason::FirstBytesMissing)?;
        }
        let outgoing = outgoing(request, body)?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(self.limits.head_bytes.max(LEAST_BUFFER));
        let (mut sender, connection) = builder
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| Reason::Unreachable)?;
        let mut connection = pin!(connection);
        let mut connected = true;
        let mut pump = pin!(pump(self.inbound, self.framing, pieces, &activity));
        let mut pumped = false;
        let mut answer = pin!(async {
            let response = sender.send_request(outgoing).await.map_err(|error| {
                tracing::debug!(%error, "a host gave no answer");
                Reason::AnswerInvalid
            })?;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                return Err(Reason::AnswerInvalid);
            }
            begun.store(true, Ordering::Relaxed);
            // A broken answer can only be seen by its end.
            Ok(reply
                .write(response, self.outbound, &activity)
                .await
                .unwrap_or(After::Close))
        });
        let outcome = loop {
            tokio::select! {
                outcome = &mut answer => break outcome,
                _ = &mut connection, if connected => connected = false,
                outcome = &mut pump, if !pumped => match outcome {
                    Ok(()) => pumped = true,
                    Err(reason) => break Err(reason),
                },
                () = activity.ceased(self.limits.idle) => break Err(Reason::AnswerInvalid),
            }
        };
        match outcome {
            // What is left of a body must not be read as a request.
            Ok(After::Next) if pumped || self.framing == Framing::Length(0) => Ok(After::Next),
            Ok(_) => Ok(After::Close),
            Err(_) if begun.load(Ordering::Relaxed) => Ok(After::Close),
            Err(reason) => Err(reason),
        }
    }
}

/// The request as the host gets it.
fn outgoing(request: Request<'_>, body: PlaceBody) -> Result<hyper::Request<PlaceBody>, Reason> {
    let invalid = |_| Reason::RequestInvalid("the target is no path");
    let Request { head, host, target } = request;
    let mut headers = head.headers;
    remove_hop_by_hop(&mut headers);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
    let authority = match target.port {
        80 => host.to_string(),
        port => format!("{host}:{port}"),
    };
    let authority = HeaderValue::try_from(authority).map_err(|_| Reason::HostMismatch)?;
    headers.insert(header::HOST, authority);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    let mut outgoing = hyper::Request::new(body);
    *outgoing.method_mut() = head.method;
    *outgoing.uri_mut() = target.path.parse().map_err(invalid)?;
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}

/// Takes out what concerns one connection alone, and what `Connection` names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
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

/// Reads the body from the place and hands it to hyper, a piece at a time: what the host does not take is not read.
async fn pump<S: AsyncRead>(
    inbound: &mut Inbound<S>,
    framing: Framing,
    pieces: mpsc::Sender<Option<Bytes>>,
    activity: &Activity,
) -> Result<(), Reason> {
    let mut decoder = Decoder::new(framing);
    loop {
        let piece = decoder.next(&mut inbound.buffer);
        match piece.map_err(|_| Reason::RequestInvalid("a chunk of the body is damaged"))? {
            Piece::More => match inbound.fill_and_touch(activity).await {
                Ok(0) | Err(_) => return Err(Reason::RequestInvalid("the body ends in the middle")),
                Ok(_) => {}
            },
            Piece::Data(bytes) => {
                // Nobody takes it any more: the host answered without it. It is read on, so that the answer arrives.
                let _ = pieces.send(Some(bytes)).await;
                activity.touch();
            }
            Piece::End => {
                let _ = pieces.send(None).await;
                return Ok(());
            }
        }
    }
}

fn body(framing: Framing) -> (mpsc::Sender<Option<Bytes>>, PlaceBody) {
    let (sender, pieces) = mpsc::channel(1);
    let length = match framing {
        Framing::Length(length) => Some(length),
        Framing::Chunked => None,
    };
    let ended = length == Some(0);
    (
        sender,
        PlaceBody {
            length,
            pieces,
            ended,
        },
    )
}

/// The body of a request, as hyper takes it. `None` is its end; a channel that closes before is a broken body.
struct PlaceBody {
    length: Option<u64>,
    pieces: mpsc::Receiver<Option<Bytes>>,
    ended: bool,
}

impl Body for PlaceBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(context).map(|piece| match piece {
            Some(Some(bytes)) => {
                self.length = self
                    .length
                    .map(|length| length.saturating_sub(bytes.len() as u64));
                Some(Ok(Frame::data(bytes)))
            }
            Some(None) => {
                self.ended = true;
                None
            }
            None => Some(Err(io::ErrorKind::UnexpectedEof.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map(SizeHint::with_exact).unwrap_or_default()
    }
}

/// How an answer has to be written.
struct Reply {
    bodiless: bool,
    chunks: bool,
    keep: bool,
}

impl Reply {
    fn to(head: &Head) -> Self {
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

    async fn write<W: AsyncWrite + Unpin>(
        self,
        response: Response<Incoming>,
        to: &mut W,
        activity: &Activity,
    ) -> io::Result<After> {
        let (parts, mut body) = response.into_parts();
        let bodiless =
            self.bodiless || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let length = body.size_hint().exact().filter(|_| !bodiless);
        let chunked = !bodiless && length.is_none() && self.chunks;
        let keep = self.keep && (bodiless || length.is_some() || chunked);
        let mut headers = parts.headers;
        remove_hop_by_hop(&mut headers);
        if !bodiless || parts.status == StatusCode::NO_CONTENT {
            headers.remove(header::CONTENT_LENGTH);
        }
        if let Some(length) = length {
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        if chunked {
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if !keep {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        write(to, &head_text(parts.status, &headers), activity).await?;
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let Ok(bytes) = frame.map_err(io::Error::other)?.into_data() else {
                continue;
            };
            activity.touch();
            if chunked && !bytes.is_empty() {
                let size = format!("{:x}\r\n", bytes.len());
                write(to, &[size.as_bytes(), &bytes, b"\r\n"].concat(), activity).await?;
            } else {
                write(to, &bytes, activity).await?;
            }
        }
        if chunked {
            write(to, b"0\r\n\r\n", activity).await?;
        }
        Ok(if keep { After::Next } else { After::Close })
    }
}

/// The head of an answer. hyper's types hold no byte that could end a line.
fn head_text(status: StatusCode, headers: &HeaderMap) -> Vec<u8> {
    let reason = status.canonical_reason().unwrap_or_default();
    let mut text = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    for (name, value) in headers {
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
