//! The body of a plain request, on its way from the place to hyper.

use crate::activity::Activity;
use crate::body::{Decoder, Piece};
use crate::event::Reason;
use crate::head::Framing;
use crate::inbound::Inbound;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncRead;
use tokio::sync::mpsc;

/// Where the pieces go in. `None` is the end of the body.
pub(crate) type Pieces = mpsc::Sender<Option<Bytes>>;

/// Reads the body from the place and hands it to hyper, a piece at a time: what the host does not take is not read.
pub(crate) async fn pump<S: AsyncRead>(
    inbound: &mut Inbound<S>,
    framing: Framing,
    pieces: Pieces,
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

/// Both ends of a body: one piece is on its way at most.
pub(crate) fn channel(framing: Framing) -> (Pieces, PlaceBody) {
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
pub(crate) struct PlaceBody {
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
