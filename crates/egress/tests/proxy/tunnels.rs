//! What goes through after `CONNECT`.

use crate::world::server::{echo, listener, ok, plain, tls};
use crate::world::{PUBLIC, World, code, get, head_of, rest, soon, world};
use rustls::pki_types::ServerName;
use stead_egress::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

/// A world in which this port of every good name is a TLS server that echoes.
async fn with_echo(port: u16) -> (World, TlsConnector) {
    let world = world(Limits::default());
    let (listener, address) = listener().await;
    let (connector, acceptor) = tls(&["good.example", "a.wild.example", "odd.example", "evil.example"]);
    world.serve(port, address);
    echo(listener, acceptor);
    (world, connector)
}

fn name(text: &str) -> ServerName<'static> {
    ServerName::try_from(text.to_owned()).unwrap()
}

/// A fatal `access_denied`, and the end.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

async fn raw(world: &World, target: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = world.tunnel(target).await;
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

#[tokio::test]
async fn tls_to_an_allowed_host_goes_through_end_to_end() {
    let (mut world, connector) = with_echo(443).await;
    let stream = world.tunnel("good.example:443").await;
    let mut stream = connector.connect(name("good.example"), stream).await.unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|n| n.to_le_bytes()[1]).collect();
    let (mut from, mut to) = tokio::io::split(&mut stream);
    let writing = async {
        to.write_all(&data).await.unwrap();
        // Half-closed: what is on its way back still arrives.
        to.shutdown().await.unwrap();
    };
    let mut back = Vec::new();
    soon(async { tokio::join!(writing, async { from.read_to_end(&mut back).await.unwrap() }) }).await;
    assert!(back == data);
    assert_eq!(
        world.recorded(),
        [format!("good.example:443 Allowed - {PUBLIC}:443")]
    );
}

#[tokio::test]
async fn another_name_in_the_greeting_is_refused() {
    let (mut world, connector) = with_echo(443).await;
    for other in ["evil.example", "a.wild.example"] {
        let stream = world.tunnel("good.example:443").await;
        let error = connector.connect(name(other), stream).await.unwrap_err();
        assert!(error.to_string().contains("AccessDenied"), "{error}");
        assert_eq!(
            world.recorded(),
            ["good.example:443 Refused egress_sni_mismatch -"]
        );
    }
    // An address has no place in SNI: the client leaves it out.
    let stream = world.tunnel("good.example:443").await;
    assert!(connector.connect(name(PUBLIC), stream).await.is_err());
    assert_eq!(
        world.recorded(),
        ["good.example:443 Refused egress_sni_missing -"]
    );
    // The control, in upper case.
    let stream = world.tunnel("GOOD.example:443").await;
    connector.connect(name("Good.Example"), stream).await.unwrap();
    assert!(world.recorded()[0].contains("Allowed"));
}

/// A greeting with this name, and with an encrypted one if asked for.
fn greeting(name: &str, encrypted: bool) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let entry = [&[0][..], &sized(name.as_bytes())].concat();
    let mut extensions = [&[0, 0][..], &sized(&sized(&entry))].concat();
    if encrypted {
        extensions.extend([0xfe, 0x0d]);
        extensions.extend(sized(b"inner"));
    }
    let body = [
        &[3, 3][..],
        &[7; 32],
        &[0, 0, 2, 0x13, 1, 1, 0],
        &sized(&extensions),
    ]
    .concat();
    let message = [&[1, 0][..], &sized(&body)].concat();
    [&[22, 3, 1][..], &sized(&message)].concat()
}

#[tokio::test]
async fn what_is_no_greeting_for_the_host_is_refused() {
    let mut world = world(Limits::default());
    let (listener, address) = listener().await;
    world.serve(443, address);
    let got = tokio::spawn(async move {
        let mut sizes = Vec::new();
        for _ in 0..9 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.unwrap();
            sizes.push(bytes.len());
        }
        sizes
    });
    let whole = greeting("good.example", false);
    let spread = [
        &[22, 3, 1, 0, 10][..],
        &whole[5..15],
        &[22, 3, 1, 0, 99],
        &whole[15..],
    ]
    .concat();
    let trailing_dot = greeting("good.example.", false);
    for (bytes, expected) in [
        (
            &b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n"[..],
            "egress_protocol_refused",
        ),
        (b"SSH-2.0-x\r\n", "egress_protocol_refused"),
        (&spread, "egress_tls_invalid"),
        (&[22, 3, 1, 0, 4, 1, 0, 0, 0], "egress_tls_invalid"),
        (&greeting("evil.example", false), "egress_sni_mismatch"),
        (&trailing_dot, "egress_sni_mismatch"),
        (&greeting("93.184.216.34", false), "egress_sni_mismatch"),
        (&greeting("outer.example", true), "egress_sni_hidden"),
    ] {
        assert_eq!(raw(&world, "good.example:443", bytes).await, ALERT, "{expected}");
        assert_eq!(
            world.recorded(),
            [format!("good.example:443 Refused {expected} -")]
        );
    }
    // The control: the right name, also beside something encrypted, which browsers always send.
    let mut good = world.tunnel("good.example:443").await;
    let bytes = greeting("good.example", true);
    for piece in bytes.chunks(5) {
        good.write_all(piece).await.unwrap();
    }
    good.shutdown().await.unwrap();
    assert_eq!(soon(got).await.unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, bytes.len()]);
    assert!(world.recorded()[0].contains("Allowed"));
}

#[tokio::test]
async fn connect_is_judged_like_any_request() {
    let (world, _) = with_echo(443).await;
    for (target, host, expected) in [
        ("evil.example:443", "evil.example:443", "egress_host_not_allowed"),
        ("good.example:22", "good.example:22", "egress_port_not_allowed"),
        ("good.example.:443", "good.example.:443", "egress_host_invalid"),
        ("good.example", "good.example", "egress_request_invalid"),
        ("good.example:", "good.example:", "egress_request_invalid"),
        (
            "http://good.example:443",
            "good.example:443",
            "egress_host_mismatch",
        ),
        (
            "user@good.example:443",
            "good.example:443",
            "egress_request_invalid",
        ),
        ("good.example:443", "evil.example:443", "egress_host_mismatch"),
        ("good.example:443", "good.example:80", "egress_host_mismatch"),
        ("93.184.216.34:443", "93.184.216.34:443", "egress_ip_literal"),
        ("[::1]:443", "[::1]:443", "egress_ip_literal"),
        ("0x7f.1:443", "0x7f.1:443", "egress_ip_literal"),
    ] {
        let answer = world
            .ask(format!("CONNECT {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
            .await;
        assert_eq!(code(&answer), expected, "{target}: {answer}");
    }
    let body = world
        .ask("CONNECT good.example:443 HTTP/1.1\r\nHost: good.example:443\r\nContent-Length: 4\r\n\r\nbody")
        .await;
    assert_eq!(code(&body), "egress_request_invalid");
    assert!(world.names.asked().is_empty());
    // The controls: HTTP/1.0 without Host, and Host without the port.
    for head in [
        "CONNECT good.example:443 HTTP/1.0\r\n\r\n",
        "CONNECT good.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n",
    ] {
        let mut stream = world.connect().await;
        stream.write_all(head.as_bytes()).await.unwrap();
        assert!(head_of(&mut stream).await.starts_with("HTTP/1.1 200 "));
    }
}

#[tokio::test]
async fn a_tunnel_to_port_80_carries_plain_requests_for_its_host_alone() {
    let mut world = world(Limits::default());
    let (server, address) = listener().await;
    world.serve(80, address);
    let got = plain(server, |_| ok("hello"));
    let mut stream = world.tunnel("good.example:80").await;
    stream
        .write_all(b"GET /one HTTP/1.1\r\nHost: good.example\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(
        head_of(&mut stream).await,
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
    );
    stream.read_exact(&mut [0; 5]).await.unwrap();
    stream
        .write_all(b"GET /two HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(code(&rest(&mut stream).await), "egress_host_mismatch");
    assert_eq!(got.lock().unwrap().len(), 1);
    for (bytes, expected) in [
        (
            "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "egress_request_invalid",
        ),
        (
            "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
            "egress_request_invalid",
        ),
        ("GET / HTTP/1.1\r\n\r\n", "egress_request_invalid"),
        ("GET / HTTP/1.1\nHost: good.example\n\n", "egress_request_invalid"),
        ("EHLO good.example\r\n\r\n", "egress_request_invalid"),
    ] {
        let answer = raw(&world, "good.example:80", bytes.as_bytes()).await;
        assert_eq!(code(&String::from_utf8(answer).unwrap()), expected, "{bytes:?}");
    }
    for bytes in [
        &greeting("good.example", false)[..],
        b"\x16\x03\x01",
        b"get / HTTP/1.1\r\n\r\n",
        b"\0",
    ] {
        assert_eq!(raw(&world, "good.example:80", bytes).await, ALERT);
    }
    assert_eq!(got.lock().unwrap().len(), 1);
    assert_eq!(world.recorded().len(), 11);
}

#[tokio::test]
async fn another_port_carries_what_it_begins_with() {
    let (world, connector) = with_echo(8443).await;
    let stream = world.tunnel("odd.example:8443").await;
    connector.connect(name("odd.example"), stream).await.unwrap();
    let stream = world.tunnel("odd.example:8443").await;
    assert!(connector.connect(name("good.example"), stream).await.is_err());
    assert_eq!(raw(&world, "odd.example:8443", b"\0\0\0\x08").await, ALERT);
    let (server, address) = listener().await;
    world.serve(8443, address);
    let got = plain(server, |_| ok("hello"));
    let request = "GET / HTTP/1.1\r\nHost: odd.example:8443\r\nConnection: close\r\n\r\n";
    let answer = raw(&world, "odd.example:8443", request.as_bytes()).await;
    assert!(String::from_utf8(answer).unwrap().ends_with("hello"));
    let answer = world
        .ask(get("http://odd.example:8443/", "odd.example:8443"))
        .await;
    assert!(answer.ends_with("hello"), "{answer}");
    let got = got.lock().unwrap().clone();
    assert_eq!(got.len(), 2);
    assert!(
        got.iter()
            .all(|request| request.contains("host: odd.example:8443\r\n"))
    );
    let answer = raw(
        &world,
        "odd.example:8443",
        b"GET / HTTP/1.1\r\nHost: odd.example\r\n\r\n",
    )
    .await;
    assert_eq!(code(&String::from_utf8(answer).unwrap()), "egress_host_mismatch");
}
