//! The greeting of TLS: real ones, damaged ones, and generated ones.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use proptest::prelude::*;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use std::sync::Arc;
use stead_egress::hello::{Hello, HelloError, MAX_HELLO, Step, parse};

/// What rustls sends first.
fn real(name: &str, versions: &[&'static SupportedProtocolVersion], sni: bool) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.enable_sni = sni;
    let name = name.to_owned().try_into().unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap();
    [&kind.to_be_bytes()[..], &length.to_be_bytes(), content].concat()
}

/// The content of a server_name extension.
fn names(names: &[(u8, &[u8])]) -> Vec<u8> {
    let mut list = Vec::new();
    for (kind, name) in names {
        list.push(*kind);
        list.extend_from_slice(&u16::try_from(name.len()).unwrap().to_be_bytes());
        list.extend_from_slice(name);
    }
    [&u16::try_from(list.len()).unwrap().to_be_bytes()[..], &list].concat()
}

fn sni(name: &str) -> Vec<u8> {
    extension(0, &names(&[(0, name.as_bytes())]))
}

/// A greeting with these extensions, without the record around it.
fn message(extensions: &[u8]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0, 2, 0x13, 0x01, 1, 0]);
    body.extend_from_slice(&u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend_from_slice(extensions);
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1, length[1], length[2], length[3]][..], &body].concat()
}

fn record(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[22, 3, 1, length[0], length[1]][..], content].concat()
}

fn greeting(extensions: &[&[u8]]) -> Vec<u8> {
    record(&message(&extensions.concat()))
}

fn named(name: &str, encrypted: bool) -> Result<Step, HelloError> {
    Ok(Step::Whole(Hello {
        server_name: Some(name.to_owned()),
        encrypted,
    }))
}

#[test]
fn real_greetings_name_their_host() {
    let both = [&rustls::version::TLS13, &rustls::version::TLS12];
    for versions in [&both[..], &both[..1], &both[1..]] {
        assert_eq!(
            parse(&real("example.org", versions, true)),
            named("example.org", false)
        );
        let nameless = parse(&real("example.org", versions, false)).unwrap();
        assert!(matches!(
            nameless,
            Step::Whole(Hello {
                server_name: None,
                ..
            })
        ));
    }
}

#[test]
fn made_up_greetings_are_read_like_real_ones() {
    // The control for all that is refused below.
    assert_eq!(
        parse(&greeting(&[&sni("example.org")])),
        named("example.org", false)
    );
    for kind in [0xfe0d, 0xffce] {
        let hidden = greeting(&[&extension(kind, b"inner"), &sni("outer.example")]);
        assert_eq!(parse(&hidden), named("outer.example", true));
    }
    let followed = [greeting(&[&sni("example.org")]), vec![20, 3, 3, 0, 1, 1]].concat();
    assert_eq!(parse(&followed), named("example.org", false));
}

#[test]
fn what_is_no_tls_is_seen_at_its_first_byte() {
    for text in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"SSH-2.0-x",
        &[0x80, 0x2e, 1, 0, 2],
        &[21, 3, 1],
        &[0],
    ] {
        assert_eq!(parse(text), Err(HelloError::NotTls));
    }
}

#[test]
fn a_greeting_that_is_spread_over_records_is_refused() {
    let whole = message(&sni("example.org"));
    for at in [1, 3, 4, 20, whole.len() - 1] {
        let spread = [record(&whole[..at]), record(&whole[at..])].concat();
        assert_eq!(parse(&spread), Err(HelloError::Fragmented), "{at}");
    }
}

#[test]
fn damaged_greetings_are_refused() {
    let two = names(&[(0, b"example.org"), (0, b"evil.example")]);
    let cut = &names(&[(0, b"example.org")])[..6];
    let extra = [names(&[(0, b"example.org")]), vec![0]].concat();
    let mut no_suites = message(&sni("example.org"));
    no_suites[40] = 0;
    for bytes in [
        greeting(&[&sni("example.org"), &sni("evil.example")]),
        greeting(&[&sni("example.org"), &extension(5, b""), &extension(5, b"")]),
        greeting(&[&extension(0, &two)]),
        greeting(&[&extension(0, cut)]),
        greeting(&[&extension(0, &extra)]),
        greeting(&[&extension(0, &names(&[(1, b"example.org")]))]),
        greeting(&[&extension(0, &names(&[(0, b"")]))]),
        greeting(&[&extension(0, &names(&[(0, "é.example".as_bytes())]))]),
        greeting(&[&extension(0, b"")]),
        greeting(&[&[0, 0, 0, 99]]),
        record(&no_suites),
        record(&[message(&sni("example.org")), vec![1, 0, 0, 0]].concat()),
        record(&[2, 0, 0, 1, 0]),
        vec![22, 2, 0],
        vec![22, 3, 9],
        vec![22, 3, 1, 0x40, 0x01],
    ] {
        assert!(
            matches!(parse(&bytes), Err(HelloError::Malformed(_))),
            "{:?}",
            parse(&bytes)
        );
    }
}

proptest! {
    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..300), framed: bool) {
        let bytes = if framed { record(&bytes) } else { bytes };
        if let Ok(Step::Whole(Hello { server_name: Some(name), .. })) = parse(&bytes) {
            prop_assert!(bytes.windows(name.len()).any(|window| window == name.as_bytes()));
        }
    }

    #[test]
    fn every_true_prefix_wants_more_and_the_whole_is_bounded(name in "[a-z]{1,20}(\\.[a-z]{1,20}){1,3}", padding in 0..15_000usize, cut: prop::sample::Index) {
        let bytes = greeting(&[&extension(21, &vec![0; padding]), &sni(&name)]);
        prop_assert!(bytes.len() <= MAX_HELLO);
        prop_assert_eq!(parse(&bytes[..cut.index(bytes.len())]), Ok(Step::More));
        prop_assert_eq!(parse(&bytes), named(&name, false));
    }

    #[test]
    fn a_changed_byte_never_gives_a_name_that_is_not_there(at: prop::sample::Index, byte: u8) {
        let mut bytes = greeting(&[&extension(10, &[0, 2, 0, 29]), &sni("example.org"), &extension(16, &[0, 3, 2, b'h', b'2'])]);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(Step::Whole(Hello { server_name: Some(name), .. })) = parse(&bytes) {
            prop_assert!(bytes.windows(name.len()).any(|window| window == name.as_bytes()));
        }
    }
}
