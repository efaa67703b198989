//! One plain request and its answer.
//!
//! The request is written anew by hyper from its parts, on a connection of its own; the answer is read by hyper and
//! written anew here. Neither side's bytes reach the other as they came. Nothing follows a redirect: it goes to the
//! place like any answer, and what the place then asks for is judged like any request.

use crate::activity::Activity;
use crate::answer;
use crate::dial::Io;
use crate::event::Reason;
use crate::head::{Framing, Head};
use crate::host::Host;
use crate::inbound::Inbound;
use crate::limits::Limits;
use crate::reply::{Reply, remove_hop_by_hop};
use crate::target::Target;
use crate::tunnel::write;
use crate::upload::{self, PlaceBody};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{self, HeaderValue};
use hyper::{StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncRead, AsyncWrite, WriteHalf};

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
    /// It ends, and the place may still be sending.
    Linger,
}

impl<S: AsyncRead + AsyncWrite> Exchange<'_, S> {
    /// Carries it out. An error means that nothing of an answer was written yet.
    pub(crate) async fn run(self, request: Request<'_>, stream: Box<dyn Io>) -> Result<After, Reason> {
        let activity = Activity::new();
        let (pieces, body) = upload::channel(self.framing);
        let reply = Reply::to(&request.head);
        if request.head.headers.contains_key(header::EXPECT) && self.framing != Framing::Length(0) {
            // Judged it is; whether the host wants the body, its answer will say.
            let said = write(self.outbound, answer::CONTINUE, &activity);
            said.await.map_err(|_| Reason::FirstBytesMissing)?;
        }
        let outgoing = outgoing(request, body)?;
        let mut builder = http1::Builder::new();
        builder.max_buf_size(self.limits.head_bytes.max(LEAST_BUFFER));
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(|_| Reason::Unreachable)?;
        let begun = AtomicBool::new(false);
        let pump = upload::pump(self.inbound, self.framing, pieces, &activity);
        let answered = answered(sender, outgoing, reply, self.outbound, &begun, &activity);
        let ceased = activity.ceased(self.limits.idle);
        let (outcome, pumped) = drive(answered, pump, connection, ceased).await;
        match outcome {
            // What is left of a body must not be read as a request.
            Ok(_) if !pumped && self.framing != Framing::Length(0) => Ok(After::Linger),
            Ok(after) => Ok(after),
            Err(_) if begun.load(Ordering::Relaxed) => Ok(After::Close),
            Err(reason) => Err(reason),
        }
    }
}

/// Sends the request and writes the answer. `begun` is set before the first byte of it.
async fn answered<W: AsyncWrite + Unpin>(
    mut sender: SendRequest<PlaceBody>,
    request: hyper::Request<PlaceBody>,
    reply: Reply,
    to: &mut W,
    begun: &AtomicBool,
    activity: &Activity,
) -> Result<After, Reason> {
    let response = sender.send_request(request).await.map_err(|error| {
        tracing::debug!(%error, "a host gave no answer");
        Reason::AnswerInvalid
    })?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Err(Reason::AnswerInvalid);
    }
    begun.store(true, Ordering::Relaxed);
    // A broken answer can only be seen by its end.
    Ok(reply.write(response, to, activity).await.unwrap_or(After::Close))
}

/// Moves the answer, the body of the request and the connection to the host along together, until the answer is
/// there, the body is damaged, or nothing moved for too long. Also says whether the body was whole by then.
async fn drive(
    answered: impl Future<Output = Result<After, Reason>>,
    pump: impl Future<Output = Result<(), Reason>>,
    connection: impl Future,
    ceased: impl Future<Output = ()>,
) -> (Result<After, Reason>, bool) {
    let (mut answered, mut pump) = (pin!(answered), pin!(pump));
    let (mut connection, mut ceased) = (pin!(connection), pin!(ceased));
    let (mut connected, mut pumped) = (true, false);
    loop {
        tokio::select! {
            outcome = &mut answered => return (outcome, pumped),
            _ = &mut connection, if connected => connected = false,
            outcome = &mut pump, if !pumped => match outcome {
                Ok(()) => pumped = true,
                Err(reason) => return (Err(reason), false),
            },
            () = &mut ceased => return (Err(Reason::AnswerInvalid), pumped),
        }
    }
}

/// The request as the host gets it.
fn outgoing(request: Request<'_>, body: PlaceBody) -> Result<hyper::Request<PlaceBody>, Reason> {
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
    let path: Result<Uri, _> = target.path.parse();
    *outgoing.uri_mut() = path.map_err(|_| Reason::RequestInvalid("the target is no path"))?;
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}
