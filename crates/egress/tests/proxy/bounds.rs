//! What one place can use up, and how everything ends.

use crate::world::server::{Got, echo, listener, ok, plain, tls};
use crate::world::{PUBLIC, World, code, get, head_of, line, rest, soon, world, world_with_events};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stead_egress::{Decision, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// From here on the clock jumps to the next timer whenever everybody waits. What was sent has arrived by then.
async fn pause_after_a_moment() {
    tokio::time::sleep(Duration::from_millis(100)).await;
    tokio::time::pause();
}

/// A plain server behind every good name.
async fn hello(world: &World) -> Got {
    let (server, address) = listener().await;
    world.serve(80, address);
    plain(server, |_| ok("hello"))
}

#[tokio::test]
async fn heads_are_bounded() {
    let mut world = world(Limits {
        head_bytes: 1000,
        ..Limits::default()
    });
    let got = hello(&world).await;
    let request = |length| {
        let fill = "x".repeat(length);
        format!(
            "GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\nX: {fill}\r\n\r\n"
        )
    };
    let fixed = request(0).len();
    assert!(world.ask(request(1000 - fixed)).await.contains("hello"));
    for length in [1001 - fixed, 1_000_000] {
        let answer = world.ask(request(length)).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        assert_eq!(code(&answer), "egress_request_too_large");
    }
    assert_eq!(got.lock().unwrap().len(), 1);
    assert_eq!(world.recorded()[1], "-:- Refused egress_request_too_large -");
}

#[tokio::test]
async fn a_head_that_comes_too_slowly_is_given_up() {
    let mut world = world(Limits::default());
    let mut slow = world.connect().await;
    let mut silent = world.connect().await;
    let mut text = get("http://good.example/", "good.example");
    text.truncate(text.len() - 2);
    for byte in text.bytes() {
        slow.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    pause_after_a_moment().await;
    let answer = rest(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(code(&answer), "egress_first_bytes_missing");
    // Who says nothing at all is told nothing.
    assert_eq!(rest(&mut silent).await, "");
    assert_eq!(world.recorded(), ["-:- Failed egress_first_bytes_missing -"]);
}

#[tokio::test]
async fn a_tunnel_without_its_greeting_is_given_up() {
    let mut world = world(Limits::default());
    let (server, address) = listener().await;
    world.serve(443, address);
    for start in [&b""[..], &[22, 3, 1, 2, 0, 1]] {
        let mut tunnel = world.tunnel("good.example:443").await;
        tunnel.write_all(start).await.unwrap();
        let (mut host, _) = server.accept().await.unwrap();
        pause_after_a_moment().await;
        assert_eq!(rest(&mut tunnel).await.len(), 7, "an alert, and the end");
        assert_eq!(rest(&mut host).await, "", "nothing was let out");
        assert_eq!(
            world.recorded(),
            ["good.example:443 Failed egress_first_bytes_missing -"]
        );
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_name_that_is_not_resolved_in_time_is_given_up() {
    let world = world(Limits::default());
    world.names.hang("good.example");
    let mut stream = world.connect().await;
    stream
        .write_all(get("http://good.example/", "good.example").as_bytes())
        .await
        .unwrap();
    pause_after_a_moment().await;
    let answer = rest(&mut stream).await;
    assert_eq!(code(&answer), "egress_name_unresolved");
}

#[tokio::test]
async fn a_request_that_stands_still_is_ended() {
    let world = world(Limits::default());
    // A server that takes the request and never answers; then a body that stops in the middle.
    let (server, address) = listener().await;
    world.serve(80, address);
    for body in ["abc", "ab"] {
        let mut stream = world.connect().await;
        let head = "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\n\r\n";
        stream
            .write_all(format!("{head}{body}").as_bytes())
            .await
            .unwrap();
        let (mut host, _) = server.accept().await.unwrap();
        head_of(&mut host).await;
        host.read_exact(&mut vec![0; body.len()]).await.unwrap();
        pause_after_a_moment().await;
        assert_eq!(code(&rest(&mut stream).await), "egress_answer_invalid");
        tokio::time::resume();
    }
}

#[tokio::test]
async fn a_tunnel_that_stands_still_is_ended() {
    let world = world(Limits::default());
    let (server, address) = listener().await;
    let (connector, acceptor) = tls(&["good.example"]);
    world.serve(443, address);
    echo(server, acceptor);
    let tunnel = world.tunnel("good.example:443").await;
    let name = "good.example".try_into().unwrap();
    let mut tunnel = connector.connect(name, tunnel).await.unwrap();
    tunnel.write_all(b"x").await.unwrap();
    assert_eq!(tunnel.read_u8().await.unwrap(), b'x');
    pause_after_a_moment().await;
    assert!(tunnel.read_u8().await.is_err());
}

/// A TLS server that sends as long as somebody takes it, and counts.
fn source(listener: TcpListener, acceptor: TlsAcceptor) -> Arc<AtomicUsize> {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor.accept(stream).await.unwrap();
        while stream.write_all(&[7; 16 * 1024]).await.is_ok() {
            count.fetch_add(16 * 1024, Ordering::Relaxed);
        }
    });
    sent
}

#[tokio::test]
async fn what_the_place_does_not_take_is_not_read_from_the_host() {
    let world = world(Limits::default());
    let (server, address) = listener().await;
    let (connector, acceptor) = tls(&["good.example"]);
    world.serve(443, address);
    let sent = source(server, acceptor);
    let tunnel = world.tunnel("good.example:443").await;
    let mut tunnel = connector
        .connect("good.example".try_into().unwrap(), tunnel)
        .await
        .unwrap();
    // The control: it flows while somebody reads.
    let mut taken = vec![0; 32 * 1024 * 1024];
    soon(tunnel.read_exact(&mut taken)).await.unwrap();
    let before = sent.load(Ordering::Relaxed);
    // Nobody reads: everything fills up, stands still, and is ended for that.
    let mut last = usize::MAX;
    while sent.load(Ordering::Relaxed) != last {
        last = sent.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    tokio::time::pause();
    tokio::time::sleep(Limits::default().idle * 2).await;
    let more = sent.load(Ordering::Relaxed) - before;
    assert!(more < 64 * 1024 * 1024, "{more} bytes went nowhere");
    let left = rest(&mut tunnel).await.len();
    assert!(left < 64 * 1024 * 1024, "it never ended");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_a_free_slot() {
    let world = world(Limits {
        connections: 2,
        ..Limits::default()
    });
    let got = hello(&world).await;
    let first = world.connect().await;
    let second = world.connect().await;
    let mut third = world.connect().await;
    let request = get("http://good.example/", "good.example");
    third.write_all(request.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(
        got.lock().unwrap().is_empty(),
        "a third one was served beside two"
    );
    drop(first);
    assert!(soon(rest(&mut third)).await.contains("hello"));
    drop(second);
}

#[tokio::test]
async fn nothing_is_let_out_unrecorded() {
    // Two events fit; the third request has to wait until one was taken.
    let mut world = world_with_events(Limits::default(), 2);
    let got = hello(&world).await;
    let request = get("http://good.example/", "good.example");
    for _ in 0..2 {
        assert!(world.ask(&request).await.contains("hello"));
    }
    let mut third = world.connect().await;
    third.write_all(request.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(
        got.lock().unwrap().len(),
        2,
        "a request went out before its event"
    );
    let event = world.events.recv().await.unwrap();
    assert_eq!(event.decision, Decision::Allowed);
    assert!(soon(rest(&mut third)).await.contains("hello"));
    // Nobody takes them any more.
    world.events.close();
    while let Some(event) = world.events.recv().await {
        assert_eq!(line(&event), format!("good.example:80 Allowed - {PUBLIC}:80"));
    }
    let answer = world.ask(&request).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(code(&answer), "egress_events_lost");
    assert_eq!(got.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn shutdown_ends_every_connection() {
    let mut world = world(Limits::default());
    let (server, address) = listener().await;
    let (connector, acceptor) = tls(&["good.example"]);
    world.serve(443, address);
    echo(server, acceptor);
    let tunnel = world.tunnel("good.example:443").await;
    let name = "good.example".try_into().unwrap();
    let mut tunnel = connector.connect(name, tunnel).await.unwrap();
    tunnel.write_all(b"x").await.unwrap();
    assert_eq!(tunnel.read_u8().await.unwrap(), b'x');
    let mut idle = world.connect().await;
    let mut greeting = world.tunnel("good.example:443").await;
    soon(world.running.take().unwrap().shutdown()).await;
    assert!(soon(tunnel.read_u8()).await.is_err());
    assert_eq!(soon(rest(&mut idle)).await, "");
    assert_eq!(soon(rest(&mut greeting)).await, "");
    assert!(tokio::net::UnixStream::connect(&world.socket).await.is_err());
}

#[tokio::test]
async fn dropping_it_ends_every_connection_too() {
    let mut world = world(Limits::default());
    let got = hello(&world).await;
    let mut kept = world.connect().await;
    kept.write_all(b"GET http://good.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n")
        .await
        .unwrap();
    assert!(head_of(&mut kept).await.contains("200 OK"));
    drop(world.running.take());
    assert_eq!(soon(rest(&mut kept)).await, "hello");
    assert_eq!(got.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_place_that_goes_away_takes_its_connections_with_it() {
    let world = world(Limits::default());
    let (server, address) = listener().await;
    world.serve(80, address);
    let mut stream = world.connect().await;
    let upload = "POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 9\r\n\r\nabc";
    stream.write_all(upload.as_bytes()).await.unwrap();
    let (mut host, _) = server.accept().await.unwrap();
    let head = head_of(&mut host).await;
    assert!(head.contains("content-length: 9"), "{head}");
    drop(stream);
    // The host sees a request that was cut off, and not a short one.
    assert_eq!(soon(rest(&mut host)).await, "abc");
}
