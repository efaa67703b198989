//! Heads and bodies of requests: there is one way to read them, or none.

use bytes::BytesMut;
use proptest::prelude::*;
use stead_egress::body::{Decoder, Piece};
use stead_egress::head::{Framing, Head, HeadError, Scan};

const LIMIT: usize = 1024;

fn read(text: &str) -> Result<Head, HeadError> {
    let length = Scan::default().end(text.as_bytes(), LIMIT)?;
    Head::parse(&text.as_bytes()[..length.expect("the head has its end")])
}

fn with(headers: &str) -> String {
    format!("POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\n{headers}\r\n")
}

#[test]
fn ordinary_heads_are_read() {
    let head =
        read("GET http://example.org/a?b HTTP/1.1\r\nHost: example.org\r\nX-Y: \t z \t\r\nE:\r\n\r\nbody")
            .unwrap();
    assert_eq!(
        (head.method.as_str(), head.target.as_str()),
        ("GET", "http://example.org/a?b")
    );
    assert_eq!(head.headers["x-y"], "z");
    assert_eq!(head.headers["e"], "");
    assert_eq!(head.framing(), Ok(Framing::Length(0)));
    assert_eq!(
        read(&with("Content-Length: 5\r\n")).unwrap().framing(),
        Ok(Framing::Length(5))
    );
    assert_eq!(
        read(&with("Transfer-Encoding: Chunked\r\n")).unwrap().framing(),
        Ok(Framing::Chunked)
    );
}

#[test]
fn heads_that_can_be_read_in_two_ways_are_refused() {
    let texts = [
        "GET http://a.b/ HTTP/1.1\nHost: a.b\n\n".to_owned(),
        "\r\nGET http://a.b/ HTTP/1.1\r\n\r\n".to_owned(),
        "GET http://a.b/ HTTP/1.1\r\nHost: a.b\rX: y\r\n\r\n".to_owned(),
        "GET  http://a.b/ HTTP/1.1\r\n\r\n".to_owned(),
        "GET http://a.b/ x HTTP/1.1\r\n\r\n".to_owned(),
        "GET\thttp://a.b/ HTTP/1.1\r\n\r\n".to_owned(),
        "GET http://a.b/ HTTP/1.1 \r\n\r\n".to_owned(),
        "GET http://a.b/ HTTP/2.0\r\n\r\n".to_owned(),
        "GET http://a.b/ http/1.1\r\n\r\n".to_owned(),
        "GET http://a.b/\u{e9} HTTP/1.1\r\n\r\n".to_owned(),
        "G(T http://a.b/ HTTP/1.1\r\n\r\n".to_owned(),
        "GET http://a.b/\r\n\r\n".to_owned(),
        with("Host: evil.example\r\n"),
        with("hOST: example.org\r\n"),
        with("X: y\r\n folded\r\n"),
        with("X: y\r\n\tfolded\r\n"),
        with("X : y\r\n"),
        with("X\r\n"),
        with(": y\r\n"),
        with("X: a\0b\r\n"),
        with("X: \u{1}\r\n"),
        with("X: \u{c}\r\n"),
        with(&"X: y\r\n".repeat(100)),
    ];
    let mut report = String::new();
    for text in &texts {
        report += &format!("{}\n", read(text).unwrap_err());
    }
    insta::assert_snapshot!(report);
}

#[test]
fn bodies_whose_length_is_in_doubt_are_refused() {
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -0\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length:\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding:\r\n",
    ] {
        let read = read(&with(headers));
        assert!(read.is_err() || read.unwrap().framing().is_err(), "{headers}");
    }
    let old = with("Transfer-Encoding: chunked\r\n").replace("HTTP/1.1", "HTTP/1.0");
    assert!(read(&old).unwrap().framing().is_err());
}

#[test]
fn a_head_ends_within_its_limit() {
    let head = |length: usize| with(&format!("X: {}\r\n", "y".repeat(length)));
    let fixed = head(0).len();
    assert!(read(&head(LIMIT - fixed)).is_ok());
    let text = head(LIMIT - fixed + 1);
    assert_eq!(
        Scan::default().end(text.as_bytes(), LIMIT),
        Err(HeadError::TooLarge)
    );
}

/// All of a body, in pieces of this size, and what is left after it.
fn decode(framing: Framing, bytes: &[u8], size: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let (mut decoder, mut input, mut content) = (Decoder::new(framing), BytesMut::new(), Vec::new());
    let mut parts = bytes.chunks(size.max(1));
    loop {
        match decoder.next(&mut input).ok()? {
            Piece::Data(data) => content.extend_from_slice(&data),
            Piece::More => input.extend_from_slice(parts.next()?),
            Piece::End => {
                let rest = input.iter().chain(parts.flatten()).copied().collect();
                return Some((content, rest));
            }
        }
    }
}

#[test]
fn damaged_chunks_are_refused() {
    // The control.
    let (content, rest) = decode(
        Framing::Chunked,
        b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nGET",
        7,
    )
    .unwrap();
    assert_eq!(
        (content.as_slice(), rest.as_slice()),
        (&b"abc0123456789"[..], &b"GET"[..])
    );
    for bytes in [
        &b"3\nabc\r\n0\r\n\r\n"[..],
        b"3\r\nabc\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3;x=y\r\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
        b" 3\r\nabc\r\n0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"\r\nabc\r\n0\r\n\r\n",
        b"0000000000000003\r\nabc\r\n0\r\n\r\n",
        b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\n",
    ] {
        for size in [1, 1000] {
            let mut decoder = Decoder::new(Framing::Chunked);
            let mut input = BytesMut::new();
            let mut refused = false;
            for part in bytes.chunks(size) {
                input.extend_from_slice(part);
                while !refused {
                    match decoder.next(&mut input) {
                        Ok(Piece::Data(_)) => {}
                        Ok(_) => break,
                        Err(_) => refused = true,
                    }
                }
            }
            assert!(
                refused && !decoder.is_done(),
                "{:?}",
                String::from_utf8_lossy(bytes)
            );
        }
    }
}

proptest! {
    #[test]
    fn any_head_gets_an_answer_and_pieces_change_nothing(text in "(GET|POST) [!-~]{0,20} HTTP/1\\.[01]\r\n([a-zA-Z-]{0,8}[: ]{0,2}[ -~\t\r\n]{0,12}\r\n){0,4}\r\n[ -~]{0,5}|[\\x00-\\x7f]{0,60}", size in 1..9usize) {
        let bytes = text.as_bytes();
        let whole = Scan::default().end(bytes, LIMIT);
        let mut scan = Scan::default();
        let mut in_pieces = Ok(None);
        for end in (size..bytes.len()).step_by(size).chain([bytes.len()]) {
            in_pieces = scan.end(&bytes[..end], LIMIT);
            if in_pieces != Ok(None) {
                break;
            }
        }
        prop_assert_eq!(&whole, &in_pieces);
        if let Ok(Some(length)) = whole {
            prop_assert!(bytes[..length].ends_with(b"\r\n\r\n"));
            if let Ok(head) = Head::parse(&bytes[..length]) {
                prop_assert!(head.headers.get_all("host").iter().count() <= 1);
                prop_assert!(head.target.bytes().all(|byte| byte.is_ascii_graphic()));
                // Not more than an answer is asked for here.
                let _ = head.framing();
            }
        }
    }

    #[test]
    fn chunks_are_the_content_in_whatever_pieces(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6), size in 1..50usize, rest in prop::collection::vec(any::<u8>(), 0..10)) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\n\r\n");
        bytes.extend_from_slice(&rest);
        prop_assert_eq!(decode(Framing::Chunked, &bytes, size), Some((chunks.concat(), rest.clone())));
        let plain = [chunks.concat(), rest.clone()].concat();
        let length = Framing::Length(chunks.concat().len() as u64);
        prop_assert_eq!(decode(length, &plain, size), Some((chunks.concat(), rest)));
    }

    #[test]
    fn any_bytes_of_a_body_get_an_answer(bytes in "[0-3a\r\n;]{0,30}", size in 1..9usize) {
        prop_assert_eq!(decode(Framing::Chunked, bytes.as_bytes(), size), decode(Framing::Chunked, bytes.as_bytes(), 100));
    }
}
