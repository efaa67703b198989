//! A request of a place: head and body are read in the same way whatever the pieces are, and what was understood is
//! free of everything that another reader could understand otherwise.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use stead_egress::body::{Decoder, Piece};
use stead_egress::head::{Framing, Head, HeadError, Scan};

const LIMIT: usize = 2048;

fn end(bytes: &[u8], size: usize) -> Result<Option<usize>, HeadError> {
    let mut scan = Scan::default();
    let mut end = Ok(None);
    for upto in (size..bytes.len()).step_by(size).chain([bytes.len()]) {
        end = scan.end(&bytes[..upto], LIMIT);
        if end != Ok(None) {
            break;
        }
    }
    end
}

/// The content and what is left, or `None` when it is damaged or not whole.
fn body(framing: Framing, bytes: &[u8], size: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut decoder, mut input, mut content) = (Decoder::new(framing), BytesMut::new(), Vec::new());
    let mut parts = bytes.chunks(size);
    loop {
        match decoder.next(&mut input).ok()? {
            Piece::Data(data) => content.extend_from_slice(&data),
            Piece::More => input.extend_from_slice(parts.next()?),
            Piece::End => return Some((content, input.iter().chain(parts.flatten()).copied().collect())),
        }
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (size, bytes) = input;
    let size = usize::from(size).max(1);
    let whole = end(bytes, bytes.len().max(1));
    assert_eq!(whole, end(bytes, size));
    let Ok(Some(length)) = whole else { return };
    let Ok(head) = Head::parse(&bytes[..length]) else {
        return;
    };
    assert!(head.target.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(head.headers.get_all("host").iter().count() <= 1);
    let Ok(framing) = head.framing() else { return };
    let (codings, lengths) = ("transfer-encoding", "content-length");
    let count = |name| head.headers.get_all(name).iter().count();
    assert!(count(codings) + count(lengths) <= 1);
    assert_eq!(body(framing, &bytes[length..], 4096), body(framing, &bytes[length..], size));
});
