//! One connection of a place.
//!
//! ```text
//!            ┌────────────── kept alive ──────────────┐
//!            ▼                                        │
//!  Head ─► judged ─► plain: connected ─► exchanged ───┘
//!            │  │
//!            │  └─► CONNECT: connected ─► 200 ─► first bytes ─► TLS for this host ─► bytes both ways ─► end
//!            │                                        ├─► plain HTTP ─► Head, bound to this host
//!            └─► refused: said, recorded, ended ◄─────┘
//! ```

use crate::answer;
use crate::event::Reason;
use crate::exchange::{self, After, Exchange};
use crate::gate::{Denial, Gate};
use crate::head::{Framing, Head, HeadError};
use crate::host::Host;
use crate::inbound::Inbound;
use crate::target::{self, Target};
use crate::tunnel::{self, First};
use hyper::Method;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, WriteHalf, split};
use tokio::time::timeout;

/// Plain requests inside a tunnel are bound to its host and port.
type Bound = Option<(Host, u16)>;

struct Connection<S> {
    gate: Arc<Gate>,
    inbound: Inbound<S>,
    outbound: WriteHalf<S>,
}

/// What follows a request.
enum Next {
    Head(Bound),
    End,
}

/// Serves a connection until its end.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite>(gate: Arc<Gate>, stream: S) {
    let (read, write) = split(stream);
    let mut connection = Connection {
        gate,
        inbound: Inbound::new(read),
        outbound: write,
    };
    let mut bound = None;
    while let Next::Head(next) = connection.step(bound).await {
        bound = next;
    }
}

impl<S: AsyncRead + AsyncWrite> Connection<S> {
    async fn step(&mut self, bound: Bound) -> Next {
        let head = match self.inbound.head(&self.gate.limits).await {
            Ok(Some(head)) => head,
            Ok(None) => return Next::End,
            Err(reason) => return self.refuse(None, reason.into(), true).await,
        };
        let with_body = head.method != Method::HEAD;
        let (target, framing) = match asked(&head, &bound) {
            Ok(asked) => asked,
            Err((target, reason)) => return self.refuse(target.as_ref(), reason.into(), with_body).await,
        };
        let done = match head.method {
            Method::CONNECT => self.connect(&target).await,
            _ => match self.plain(head, &target, framing).await {
                Ok(After::Next) => Ok(Next::Head(bound)),
                Ok(After::Close) => Ok(Next::End),
                Ok(After::Linger) => Ok(self.end(b"").await),
                Err(denial) => Err(denial),
            },
        };
        match done {
            Ok(next) => next,
            Err(denial) => self.refuse(Some(&target), denial, with_body).await,
        }
    }

    /// A plain request.
    async fn plain(&mut self, head: Head, target: &Target, framing: Framing) -> Result<After, Denial> {
        let (host, addresses) = self.gate.admit(target).await?;
        let way = self.gate.dial(&addresses).await?;
        self.gate.record(Some(target), Ok(way.address)).await?;
        let exchange = Exchange {
            limits: self.gate.limits,
            inbound: &mut self.inbound,
            outbound: &mut self.outbound,
            framing,
        };
        let request = exchange::Request {
            head,
            host: &host,
            target,
        };
        let after = exchange.run(request, way.stream).await;
        after.map_err(|reason| Denial {
            reason,
            address: Some(way.address),
        })
    }

    /// `CONNECT`. What is refused after the 200 is said in the language of what came.
    async fn connect(&mut self, target: &Target) -> Result<Next, Denial> {
        let (host, addresses) = self.gate.admit(target).await?;
        // Plain requests make their own connections, each judged anew.
        let way = match target.port {
            80 => None,
            _ => Some(self.gate.dial(&addresses).await?),
        };
        if !self.say(answer::ESTABLISHED).await {
            return Ok(Next::End);
        }
        let first = tunnel::first(&mut self.inbound, &host, target.port, &self.gate.limits).await;
        match (first, way) {
            (Ok(First::Plain), _) => Ok(Next::Head(Some((host, target.port)))),
            (Ok(First::Tls), Some(way)) => {
                if let Err(reason) = self.gate.record(Some(target), Ok(way.address)).await {
                    return Ok(self.refuse_tls(target, reason).await);
                }
                let idle = self.gate.limits.idle;
                tunnel::carry(&mut self.inbound, &mut self.outbound, way.stream, idle).await;
                Ok(Next::End)
            }
            (Ok(First::Tls), None) => Ok(self.refuse_tls(target, Reason::ProtocolRefused).await),
            (Err(reason), _) => Ok(self.refuse_tls(target, reason).await),
        }
    }

    async fn refuse(&mut self, target: Option<&Target>, denial: Denial, with_body: bool) -> Next {
        // What is refused is refused, also when nobody hears of it.
        let _ = self.gate.record(target, Err(&denial)).await;
        let text = answer::refusal(&denial.reason, with_body);
        self.end(&text).await
    }

    async fn refuse_tls(&mut self, target: &Target, reason: Reason) -> Next {
        let denial = Denial::from(reason);
        let _ = self.gate.record(Some(target), Err(&denial)).await;
        self.end(answer::TLS_ALERT).await
    }

    async fn end(&mut self, last: &[u8]) -> Next {
        if self.say(last).await && self.outbound.shutdown().await.is_ok() {
            self.inbound.linger().await;
        }
        Next::End
    }

    /// Whether the place took it in time.
    async fn say(&mut self, bytes: &[u8]) -> bool {
        let writing = async {
            self.outbound.write_all(bytes).await?;
            self.outbound.flush().await
        };
        matches!(timeout(self.gate.limits.first_bytes, writing).await, Ok(Ok(())))
    }
}

/// What the head asks for, with everything that can be judged without the policy.
fn asked(head: &Head, bound: &Bound) -> Result<(Target, Framing), (Option<Target>, Reason)> {
    let target = match bound {
        Some((host, port)) => target::of_tunnel(head, host, *port),
        None => target::of_proxy(head),
    };
    let target = target.map_err(|reason| (None, reason))?;
    let framing = target::check_host(head, &target).and_then(|()| {
        let framing = head.framing().map_err(|error| match error {
            HeadError::TooLarge => Reason::RequestTooLarge,
            HeadError::Malformed(what) => Reason::RequestInvalid(what),
        })?;
        match (&head.method, framing) {
            (&Method::CONNECT, Framing::Length(0)) => Ok(framing),
            (&Method::CONNECT, _) => Err(Reason::RequestInvalid("CONNECT has no body")),
            _ if target.port == 443 => Err(Reason::SchemeUnsupported),
            _ => Ok(framing),
        }
    });
    match framing {
        Ok(framing) => Ok((target, framing)),
        Err(reason) => Err((Some(target), reason)),
    }
}
