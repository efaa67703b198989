//! What goes through after `CONNECT`: first bytes that are judged, then bytes both ways.

use crate::activity::Activity;
use crate::dial::Io;
use crate::event::Reason;
use crate::hello::{self, HelloError, Step};
use crate::host::Host;
use crate::inbound::{Inbound, READ};
use crate::limits::Limits;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, WriteHalf, split};
use tokio::time::timeout;

/// What the first bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    /// A greeting of TLS for the host.
    Tls,
    /// Probably a plain request, which is judged as one.
    Plain,
}

/// Reads until the first bytes can be judged. They stay in the buffer.
pub(crate) async fn first<S: AsyncRead>(
    inbound: &mut Inbound<S>,
    host: &Host,
    port: u16,
    limits: &Limits,
) -> Result<First, Reason> {
    let reading = async {
        loop {
            if let Some(first) = judge(&inbound.buffer, host, port)? {
                return Ok(first);
            }
            match inbound.fill().await {
                Ok(0) | Err(_) => return Err(Reason::FirstBytesMissing),
                Ok(_) => {}
            }
        }
    };
    timeout(limits.first_bytes, reading)
        .await
        .unwrap_or(Err(Reason::FirstBytesMissing))
}

/// Port 443 carries TLS and port 80 plain HTTP; any other port carries what it begins with. `None`: more is needed.
fn judge(bytes: &[u8], host: &Host, port: u16) -> Result<Option<First>, Reason> {
    match (bytes.first(), port) {
        (None, _) => Ok(None),
        // A method. What only looks like one fails as a request.
        (Some(b'A'..=b'Z'), port) if port != 443 => Ok(Some(First::Plain)),
        (Some(_), 80) => Err(Reason::ProtocolRefused),
        (Some(_), _) => greeting(bytes, host),
    }
}

fn greeting(bytes: &[u8], host: &Host) -> Result<Option<First>, Reason> {
    let hello = match hello::parse(bytes) {
        Ok(Step::More) => return Ok(None),
        Ok(Step::Whole(hello)) => hello,
        Err(HelloError::NotTls) => return Err(Reason::ProtocolRefused),
        Err(HelloError::Fragmented) => return Err(Reason::TlsInvalid("it is spread over several records")),
        Err(HelloError::Malformed(what)) => return Err(Reason::TlsInvalid(what)),
    };
    let Some(name) = hello.server_name else {
        return Err(Reason::SniMissing);
    };
    match Host::parse(&name) {
        Ok(name) if name == *host => Ok(Some(First::Tls)),
        _ if hello.encrypted => Err(Reason::SniHidden),
        _ => Err(Reason::SniMismatch),
    }
}

/// Copies both ways until both sides have ended, one of them breaks, or nothing moved for too long. What one side
/// does not take is not read from the other.
pub(crate) async fn carry<S: AsyncRead + AsyncWrite>(
    inbound: &mut Inbound<S>,
    outbound: &mut WriteHalf<S>,
    host: Box<dyn Io>,
    idle: Duration,
) {
    let activity = Activity::new();
    let (mut from_host, mut to_host) = split(host);
    let (from_place, buffered) = inbound.parts();
    let out = async {
        write(&mut to_host, buffered, &activity).await?;
        buffered.clear();
        copy(from_place, &mut to_host, &activity).await
    };
    let back = copy(&mut from_host, outbound, &activity);
    tokio::select! {
        ended = async { tokio::try_join!(out, back) } => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a tunnel broke off");
            }
        }
        () = activity.ceased(idle) => tracing::debug!("a tunnel was idle for too long"),
    }
}

async fn copy<R, W>(from: &mut R, to: &mut W, activity: &Activity) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; READ];
    loop {
        let count = from.read(&mut buffer).await?;
        activity.touch();
        if count == 0 {
            return to.shutdown().await;
        }
        write(to, &buffer[..count], activity).await?;
    }
}

/// Writes everything, with each piece that was taken as a sign of life.
pub(crate) async fn write<W>(to: &mut W, mut bytes: &[u8], activity: &Activity) -> io::Result<()>
where
    W: AsyncWrite + Unpin,
{
    while !bytes.is_empty() {
        let count = to.write(bytes).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        activity.touch();
        bytes = &bytes[count..];
    }
    to.flush().await
}
