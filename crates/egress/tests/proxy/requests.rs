//! Plain requests, and what is refused of every request.

use crate::world::server::{Got, listener, ok, plain};
use crate::world::{PUBLIC, World, code, get, head_of, rest, soon, world};
use stead_egress::Limits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A world in which port 80 of every good name is a server.
async fn with_server(answer: fn(&str) -> String) -> (World, Got) {
    let world = world(Limits::default());
    let (listener, address) = listener().await;
    world.serve(80, address);
    (world, plain(listener, answer))
}

#[tokio::test]
async fn a_plain_request_reaches_the_host_without_what_concerns_the_proxy() {
    let (mut world, got) = with_server(|_| ok("hello")).await;
    let answer = world
        .ask(
            "POST http://GOOD.example/a%20b?c=d HTTP/1.1\r\nHost: Good.example:80\r\nProxy-Connection: close\r\n\
             Connection: x-mine, close\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: h2c\r\n\
             Proxy-Authorization: Basic eDp5\r\nAccept: */*\r\nContent-Length: 4\r\n\r\nbody",
        )
        .await;
    assert_eq!(
        answer,
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello"
    );
    assert_eq!(
        *got.lock().unwrap(),
        [
            "POST /a%20b?c=d HTTP/1.1\r\nhost: good.example\r\naccept: */*\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody"
        ]
    );
    assert_eq!(
        world.recorded(),
        [format!("GOOD.example:80 Allowed - {PUBLIC}:80")]
    );
}

/// Each with the code that refuses it. The first of them is the control.
const TARGETS: [(&str, &str, &str); 38] = [
    ("http://good.example/", "good.example", "none"),
    ("http://good.example", "good.example", "none"),
    ("http://good.example?q", "good.example", "none"),
    ("HTTP://a.wild.example:80/", "a.wild.example", "none"),
    ("http://evil.example/", "evil.example", "egress_host_not_allowed"),
    ("http://wild.example/", "wild.example", "egress_host_not_allowed"),
    (
        "http://xgood.example/",
        "xgood.example",
        "egress_host_not_allowed",
    ),
    ("http://EVIL.example/", "EVIL.example", "egress_host_not_allowed"),
    (
        "http://good.example.evil.example/",
        "good.example.evil.example",
        "egress_host_not_allowed",
    ),
    (
        "http://good.example:8080/",
        "good.example:8080",
        "egress_port_not_allowed",
    ),
    ("http://odd.example/", "odd.example", "egress_port_not_allowed"),
    (
        "http://good.example:443/",
        "good.example:443",
        "egress_scheme_unsupported",
    ),
    (
        "https://good.example/",
        "good.example",
        "egress_scheme_unsupported",
    ),
    ("ftp://good.example/", "good.example", "egress_scheme_unsupported"),
    ("http://good.example./", "good.example.", "egress_host_invalid"),
    ("http://localhost/", "localhost", "egress_host_invalid"),
    (
        "http://good.example%00.evil.example/",
        "good.example%00.evil.example",
        "egress_host_invalid",
    ),
    (
        "http://good.example%2f/",
        "good.example%2f",
        "egress_host_invalid",
    ),
    (
        "http://good.example\\@evil.example/",
        "good.example",
        "egress_request_invalid",
    ),
    (
        "http://good.example\\.evil.example/",
        "good.example\\.evil.example",
        "egress_host_invalid",
    ),
    (
        "http://good.example@evil.example/",
        "evil.example",
        "egress_request_invalid",
    ),
    (
        "http://user:word@good.example/",
        "good.example",
        "egress_request_invalid",
    ),
    (
        "http://good.example/#part",
        "good.example",
        "egress_request_invalid",
    ),
    (
        "http://good.example#@evil.example/",
        "good.example",
        "egress_request_invalid",
    ),
    ("http://good.example:/", "good.example:", "egress_request_invalid"),
    (
        "http://good.example:0x50/",
        "good.example",
        "egress_request_invalid",
    ),
    ("http:///", "good.example", "egress_host_mismatch"),
    ("/", "good.example", "egress_request_invalid"),
    ("*", "good.example", "egress_request_invalid"),
    ("good.example:80", "good.example:80", "egress_request_invalid"),
    ("http://93.184.216.34/", "93.184.216.34", "egress_ip_literal"),
    ("http://127.0.0.1/", "127.0.0.1", "egress_ip_literal"),
    ("http://127.1/", "127.1", "egress_ip_literal"),
    ("http://2130706433/", "2130706433", "egress_ip_literal"),
    ("http://0177.0.0.1/", "0177.0.0.1", "egress_ip_literal"),
    ("http://0x7f000001/", "0x7f000001", "egress_ip_literal"),
    ("http://[::1]/", "[::1]", "egress_ip_literal"),
    (
        "http://[::ffff:169.254.169.254]:80/",
        "[::ffff:169.254.169.254]:80",
        "egress_ip_literal",
    ),
];

#[tokio::test]
async fn targets_are_judged() {
    let (world, got) = with_server(|_| ok("hello")).await;
    let mut allowed = 0;
    for (target, host, expected) in TARGETS {
        let answer = world.ask(get(target, host)).await;
        assert_eq!(code(&answer), expected, "{target}: {answer}");
        allowed += usize::from(expected == "none");
        assert_eq!(
            answer.starts_with("HTTP/1.1 200 "),
            expected == "none",
            "{answer}"
        );
        assert_eq!(got.lock().unwrap().len(), allowed, "{target}");
    }
    assert_eq!(world.names.asked().len(), allowed, "a refused name was looked up");
}

#[tokio::test]
async fn the_host_header_has_to_say_the_same() {
    let (mut world, got) = with_server(|_| ok("hello")).await;
    for host in [
        "evil.example",
        "good.example:81",
        "good.example.",
        "a.wild.example",
        "",
        "good.example, evil.example",
    ] {
        let answer = world.ask(get("http://good.example/", host)).await;
        assert_eq!(code(&answer), "egress_host_mismatch", "{host}");
        assert!(answer.starts_with("HTTP/1.1 403 "));
    }
    let none = world.ask("GET http://good.example/ HTTP/1.1\r\n\r\n").await;
    assert_eq!(code(&none), "egress_request_invalid");
    assert!(got.lock().unwrap().is_empty());
    assert_eq!(
        world.recorded()[0],
        "good.example:80 Refused egress_host_mismatch -"
    );
    // The control: the same with the right one.
    assert!(
        world
            .ask(get("http://good.example/", "good.example"))
            .await
            .contains("hello")
    );
}

#[tokio::test]
async fn a_request_that_hides_another_one_is_refused_before_the_host_sees_it() {
    let (world, got) = with_server(|_| ok("hello")).await;
    let hidden = "GET http://good.example/hidden HTTP/1.1\r\nHost: good.example\r\n\r\n";
    let post = "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\n";
    for bytes in [
        format!("{post}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{post}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{post}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{post}X: y\r\n Content-Length: 4\r\n\r\n{hidden}"),
        format!("{post}Host: evil.example\r\n\r\n"),
        format!("{post}Content-Length: 0\r\nContent-Length: 4\r\n\r\n{hidden}"),
        "GET http://good.example/ HTTP/1.1\nHost: good.example\n\n".to_owned(),
        "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nX: y\n\r\n".to_owned(),
    ] {
        let answer = world.ask(&bytes).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{bytes:?} {answer}");
        assert_eq!(code(&answer), "egress_request_invalid");
    }
    assert!(got.lock().unwrap().is_empty());
    // The control: the body is a body, and what follows is the next request.
    let both = format!(
        "{post}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n{hidden}{}",
        get("http://good.example/", "good.example")
    );
    assert_eq!(world.ask(both).await.matches("hello").count(), 3);
    assert_eq!(got.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn every_request_of_a_connection_is_judged_anew() {
    let (mut world, got) = with_server(|_| ok("hello")).await;
    let mut stream = world.connect().await;
    let good = "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n";
    for _ in 0..2 {
        stream.write_all(good.as_bytes()).await.unwrap();
        assert_eq!(
            head_of(&mut stream).await,
            "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
        );
        stream.read_exact(&mut [0; 5]).await.unwrap();
    }
    stream
        .write_all(get("http://evil.example/", "evil.example").as_bytes())
        .await
        .unwrap();
    assert_eq!(code(&rest(&mut stream).await), "egress_host_not_allowed");
    assert_eq!(got.lock().unwrap().len(), 2);
    assert_eq!(world.names.asked(), ["good.example", "good.example"]);
    assert_eq!(world.recorded().len(), 3);
}

#[tokio::test]
async fn names_with_addresses_that_are_not_public_are_refused() {
    let (mut world, got) = with_server(|_| ok("hello")).await;
    let answers: [&[&str]; 8] = [
        &["127.0.0.1"],
        &["10.0.0.1"],
        &["169.254.169.254"],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["fd00:ec2::254"],
        &[PUBLIC, "192.168.0.1"],
        &["64:ff9b::7f00:1", PUBLIC],
    ];
    for (at, addresses) in answers.iter().enumerate() {
        let name = format!("n{at}.wild.example");
        world.names.add(&name, addresses);
        for address in *addresses {
            let address = std::net::SocketAddr::new(address.parse().unwrap(), 80);
            let server = "127.0.0.1:9".parse().unwrap();
            if address.ip().to_string() != PUBLIC {
                world.wires.lead(&address.to_string(), server);
            }
        }
        let answer = world.ask(get(&format!("http://{name}/"), &name)).await;
        assert_eq!(code(&answer), "egress_address_refused");
        let bad = addresses.iter().find(|address| **address != PUBLIC).unwrap();
        assert!(!answer.contains(bad), "the place is told the address: {answer}");
        let recorded = world.recorded().concat();
        assert!(
            recorded.contains(bad),
            "the event does not have the address: {recorded}"
        );
    }
    assert!(world.wires.dialled().is_empty());
    assert!(
        world
            .ask(get("http://good.example/", "good.example"))
            .await
            .contains("hello")
    );
    assert_eq!(got.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_address_that_was_judged_is_the_one_that_is_connected_to() {
    let world = world(Limits::default());
    let (good, address) = listener().await;
    let got = plain(good, |_| ok("hello"));
    let (trap, trapped) = listener().await;
    let caught = plain(trap, |_| ok("trap"));
    world.wires.lead(&format!("{PUBLIC}:80"), address);
    world.wires.lead("10.0.0.1:80", trapped);
    world.names.add("good.example", &[PUBLIC]);
    world.names.add("good.example", &["10.0.0.1"]);
    assert!(
        world
            .ask(get("http://good.example/", "good.example"))
            .await
            .contains("hello")
    );
    assert_eq!(world.names.asked().len(), 1, "one request, one look-up");
    let second = world.ask(get("http://good.example/", "good.example")).await;
    assert_eq!(code(&second), "egress_address_refused");
    assert_eq!(got.lock().unwrap().len(), 1);
    assert!(caught.lock().unwrap().is_empty());
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_does_not_answer() {
    let world = world(Limits::default());
    let (server, address) = listener().await;
    plain(server, |_| ok("hello"));
    world.names.add("good.example", &["93.184.216.35", PUBLIC]);
    world.wires.lead(&format!("{PUBLIC}:80"), address);
    assert!(
        world
            .ask(get("http://good.example/", "good.example"))
            .await
            .contains("hello")
    );
    assert_eq!(world.wires.dialled().len(), 2);
}

#[tokio::test]
async fn a_redirect_is_given_to_the_place_and_judged_when_it_follows() {
    let (mut world, got) = with_server(|path| {
        let to = match path {
            "/address" => "http://10.0.0.1/",
            "/name" => "http://inside.wild.example/",
            _ => "http://b.wild.example/there",
        };
        match path {
            "/there" => ok("hello"),
            _ => format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"),
        }
    })
    .await;
    world.names.add("inside.wild.example", &["10.0.0.1"]);
    for (path, expected) in [
        ("/address", "egress_ip_literal"),
        ("/name", "egress_address_refused"),
        ("/good", "none"),
    ] {
        let answer = world
            .ask(get(&format!("http://good.example{path}"), "good.example"))
            .await;
        let to = answer
            .lines()
            .find_map(|line| line.strip_prefix("location: "))
            .unwrap()
            .trim();
        let host = to.trim_start_matches("http://").split('/').next().unwrap();
        let followed = world.ask(get(to, host)).await;
        assert_eq!(code(&followed), expected, "{followed}");
    }
    assert_eq!(got.lock().unwrap().len(), 4);
    assert_eq!(world.recorded().len(), 6);
}

#[tokio::test]
async fn answers_are_framed_anew() {
    let (world, got) = with_server(|path| match path {
        "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 1\r\nConnection: x-theirs\r\nX-Theirs: 1\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n".to_owned(),
        "/endless" => "HTTP/1.1 200 OK\r\n\r\nuntil the end".to_owned(),
        "/nothing" => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        "/same" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n".to_owned(),
        "/early" => "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
        "/garbage" => "220 smtp\r\n".to_owned(),
        "/switch" => "HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n".to_owned(),
        "/short" => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc".to_owned(),
        "/large" => format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100_000)),
        _ => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".to_owned(),
    })
    .await;
    let mut report = String::new();
    for (method, path, version) in [
        ("GET", "/chunked", "1.1"),
        ("GET", "/chunked", "1.0"),
        ("GET", "/endless", "1.1"),
        ("GET", "/nothing", "1.1"),
        ("GET", "/same", "1.1"),
        ("GET", "/early", "1.1"),
        ("HEAD", "/", "1.1"),
        ("GET", "/short", "1.1"),
        ("GET", "/garbage", "1.1"),
        ("GET", "/switch", "1.1"),
        ("GET", "/large", "1.1"),
        ("HEAD", "/garbage", "1.1"),
    ] {
        let request = format!(
            "{method} http://good.example{path} HTTP/{version}\r\nHost: good.example\r\nConnection: close\r\n\r\n"
        );
        let answer = world.ask(request).await.replace('\r', "");
        report += &format!("== {method} {path} {version}\n{answer}\n");
    }
    insta::assert_snapshot!(report);
    assert_eq!(got.lock().unwrap().len(), 12);
}

#[tokio::test]
async fn a_body_in_chunks_and_one_that_waits_arrive_whole() {
    let (world, got) = with_server(|_| ok("hello")).await;
    let mut stream = world.connect().await;
    let post = "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n";
    stream
        .write_all(format!("{post}Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n").as_bytes())
        .await
        .unwrap();
    assert_eq!(head_of(&mut stream).await, "HTTP/1.1 100 Continue\r\n\r\n");
    for byte in b"3\r\nabc\r\n0\r\n\r\n" {
        stream.write_all(&[*byte]).await.unwrap();
    }
    assert!(rest(&mut stream).await.contains("hello"));
    assert!(got.lock().unwrap()[0].ends_with("transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"));
    let damaged = world
        .ask(format!("{post}Transfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n"))
        .await;
    assert_eq!(code(&damaged), "egress_request_invalid");
    // 4 MiB, through buffers that are much smaller.
    let body = "0123456789abcdef".repeat(256 * 1024);
    let large = format!("{post}Content-Length: {}\r\n\r\n{body}", body.len());
    assert!(soon(world.ask(large)).await.contains("hello"));
    assert!(got.lock().unwrap().last().unwrap().ends_with(&body));
}

#[tokio::test]
async fn a_request_that_cannot_be_carried_out_says_why() {
    let mut world = world(Limits::default());
    world.names.add("good.example", &[PUBLIC]);
    world.names.add("empty.wild.example", &[]);
    for (host, expected) in [
        ("good.example", "egress_unreachable"),
        ("unknown.wild.example", "egress_name_unresolved"),
        ("empty.wild.example", "egress_name_unresolved"),
    ] {
        let answer = world.ask(get(&format!("http://{host}/"), host)).await;
        assert_eq!(code(&answer), expected);
        assert!(answer.starts_with("HTTP/1.1 502 "));
        assert!(world.recorded()[0].contains(&format!("Failed {expected}")));
    }
}

#[tokio::test]
async fn what_is_left_of_a_body_is_never_the_next_request() {
    let world = world(Limits::default());
    let (server, address) = listener().await;
    world.serve(80, address);
    let mut stream = world.connect().await;
    let post = "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 1000\r\n\r\n";
    stream.write_all(post.as_bytes()).await.unwrap();
    // The host answers before it has the body, and the rest of the body looks like a request.
    let (mut host, _) = server.accept().await.unwrap();
    head_of(&mut host).await;
    host.write_all(ok("early").as_bytes()).await.unwrap();
    head_of(&mut stream).await;
    stream.read_exact(&mut [0; 5]).await.unwrap();
    let hidden = get("http://evil.example/", "evil.example");
    let _ = stream.write_all(hidden.as_bytes()).await;
    assert_eq!(soon(rest(&mut stream)).await, "");
    assert!(world.names.asked().iter().all(|name| name == "good.example"));
    // The control: after a whole body the same bytes are a request, and are judged.
    let both = format!("{}{hidden}", post.replace("1000", "0"));
    let asking = world.ask(both);
    let answering = async {
        let (mut host, _) = server.accept().await.unwrap();
        head_of(&mut host).await;
        host.write_all(ok("early").as_bytes()).await.unwrap();
    };
    let (answer, ()) = soon(async { tokio::join!(asking, answering) }).await;
    assert_eq!(code(&answer), "egress_host_not_allowed");
}
