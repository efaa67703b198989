//! What a bad engine does to us: a typed reason within the deadline, and nothing left behind.
#![cfg(feature = "docker")]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/fake_engine.rs"]
mod fake_engine;

use fake_engine::{FakeEngine, Reply, dead_socket, version};
use std::path::PathBuf;
use std::time::Duration;
use stead_providers::docker::address::Address;
use stead_providers::docker::container::ContainerExit;
use stead_providers::docker::engine::{ApiVersion, Deadlines, Engine};
use stead_providers::docker::error::EngineError;
use stead_providers::docker::image::{EnvSecrets, ImageFacts, Prepare, SecretSource};
use stead_providers::docker::options::{PullPolicy, RegistryAuth};
use stead_providers::docker::reference::ImageRef;
use stead_types::{Availability, Code, Missing, ProvisionError};

/// Short where a test waits for the end of a deadline. Whatever answers gets the long ones, so that no test
/// is about how fast this machine is.
fn short() -> Deadlines {
    let limit = Duration::from_millis(200);
    Deadlines {
        probe: limit,
        call: limit,
        remove: limit,
        ..Deadlines::default()
    }
}

fn deadlines_for(reply: &Reply) -> Deadlines {
    match reply {
        Reply::Hang(_) => short(),
        Reply::Json(..) | Reply::Raw(_) | Reply::After(..) => Deadlines::default(),
    }
}

fn engine_at(socket: PathBuf, deadlines: Deadlines) -> Engine {
    Engine::new(Some(Address::Unix(socket)), deadlines)
}

async fn missing(engine: &Engine) -> Missing {
    match engine.probe().await {
        Availability::Available => panic!("it passed for an engine"),
        Availability::Unavailable(missing) => missing,
    }
}

/// Every way to misbehave, with the code that it has to give.
fn misbehaviours() -> Vec<(&'static str, Reply, &'static str)> {
    let json = |status, text: &str| Reply::Json(status, text.to_owned());
    vec![
        (
            "forbidden",
            json(403, r#"{"message":"no"}"#),
            "docker_permission_denied",
        ),
        ("slow", Reply::Hang(Vec::new()), "docker_timed_out"),
        ("hangs mid-body", Reply::hang_mid_body(), "docker_timed_out"),
        (
            "hangs mid-error",
            Reply::Hang(b"HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\n{".into()),
            "docker_timed_out",
        ),
        (
            "garbage",
            Reply::Raw(b"\x00\xff\x16garbage\r\n\r\n".into()),
            "docker_error",
        ),
        (
            "another protocol",
            Reply::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".into()),
            "docker_error",
        ),
        ("closes at once", Reply::Raw(Vec::new()), "docker_error"),
        (
            "cut mid-body",
            Reply::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".into()),
            "docker_error",
        ),
        ("no JSON", json(200, "<html>"), "docker_error"),
        ("JSON of another kind", json(200, "[]"), "docker_error"),
        ("no version", json(200, "{}"), "docker_error"),
        (
            "a version that is none",
            json(200, &version("one", "two")),
            "docker_error",
        ),
        (
            "an error",
            json(500, r#"{"message":"the disk is on fire"}"#),
            "docker_error",
        ),
        (
            "an error that is no JSON",
            json(502, "<html>bad gateway"),
            "docker_error",
        ),
        (
            "too old",
            json(200, &version("1.24", "1.12")),
            "docker_api_version",
        ),
        (
            "too new",
            json(200, &version("1.99", "1.60")),
            "docker_api_version",
        ),
        (
            "another system",
            json(200, &version("1.41", "1.12").replace("linux", "windows")),
            "docker_error",
        ),
    ]
}

#[tokio::test]
async fn a_probe_tells_the_ways_to_misbehave_apart() {
    for (name, reply, code) in misbehaviours() {
        let deadlines = deadlines_for(&reply);
        let fake = FakeEngine::start(move |_| reply.clone());
        let missing = missing(&engine_at(fake.socket(), deadlines)).await;
        assert_eq!(missing.code, code, "{name}: {missing:?}");
        assert!(!missing.reason.is_empty() && !missing.remedy.is_empty());
    }
    // The control: the same probe passes for an engine that behaves.
    let fake = FakeEngine::negotiating(|_| Reply::ok("{}"));
    assert_eq!(
        engine_at(fake.socket(), Deadlines::default()).probe().await,
        Availability::Available
    );
}

#[tokio::test]
async fn an_engines_own_words_are_in_the_reason() {
    let fake = FakeEngine::start(|_| Reply::Json(500, r#"{"message":"the disk is on fire"}"#.to_owned()));
    assert!(
        missing(&engine_at(fake.socket(), Deadlines::default()))
            .await
            .reason
            .contains("the disk is on fire")
    );
}

#[tokio::test]
async fn no_socket_and_a_dead_socket_are_different() {
    let folder = tempfile::tempdir().unwrap();
    let dead = missing(&engine_at(dead_socket(folder.path()), Deadlines::default())).await;
    assert_eq!(dead.code, "docker_not_running");
    let error = engine_at(folder.path().join("none"), Deadlines::default())
        .facts()
        .await
        .unwrap_err();
    assert!(matches!(error, EngineError::NoSocket { .. }), "{error:?}");
    let tcp = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let closed = Engine::new(Some(Address::Tcp(tcp.to_string())), Deadlines::default());
    assert_eq!(missing(&closed).await.code, "docker_not_running");
}

#[tokio::test]
async fn a_probe_is_cached_and_asks_again_when_that_is_too_old() {
    let fake = FakeEngine::negotiating(|_| Reply::ok("{}"));
    let engine = engine_at(fake.socket(), Deadlines::default());
    for _ in 0..10 {
        engine.probe().await;
    }
    assert_eq!(fake.lines().len(), 1);
    let fresh = engine_at(
        fake.socket(),
        Deadlines {
            probe_age: Duration::ZERO,
            ..Deadlines::default()
        },
    );
    for _ in 0..3 {
        fresh.probe().await;
    }
    assert_eq!(fake.lines().len(), 4);
}

#[tokio::test]
async fn many_probes_at_once_are_all_answered_within_the_deadline_of_one() {
    let fake = FakeEngine::start(|_| Reply::Hang(Vec::new()));
    let engine = engine_at(fake.socket(), short());
    let probes = futures_util::future::join_all((0..20).map(|_| engine.probe())).await;
    assert!(probes.iter().all(|probe| !probe.is_available()));
}

#[tokio::test]
async fn every_call_of_a_good_engine_that_turns_bad_has_a_typed_error() {
    for (name, reply, _) in misbehaviours() {
        let hangs = matches!(reply, Reply::Hang(_));
        // A removal tries errors again until its time is over.
        let deadlines = Deadlines {
            remove: short().remove,
            ..deadlines_for(&reply)
        };
        let fake = FakeEngine::negotiating(move |_| reply.clone());
        let engine = engine_at(fake.socket(), deadlines);
        let errors = [
            engine.start_container("x").await.err(),
            engine.inspect_container("x").await.err(),
            engine.inspect_image(&ImageRef::parse("x").unwrap()).await.err(),
            engine.create_container("x", Default::default()).await.err(),
            engine.exec_relay("x", &["true"], None).await.err(),
            engine.remove_container("x").await.err(),
        ];
        let codes: Vec<_> = errors
            .iter()
            .map(|error| error.as_ref().map(EngineError::code))
            .collect();
        // A start needs nothing but the status.
        let is_fine = matches!(name, "no JSON" | "JSON of another kind" | "cut mid-body")
            || name.contains("version")
            || name.contains("too ")
            || name.contains("another system");
        // How fast the head of an answer comes that hangs later is the machine's affair.
        assert!(hangs || codes[0].is_none() == is_fine, "{name}: {:?}", errors[0]);
        assert!(codes[1..].iter().all(Option::is_some), "{name}: {errors:?}");
    }
}

#[tokio::test]
async fn requests_say_which_version_they_are_of() {
    let fake = FakeEngine::negotiating(|_| Reply::ok("[]"));
    let engine = engine_at(fake.socket(), Deadlines::default());
    assert_eq!(engine.list_containers().await.unwrap(), []);
    assert_eq!(engine.facts().await.unwrap().api, ApiVersion(1, 41));
    let lines = fake.lines();
    assert!(lines[1].starts_with("GET /v1.41/containers/json?"), "{lines:?}");
}

#[tokio::test]
async fn an_engine_that_comes_back_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let engine = engine_at(dead_socket(folder.path()), Deadlines::default());
    assert_eq!(
        engine.list_containers().await.unwrap_err().code(),
        "docker_not_running"
    );
    let fake = FakeEngine::negotiating(|_| Reply::ok("[]"));
    std::fs::remove_file(folder.path().join("dead")).unwrap();
    std::os::unix::fs::symlink(fake.socket(), folder.path().join("dead")).unwrap();
    assert_eq!(engine.list_containers().await.unwrap(), []);
}

#[tokio::test]
async fn what_a_late_creation_made_is_removed() {
    let fake = FakeEngine::negotiating(|request| match request.line.split(' ').next() {
        Some("POST") => Reply::After(
            Duration::from_millis(600),
            Box::new(Reply::Json(201, r#"{"Id":"abc","Warnings":[]}"#.to_owned())),
        ),
        _ => Reply::Json(404, r#"{"message":"gone"}"#.to_owned()),
    });
    let engine = engine_at(fake.socket(), short());
    let error = engine
        .create_container("stead-late", Default::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), "docker_timed_out");
    until(&fake, "DELETE /v1.41/containers/stead-late?").await;
}

#[tokio::test]
async fn what_a_dropped_creation_made_is_removed() {
    let made = r#"{"Id":"abc","Warnings":[]}"#;
    let fake = FakeEngine::negotiating(move |request| match request.line.split(' ').next() {
        Some("POST") => Reply::After(
            Duration::from_millis(100),
            Box::new(Reply::Json(201, made.to_owned())),
        ),
        _ => Reply::Json(404, r#"{"message":"gone"}"#.to_owned()),
    });
    let engine = engine_at(fake.socket(), Deadlines::default());
    tokio::select! {
        _ = engine.create_container("stead-dropped", Default::default()) => panic!("it was to be dropped"),
        () = until(&fake, "POST /v1.41/containers/create") => {}
    }
    until(&fake, "DELETE /v1.41/containers/stead-dropped?").await;
}

async fn until(fake: &FakeEngine, start: &str) {
    while !fake.lines().iter().any(|line| line.starts_with(start)) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_removal_waits_for_one_that_is_under_way() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let fake = FakeEngine::negotiating(move |request| match request.line.split(' ').next() {
        Some("DELETE") => Reply::Json(
            409,
            r#"{"message":"removal of container x is already in progress"}"#.to_owned(),
        ),
        _ => match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0..3 => Reply::ok(r#"{"Id":"x","State":{"Status":"removing"}}"#),
            _ => Reply::Json(404, r#"{"message":"gone"}"#.to_owned()),
        },
    });
    engine_at(fake.socket(), Deadlines::default())
        .remove_container("x")
        .await
        .unwrap();
    assert_eq!(
        fake.lines()
            .iter()
            .filter(|line| line.starts_with("GET /v1.41/containers/x/json"))
            .count(),
        4
    );
}

#[tokio::test]
async fn a_container_that_stays_is_never_called_removed() {
    let fake = FakeEngine::negotiating(|request| match request.line.split(' ').next() {
        Some("DELETE") => Reply::Json(500, r#"{"message":"device or resource busy"}"#.to_owned()),
        _ => Reply::ok(r#"{"Id":"x","State":{"Status":"dead"}}"#),
    });
    let patient = Deadlines {
        remove: Duration::from_secs(2),
        ..Deadlines::default()
    };
    let error = engine_at(fake.socket(), patient)
        .remove_container("x")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("device or resource busy"), "{error}");
    let fake = FakeEngine::negotiating(|request| match request.line.split(' ').next() {
        Some("DELETE") => Reply::Json(204, String::new()),
        _ => Reply::ok(r#"{"Id":"x","State":{"Status":"running"}}"#),
    });
    let error = engine_at(fake.socket(), short())
        .remove_container("x")
        .await
        .unwrap_err();
    assert_eq!(error.code(), "docker_timed_out");
}

#[tokio::test]
async fn waiting_for_a_container_tells_its_code_from_its_absence() {
    for (reply, expected) in [
        (Reply::ok(r#"{"StatusCode":0}"#), Some(ContainerExit::Code(0))),
        (Reply::ok(r#"{"StatusCode":137}"#), Some(ContainerExit::Code(137))),
        (
            Reply::Json(404, r#"{"message":"No such container"}"#.to_owned()),
            Some(ContainerExit::Gone),
        ),
        (Reply::ok(""), None),
        (Reply::ok("<html>"), None),
    ] {
        let shown = format!("{reply:?}");
        let fake = FakeEngine::negotiating(move |_| reply.clone());
        let exit = engine_at(fake.socket(), Deadlines::default())
            .wait_container("x")
            .await;
        assert_eq!(exit.ok(), expected, "{shown}");
    }
}

struct OneSecret;

impl SecretSource for OneSecret {
    fn secret(&self, name: &str) -> Result<String, String> {
        (name == "known")
            .then(|| "pa?>ss~~~???>>>".to_owned())
            .ok_or_else(|| "nobody has it".to_owned())
    }
}

async fn prepare(
    engine: &Engine,
    policy: PullPolicy,
    secret: Option<&str>,
) -> Result<ImageFacts, ProvisionError> {
    let auth = secret.map(|secret| RegistryAuth {
        username: "u".to_owned(),
        password_secret: secret.to_owned(),
    });
    let secrets: &dyn SecretSource = if auth.is_some() { &OneSecret } else { &EnvSecrets };
    let prepare = Prepare {
        policy,
        auth: auth.as_ref(),
        secrets,
        progress: &|_| {},
    };
    engine
        .prepare_image(&ImageRef::parse("h.example/a:1").unwrap(), &prepare)
        .await
}

#[tokio::test]
async fn a_bad_pull_is_its_own_error_whatever_is_wrong() {
    let missing = || Reply::Json(404, r#"{"message":"No such image"}"#.to_owned());
    let stream = |text: &str| Reply::ok(text);
    for (reply, word) in [
        (
            Reply::Json(404, r#"{"message":"manifest unknown"}"#.to_owned()),
            "manifest unknown",
        ),
        (
            Reply::Json(500, r#"{"message":"unauthorized"}"#.to_owned()),
            "unauthorized",
        ),
        (Reply::Json(403, r#"{"message":"denied"}"#.to_owned()), "denied"),
        (
            stream(
                "{\"status\":\"x\"}\r\n{\"errorDetail\":{\"message\":\"no space\"},\"error\":\"no space\"}\r\n",
            ),
            "no space",
        ),
        (stream("{\"status\":\"x\"}\r\n{\"sta"), "cannot be read"),
        (stream("<html>\n"), "cannot be read"),
        (stream("{\"status\":\"done\"}\r\n"), "is not there"),
        (Reply::Hang(Vec::new()), "no progress"),
        (Reply::hang_mid_body(), "no progress"),
        (Reply::Raw(b"\xff\xfe\r\n\r\n".into()), "cannot be read"),
    ] {
        let shown = format!("{reply:?}");
        let pull_stall = match &reply {
            Reply::Hang(_) => short().call,
            _ => Deadlines::default().pull_stall,
        };
        let deadlines = Deadlines {
            pull_stall,
            ..Deadlines::default()
        };
        let fake = FakeEngine::negotiating(move |request| match request.line.contains("/images/create") {
            true => reply.clone(),
            false => missing(),
        });
        let error = prepare(&engine_at(fake.socket(), deadlines), PullPolicy::IfMissing, None)
            .await
            .unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, ProvisionError::PullFailed { .. }),
            "{shown}: {error:?}"
        );
        assert!(
            text.contains(word) && text.contains("h.example/a:1"),
            "{shown}: {text}"
        );
    }
}

#[tokio::test]
async fn an_image_that_may_not_be_pulled_is_missing() {
    let fake = FakeEngine::negotiating(|_| Reply::Json(404, r#"{"message":"No such image"}"#.to_owned()));
    let engine = engine_at(fake.socket(), Deadlines::default());
    let error = prepare(&engine, PullPolicy::Never, None).await.unwrap_err();
    assert!(matches!(&error, ProvisionError::ImageMissing { image, .. } if image == "h.example/a:1"));
    assert!(error.remedy().contains("docker pull h.example/a:1"));
    assert!(!fake.lines().iter().any(|line| line.starts_with("POST")));
}

#[tokio::test]
async fn always_pulls_also_what_is_there() {
    let fake = FakeEngine::negotiating(|request| match request.line.starts_with("POST") {
        true => Reply::ok("{\"status\":\"up to date\"}\r\n"),
        false => Reply::ok(r#"{"Id":"sha256:1","Config":{"User":"web"},"Architecture":"amd64"}"#),
    });
    let engine = engine_at(fake.socket(), Deadlines::default());
    let facts = prepare(&engine, PullPolicy::IfMissing, None).await.unwrap();
    assert_eq!(
        (facts.id.as_str(), facts.user.as_deref()),
        ("sha256:1", Some("web"))
    );
    assert!(!fake.lines().iter().any(|line| line.starts_with("POST")));
    prepare(&engine, PullPolicy::Always, None).await.unwrap();
    let pulls = fake
        .lines()
        .into_iter()
        .filter(|line| line.starts_with("POST"))
        .collect::<Vec<_>>();
    assert_eq!(
        pulls,
        ["POST /v1.41/images/create?fromImage=h.example%2Fa&tag=1&platform= HTTP/1.1"]
    );
}

#[tokio::test]
async fn credentials_come_by_name_in_an_encoding_that_engines_read() {
    let fake = FakeEngine::negotiating(|request| match request.line.starts_with("POST") {
        true => Reply::Json(500, r#"{"message":"no"}"#.to_owned()),
        false => Reply::Json(404, r#"{"message":"No such image"}"#.to_owned()),
    });
    let engine = engine_at(fake.socket(), Deadlines::default());
    let unknown = prepare(&engine, PullPolicy::IfMissing, Some("unknown"))
        .await
        .unwrap_err();
    assert!(
        matches!(unknown, ProvisionError::Option { option, .. } if option == "registry_auth.password_secret")
    );
    let error = prepare(&engine, PullPolicy::IfMissing, Some("known"))
        .await
        .unwrap_err();
    assert!(!format!("{error:?}").contains("pa?>ss"));
    let header = fake.last_header("X-Registry-Auth").unwrap();
    assert!(
        !header.contains(['+', '/']) && header.contains(['-', '_']),
        "{header}"
    );
}
