//! Registries that are broken or hostile.

use crate::support::image::Fixture;
use crate::support::listing;
use crate::support::server::{Reply, Request, Server};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead_image::{Digest, Limits, Login, Patience, PullError, PullEvent, PullOptions, Reference, Store};
use stead_types::error::Code;
use stead_types::secret::SecretSource;
use tempfile::TempDir;

struct Secret;

impl SecretSource for Secret {
    fn secret(&self, _: &str) -> Result<String, String> {
        Ok("password".to_owned())
    }
}

/// As patient as everywhere, so that a busy machine fails no test, but without pauses between tries.
fn options() -> PullOptions {
    PullOptions {
        platform: "linux/amd64".parse().unwrap(),
        patience: Patience {
            pause: Duration::from_millis(1),
            ..Patience::default()
        },
        ..PullOptions::default()
    }
}

/// For servers that nobody should wait for. Whatever is slow besides ends in the same way.
fn impatient() -> PullOptions {
    let patience = Patience {
        silence: Duration::from_millis(400),
        window: Duration::from_millis(300),
        ..options().patience
    };
    PullOptions {
        patience,
        ..options()
    }
}

fn for_server(what: &str) -> PullOptions {
    match what {
        "silent" | "dripping" => impatient(),
        _ => options(),
    }
}

fn with_login() -> PullOptions {
    let login = Login {
        username: "user".to_owned(),
        password_secret: "x".to_owned(),
    };
    PullOptions {
        login: Some(login),
        secrets: Arc::new(Secret),
        ..options()
    }
}

/// What a good registry would answer.
fn good(image: &Fixture, request: &Request) -> Reply {
    let last = request.path.rsplit('/').next().unwrap();
    let wanted = if last == "1" {
        image.manifest.to_string()
    } else {
        last.to_owned()
    };
    match image.blobs.get(&wanted) {
        Some(bytes) => Reply::ok(bytes.clone()),
        None => Reply::status(404),
    }
}

fn is_layer(image: &Fixture, request: &Request, layer: usize) -> bool {
    request.path.ends_with(&format!("/blobs/{}", image.layers[layer]))
}

struct Outcome {
    store: Store,
    dir: TempDir,
    result: Result<Digest, PullError>,
    events: Vec<PullEvent>,
}

impl Outcome {
    fn code(&self) -> &'static str {
        self.result.as_ref().map_or_else(Code::code, |_| "ok")
    }

    fn retries(&self) -> usize {
        self.events
            .iter()
            .filter(|event| matches!(event, PullEvent::Retrying { .. }))
            .count()
    }

    fn left(&self) -> Vec<String> {
        ["staging", "layers/sha256"]
            .iter()
            .flat_map(|part| listing(&self.store.root().join(part)))
            .collect()
    }
}

fn pull_into(dir: TempDir, server: &Server, options: &PullOptions) -> Outcome {
    let store = Store::open(dir.path()).unwrap();
    let reference: Reference = format!("{}/a:1", server.host).parse().unwrap();
    let events = Mutex::new(Vec::new());
    let tell = |event| {
        events.lock().unwrap().push(event);
        ControlFlow::Continue(())
    };
    let result = store.pull(&reference, options, &tell).map(|record| record.digest);
    Outcome {
        store,
        dir,
        result,
        events: events.into_inner().unwrap(),
    }
}

fn pull(server: &Server, options: &PullOptions) -> Outcome {
    pull_into(tempfile::tempdir().unwrap(), server, options)
}

/// A registry that is good but for what the script says otherwise.
fn but(otherwise: impl Fn(&Fixture, &Request) -> Option<Reply> + Send + Sync + 'static) -> (Server, Fixture) {
    let image = Fixture::new();
    let own = image.clone();
    let server =
        Server::start(move |request| otherwise(&own, request).unwrap_or_else(|| good(&own, request)));
    (server, image)
}

#[test]
fn the_control_is_pulled() {
    let (server, image) = but(|_, _| None);
    let outcome = pull(&server, &options());
    assert_eq!((outcome.code(), outcome.retries()), ("ok", 0));
    assert_eq!(outcome.result.unwrap(), image.manifest);
    assert!(
        server
            .requests()
            .iter()
            .all(|request| request.method == "GET" && request.header("authorization").is_none())
    );
}

#[test]
fn content_that_is_not_what_was_asked_for_is_refused() {
    type Change = fn(Vec<u8>) -> Vec<u8>;
    let flip: Change = |mut bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bytes
    };
    let longer: Change = |bytes| [bytes, b"x".to_vec()].concat();
    let changes = [("flipped", flip), ("longer", longer)];
    for (what, change) in changes {
        for part in ["config", "layer"] {
            let (server, _) = but(move |image, request| {
                let wanted = if part == "config" {
                    image.config
                } else {
                    image.layers[0]
                };
                let hit = request.path.ends_with(&wanted.to_string());
                hit.then(|| Reply::ok(change(image.blob(&wanted).to_vec())))
            });
            let outcome = pull(&server, &options());
            let expected: &[&str] = if (what, part) == ("longer", "config") {
                &["image_too_large"]
            } else {
                &["image_mismatch"]
            };
            assert!(
                expected.contains(&outcome.code()),
                "{what} {part}: {:?}",
                outcome.result
            );
            assert_eq!(outcome.store.list().unwrap(), []);
        }
    }
    // A pinned manifest.
    let (server, image) = but(|image, request| {
        request
            .path
            .contains("/manifests/")
            .then(|| Reply::ok(image.blob(&image.manifest).to_vec()))
    });
    let dir = tempfile::tempdir().unwrap();
    let pinned: Reference = format!("{}/a@{}", server.host, image.config).parse().unwrap();
    let error = Store::open(dir.path())
        .unwrap()
        .pull(&pinned, &options(), &|_| ControlFlow::Continue(()))
        .unwrap_err();
    assert_eq!(error.code(), "image_mismatch");
}

#[test]
fn a_transfer_that_breaks_off_goes_on_where_it_was() {
    // Each answer has a third of what is left, and the promise of all of it.
    let (server, _) = but(|image, request| {
        if !is_layer(image, request, 0) {
            return None;
        }
        let bytes = image.blob(&image.layers[0]);
        let from = request
            .header("range")
            .map_or(0, |range| range["bytes=".len()..range.len() - 1].parse().unwrap());
        let rest = bytes[from..].to_vec();
        if from == 0 {
            return Some(Reply::Short(rest.len() as u64, rest[..rest.len() / 3].to_vec()));
        }
        let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
        Some(Reply::Whole(206, vec![("Content-Range".to_owned(), range)], rest))
    });
    let outcome = pull(&server, &options());
    assert_eq!(
        (outcome.code(), outcome.retries()),
        ("ok", 1),
        "{:?}",
        outcome.result
    );
    let ranges: Vec<_> = server
        .requests()
        .iter()
        .filter_map(|request| request.header("range").map(str::to_owned))
        .collect();
    assert_eq!(ranges.len(), 1);
}

#[test]
fn what_an_earlier_pull_has_left_is_taken_up_and_what_is_wrong_is_thrown_away() {
    for (left, wrong) in [(1000, false), (1000, true), (usize::MAX, false)] {
        let (server, image) = but(|image, request| {
            let from: usize = request.header("range")?["bytes=".len()..]
                .trim_end_matches('-')
                .parse()
                .unwrap();
            let bytes = image.blob(&image.layers[0]);
            let range = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
            Some(Reply::Whole(
                206,
                vec![("Content-Range".to_owned(), range)],
                bytes[from..].to_vec(),
            ))
        });
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let bytes = image.blob(&image.layers[0]);
        let mut begin = bytes[..left.min(bytes.len())].to_vec();
        begin[0] ^= u8::from(wrong);
        std::fs::write(store.root().join("partial").join(image.layers[0].hex()), begin).unwrap();
        let outcome = pull_into(dir, &server, &options());
        assert_eq!(outcome.code(), "ok", "{:?}", outcome.result);
        let asked = server
            .requests()
            .iter()
            .filter(|request| is_layer(&image, request, 0))
            .count();
        assert_eq!(
            asked,
            match (left, wrong) {
                (usize::MAX, _) => 0,
                (_, false) => 1,
                (_, true) => 2,
            }
        );
        assert_eq!(listing(&outcome.store.root().join("partial")), [""; 0]);
    }
}

#[test]
fn a_server_without_ranges_begins_anew() {
    for answer in ["whole", "another part", "refusal"] {
        let tries = AtomicUsize::new(0);
        let (server, _) = but(move |image, request| {
            if !is_layer(image, request, 0) {
                return None;
            }
            let bytes = image.blob(&image.layers[0]).to_vec();
            if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                return Some(Reply::Short(bytes.len() as u64, bytes[..500].to_vec()));
            }
            match (request.header("range"), answer) {
                (Some(_), "another part") => Some(Reply::Whole(
                    206,
                    vec![("Content-Range".to_owned(), "bytes 7-8/9".to_owned())],
                    bytes,
                )),
                (Some(_), "refusal") => Some(Reply::status(416)),
                _ => Some(Reply::ok(bytes)),
            }
        });
        let outcome = pull(&server, &options());
        assert_eq!(
            (outcome.code(), outcome.retries()),
            ("ok", 1),
            "{answer}: {:?}",
            outcome.result
        );
    }
}

#[test]
fn a_server_that_stops_answers_never_or_drips_is_given_up() {
    type Answer = fn(u64) -> Reply;
    let answers: [(&str, Answer); 5] = [
        ("short", |length| Reply::Short(length, b"x".to_vec())),
        ("silent", |length| Reply::Hang(length, b"x".to_vec())),
        ("dripping", Reply::Drip),
        ("failing", |_| Reply::status(503)),
        ("busy", |_| Reply::status(429)),
    ];
    for (what, answer) in answers {
        let (server, _) = but(move |image, request| {
            is_layer(image, request, 1).then(|| answer(image.blob(&image.layers[1]).len() as u64 + 100_000))
        });
        // A size that matches the promise does not matter here: nothing of it comes.
        let outcome = pull(&server, &for_server(what));
        assert!(
            ["image_unreachable", "image_mismatch"].contains(&outcome.code()),
            "{what}: {:?}",
            outcome.result
        );
        assert!(outcome.retries() <= 8, "{what}");
        assert_eq!(outcome.store.list().unwrap(), []);
        assert!(listing(&outcome.store.root().join("staging")).is_empty());
    }
}

#[test]
fn documents_are_bounded_in_bytes_and_time() {
    type Answer = fn() -> Reply;
    let answers: [(&str, Answer, &str); 7] = [
        ("endless", || Reply::Endless, "image_too_large"),
        ("dripping", || Reply::Drip(1_000_000), "image_unreachable"),
        ("silent", || Reply::Hang(100, b"{".to_vec()), "image_unreachable"),
        ("short", || Reply::Short(100, b"{".to_vec()), "image_unreachable"),
        ("empty", || Reply::ok(""), "image_manifest_invalid"),
        (
            "deep",
            || Reply::ok("[".repeat(1 << 20)),
            "image_manifest_invalid",
        ),
        ("text", || Reply::ok("<html>"), "image_manifest_invalid"),
    ];
    for (what, answer, expected) in answers {
        let server = Server::start(move |_| answer());
        let outcome = pull(&server, &for_server(what));
        assert_eq!(outcome.code(), expected, "{what}: {:?}", outcome.result);
        assert_eq!(server.requests().len(), 1);
    }
    let (server, _) = but(|_, _| None);
    let small = PullOptions {
        limits: Limits {
            transferred_bytes: 1000,
            ..Limits::default()
        },
        ..options()
    };
    assert_eq!(pull(&server, &small).code(), "image_too_large");
    let small = PullOptions {
        limits: Limits {
            unpacked_bytes: 100_000,
            ..Limits::default()
        },
        ..options()
    };
    let outcome = pull(&server, &small);
    assert_eq!(outcome.code(), "image_too_large");
    assert!(
        !outcome.left().iter().any(|line| line.contains("noise")),
        "{:?}",
        outcome.left()
    );
    drop(outcome.dir);
}

#[test]
fn an_index_in_an_index_in_an_index_ends() {
    let mut inner = Fixture::new().blob(&Fixture::new().manifest).to_vec();
    let mut blobs = std::collections::BTreeMap::new();
    for _ in 0..6 {
        let mut one = crate::support::image::descriptor(crate::support::image::OCI_INDEX, &inner);
        one["platform"] = serde_json::json!({"os": "linux", "architecture": "amd64"});
        blobs.insert(Digest::of(&inner).to_string(), inner);
        inner = serde_json::json!({"schemaVersion": 2, "manifests": [one]})
            .to_string()
            .into_bytes();
    }
    let server = Server::start(move |request| {
        let last = request.path.rsplit('/').next().unwrap();
        Reply::ok(blobs.get(last).unwrap_or(&inner).clone())
    });
    assert_eq!(pull(&server, &options()).code(), "image_manifest_invalid");
    assert_eq!(server.requests().len(), 4);
}

/// Two addresses of this machine are two hosts.
#[test]
fn credentials_do_not_follow_to_another_host() {
    let image = Fixture::new();
    let own = image.clone();
    let elsewhere = Server::start_on("127.0.0.2", move |request| good(&own, request));
    let (own, there) = (image.clone(), elsewhere.host.clone());
    let server = Server::start(move |request| match request.header("authorization") {
        None => Reply::with(401, &[("WWW-Authenticate", "Basic realm=\"x\"")]),
        Some(_) if request.path.contains("/blobs/") => {
            let to = format!("http://{there}{}?ticket=1", request.path);
            Reply::with(307, &[("Location", to.split('?').next().unwrap())])
        }
        Some(_) => good(&own, request),
    });
    let outcome = pull(&server, &with_login());
    assert_eq!(outcome.code(), "ok", "{:?}", outcome.result);
    let here: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(here[0], None);
    assert!(
        here[1..]
            .iter()
            .all(|value| value.as_deref() == Some("Basic dXNlcjpwYXNzd29yZA==")),
        "{here:?}"
    );
    let there = elsewhere.requests();
    assert_eq!(there.len(), 3);
    assert!(
        there
            .iter()
            .all(|request| request.header("authorization").is_none()),
        "{there:?}"
    );
}

#[test]
fn redirects_lead_to_no_plain_http_of_others_and_end() {
    for (to, expected) in [
        ("http://registry.invalid/x", "image_plain_http"),
        ("ftp://127.0.0.1/x", "image_unreachable"),
        ("//127.0.0.1/x", "image_unreachable"),
        ("http://user:password@127.0.0.1/x", "image_unreachable"),
        ("/v2/a/manifests/1", "image_unreachable"),
        ("", "image_unreachable"),
    ] {
        let server = Server::start(move |_| Reply::with(302, &[("Location", to)]));
        let outcome = pull(&server, &options());
        assert_eq!(outcome.code(), expected, "{to}: {:?}", outcome.result);
        assert!(server.requests().len() <= 6, "{to}");
    }
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    // Without TLS nothing is asked of another machine, not even its name looked up, unless that is allowed.
    let other: Reference = "registry.invalid:5000/a".parse().unwrap();
    for plain_http in [false, true] {
        let error = store
            .pull(
                &other,
                &PullOptions {
                    plain_http,
                    ..options()
                },
                &|_| ControlFlow::Continue(()),
            )
            .unwrap_err();
        assert_eq!(error.code(), "image_unreachable");
    }
}

#[test]
fn a_token_is_fetched_once_and_used() {
    let image = Fixture::new();
    let own = image.clone();
    let server = Server::start(move |request| {
        if let Some(query) = request.path.strip_prefix("/token?") {
            assert_eq!(query, "service=s%20x&scope=repository:a:pull");
            assert_eq!(
                request.header("authorization"),
                Some("Basic dXNlcjpwYXNzd29yZA==")
            );
            return Reply::ok(r#"{"access_token":"t1"}"#);
        }
        match request.header("authorization") {
            Some("Bearer t1") => good(&own, request),
            _ => {
                let host = request.header("host").unwrap();
                let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"s x\"");
                Reply::with(401, &[("WWW-Authenticate", &challenge)])
            }
        }
    });
    let outcome = pull(&server, &with_login());
    assert_eq!(outcome.code(), "ok", "{:?}", outcome.result);
    let tokens = server
        .paths()
        .iter()
        .filter(|path| path.starts_with("/token"))
        .count();
    assert_eq!(tokens, 1);
}

#[test]
fn a_login_that_goes_in_circles_ends() {
    for (challenge, answer) in [
        ("Basic realm=\"x\"", None),
        (
            "Bearer realm=\"http://HOST/token\"",
            Some(Reply::ok(r#"{"token":"t"}"#)),
        ),
        (
            "Bearer realm=\"http://HOST/token\"",
            Some(Reply::ok(r#"{"token":"a\r\nx: y"}"#)),
        ),
        ("Bearer realm=\"http://HOST/token\"", Some(Reply::ok("{}"))),
        ("Bearer realm=\"http://HOST/token\"", Some(Reply::status(401))),
        ("Bearer realm=\"http://HOST/token\"", Some(Reply::Endless)),
        ("Bearer realm=\"http://registry.invalid/token\"", None),
        ("Bearer realm=\"file:///etc/passwd\"", None),
        ("Negotiate", None),
        ("", None),
    ] {
        let reply = answer.clone();
        let server = Server::start(
            move |request| match (&reply, request.path.starts_with("/token")) {
                (Some(reply), true) => reply.clone(),
                _ => {
                    let host = request.header("host").unwrap();
                    Reply::with(401, &[("WWW-Authenticate", &challenge.replace("HOST", host))])
                }
            },
        );
        let outcome = pull(&server, &with_login());
        assert!(
            ["image_denied", "image_plain_http", "image_too_large"].contains(&outcome.code()),
            "{challenge}: {:?}",
            outcome.result
        );
        assert!(server.requests().len() <= 3, "{challenge}: {:?}", server.paths());
        let told = format!("{:?} {}", outcome.result, outcome.result.as_ref().unwrap_err());
        assert!(!told.contains("password") && !told.contains("dXNlcjp"), "{told}");
    }
}

#[test]
fn what_a_registry_says_is_harmless_on_a_terminal() {
    let body = serde_json::json!({"errors": [{"code": "DENIED", "message": format!("no\u{1b}[2J\n{}", "x".repeat(1000))}]});
    let server = Server::start(move |_| Reply::Whole(403, vec![], body.to_string().into_bytes()));
    let outcome = pull(&server, &options());
    let told = outcome.result.unwrap_err().to_string();
    assert!(
        told.contains("no[2Jxxx") && told.len() < 400 && !told.contains(char::is_control),
        "{told:?}"
    );
}
