use super::*;
use crate::fake::Fake;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stead_types::error::Code;
use stead_types::{Availability, CommandLine, Stdin};

fn fake(name: &str) -> Arc<Fake> {
    Arc::new(Fake::new(name))
}

fn place(fake: &Arc<Fake>) -> ToolPlace {
    ToolPlace::new(Arc::clone(fake) as Arc<dyn Provider>)
        .tool("greet", "echo hello-{{who}}")
        .unwrap()
}

async fn never() -> Result<String, Source> {
    panic!("the local implementation must not run")
}

async fn local() -> Result<String, Source> {
    Ok("LOCAL".to_owned())
}

async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..500 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not happen");
}

fn exits(code: i32, stdout: &str, stderr: &str) -> ExecResult {
    ExecResult {
        stdout: stdout.into(),
        stderr: stderr.into(),
        stdout_total_bytes: stdout.len() as u64,
        stderr_total_bytes: stderr.len() as u64,
        exit_code: Some(code),
        ..ExecResult::default()
    }
}

#[tokio::test]
async fn a_declared_command_runs_in_the_place_with_quoted_arguments() {
    let fake = fake("docker");
    let place = place(&fake);
    place
        .run_tool("greet", &json!({"who": "a; echo pwned"}), never)
        .await
        .unwrap();
    let executed = fake.executed.lock().unwrap().clone();
    assert_eq!(
        executed[0].0,
        CommandLine::Shell("echo hello-'a; echo pwned'".to_owned())
    );
}

#[tokio::test]
async fn a_tool_has_its_own_input_timeout_and_env() {
    let fake = fake("docker");
    let command = ToolCommand::argv(["cat", "{{f}}"])
        .and_then(|tool| tool.stdin("<{{x}}>"))
        .unwrap();
    let command = command.timeout(Duration::from_secs(5)).env("K", "v");
    let place = place(&fake).tool("cat", command).unwrap();
    place
        .run_tool("cat", &json!({"f": "a b", "x": "y'z"}), never)
        .await
        .unwrap();
    let (line, config) = fake.executed.lock().unwrap()[0].clone();
    assert_eq!(line, CommandLine::from(["cat", "a b"]));
    assert_eq!(config.stdin, Some(Stdin::Bytes(b"<y'z>".to_vec())));
    assert_eq!(
        config,
        ComputeConfig::new()
            .stdin("<y'z>")
            .timeout(Duration::from_secs(5))
            .env("K", "v")
    );
}

#[tokio::test]
async fn a_tool_without_a_command_runs_locally_with_one_warning() {
    let fake = fake("docker");
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    let place = place(&fake).on_event(move |event| seen.lock().unwrap().push(event.clone()));
    for _ in 0..3 {
        assert_eq!(place.run_tool("other", &json!({}), local).await.unwrap(), "LOCAL");
    }
    assert!(
        place
            .call("third", &json!({}), async || Ok("x".to_owned()))
            .await
            .unwrap()
            .ran_on_host
    );
    place.run_tool("greet", &json!({}), never).await.unwrap();
    let ran = |tool: &str| ToolEvent::RanOnHost {
        tool: tool.to_owned(),
        place: "docker".to_owned(),
    };
    assert_eq!(*events.lock().unwrap(), [ran("other"), ran("third")]);
    assert_eq!(fake.provisions(), 1);
}

#[tokio::test]
async fn a_strict_place_refuses_what_has_no_command() {
    let fake = fake("docker");
    let place = place(&fake).strict(true);
    let error = place.run_tool("other", &json!({}), never).await.unwrap_err();
    assert_eq!(error.code(), "tool_not_declared");
    place.run_tool("greet", &json!({}), never).await.unwrap();
    place.set_command("other", ["true"]).unwrap();
    place.run_tool("other", &json!({}), never).await.unwrap();
}

#[tokio::test]
async fn a_failing_local_implementation_is_an_error() {
    let place = place(&fake("docker"));
    let error = place
        .run_tool("x", &json!({}), async || Err("no".into()))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "tool_local_failed");
    assert!(!error.to_string().contains("no "), "{error}");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "no");
}

#[tokio::test]
async fn a_place_that_is_not_available_runs_nothing_at_all() {
    let fake = fake("docker");
    let place = place(&fake);
    *fake.missing.lock().unwrap() = Some(Availability::missing(
        "docker_not_running",
        "no daemon.",
        "Start it.",
    ));
    let error = place.run_tool("greet", &json!({}), never).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "tools_run_on='docker' but that provider is not available here: no daemon. Tool 'greet' was not run; \
         nothing was run on the host"
    );
    assert_eq!(
        (error.code(), error.remedy()),
        ("place_unavailable", "Start it.".to_owned())
    );
    assert_eq!(fake.provisions(), 0);
    *fake.missing.lock().unwrap() = None;
    place.run_tool("greet", &json!({}), never).await.unwrap();
}

#[tokio::test]
async fn a_timeout_is_an_error_with_what_was_printed() {
    let fake = fake("local");
    let place = place(&fake);
    let after = Duration::from_secs(1);
    let timed_out = ExecResult {
        timed_out: true,
        duration: after,
        ..ExecResult::default()
    };
    let silent = timed_out.clone();
    fake.answers(move |_| Ok(silent.clone()));
    let error = place.run_tool("greet", &json!({}), never).await.unwrap_err();
    assert_eq!(error.code(), "tool_timed_out");
    assert!(
        error
            .to_string()
            .starts_with("tool 'greet' timed out on local after 1s. No output was produced")
    );
    let stdout = [b"first".as_slice(), &[b'.'; 20_000], b"last\n"].concat();
    let stdout_total_bytes = stdout.len() as u64;
    let loud = ExecResult {
        stdout,
        stdout_total_bytes,
        ..timed_out
    };
    fake.answers(move |_| Ok(loud.clone()));
    let message = place
        .run_tool("greet", &json!({}), never)
        .await
        .unwrap_err()
        .to_string();
    assert!(message.ends_with("..last") && message.contains("stdout so far: [not all of it]"));
    assert!(!message.contains("first") && message.len() < 9_000);
}

#[tokio::test]
async fn another_exit_than_zero_is_an_error_with_the_tail() {
    let fake = fake("local");
    let place = place(&fake);
    for (result, expected) in [
        (
            exits(3, "out", "err\n"),
            "tool 'greet' failed on local with exit code 3: err",
        ),
        (
            exits(1, "out\n", " \n"),
            "tool 'greet' failed on local with exit code 1: out",
        ),
        (
            exits(2, "", ""),
            "tool 'greet' failed on local with exit code 2: no output",
        ),
        (
            ExecResult {
                signal: Some(9),
                ..exits(137, "", "")
            },
            "tool 'greet' failed on local with exit code 137 (signal 9): no output",
        ),
    ] {
        fake.answers(move |_| Ok(result.clone()));
        let error = place.run_tool("greet", &json!({}), never).await.unwrap_err();
        assert_eq!(
            (error.to_string().as_str(), error.code()),
            (expected, "tool_failed")
        );
    }
    fake.answers(|_| Ok(exits(0, "fine\n", "warn")));
    assert_eq!(
        place.run_tool("greet", &json!({}), never).await.unwrap(),
        "fine\n"
    );
}

#[tokio::test]
async fn cut_output_says_so() {
    let fake = fake("local");
    fake.answers(|_| {
        Ok(ExecResult {
            stdout_total_bytes: 99,
            ..exits(0, "abc", "")
        })
    });
    assert_eq!(
        place(&fake).run_tool("greet", &json!({}), never).await.unwrap(),
        "abc\n[the first 3 of 99 bytes]"
    );
}

#[test]
fn a_tail_starts_with_a_whole_character() {
    let text = "é".repeat(8 << 10);
    let tail = OutputTail::of(format!("{text}x").as_bytes(), 0);
    assert!(tail.cut && tail.text.starts_with('é') && tail.text.ends_with("éx"));
    assert_eq!(
        OutputTail::of(b" a ", 3),
        OutputTail {
            text: "a".into(),
            cut: false
        }
    );
}

#[tokio::test]
async fn arguments_that_cannot_be_passed_are_errors_before_anything_starts() {
    let fake = fake("local");
    let place = place(&fake);
    for bad in [json!([1]), json!("x"), json!({"who": "\0"})] {
        assert_eq!(
            place.run_tool("greet", &bad, never).await.unwrap_err().code(),
            "tool_arguments_invalid"
        );
    }
    assert_eq!(fake.provisions(), 0);
    place.run_tool("greet", &json!(null), never).await.unwrap();
}

#[test]
fn a_bad_command_is_refused_when_it_is_declared() {
    let place = place(&fake("local"));
    for bad in ["", "echo '{{x}}'", "echo {{"] {
        assert_eq!(
            place.set_command("t", bad).unwrap_err().code(),
            "template_invalid",
            "{bad}"
        );
    }
    assert_eq!(place.tools().len(), 1);
    place.set_command("t", "echo {{x}}").unwrap();
    assert_eq!(place.tools()[1], ("t".to_owned(), vec!["x".to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_first_calls_share_one_instance() {
    let fake = fake("docker");
    let place = Arc::new(place(&fake));
    let calls = (0..50).map(|_| {
        let place = Arc::clone(&place);
        tokio::spawn(async move { place.run_tool("greet", &json!({}), never).await })
    });
    for call in futures_util::future::join_all(calls).await {
        call.unwrap().unwrap();
    }
    assert_eq!(
        (
            fake.provisions(),
            fake.live(),
            fake.executed.lock().unwrap().len()
        ),
        (1, 1, 50)
    );
}

#[tokio::test]
async fn a_first_caller_that_goes_away_blocks_nobody_and_leaks_nothing() {
    let fake = fake("docker");
    let place = Arc::new(place(&fake));
    let first = tokio::spawn({
        let place = Arc::clone(&place);
        async move { place.run_tool("greet", &json!({}), never).await }
    });
    tokio::time::sleep(Duration::from_millis(5)).await;
    let second = tokio::spawn({
        let place = Arc::clone(&place);
        async move { place.run_tool("greet", &json!({}), never).await }
    });
    tokio::time::sleep(Duration::from_millis(1)).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    second.await.unwrap().unwrap();
    assert_eq!((fake.provisions(), fake.live()), (1, 1));
    place.shutdown().await.unwrap();
    assert_eq!(fake.live(), 0);
}

#[tokio::test]
async fn a_failed_start_is_shared_and_the_next_call_tries_again() {
    let fake = fake("docker");
    let place = place(&fake);
    fake.provision_fails.store(true, Ordering::SeqCst);
    let args = json!({});
    let (one, two) = tokio::join!(
        place.run_tool("greet", &args, never),
        place.run_tool("greet", &args, never)
    );
    assert_eq!(one.unwrap_err().code(), "place_provision_failed");
    assert_eq!(two.unwrap_err().code(), "place_provision_failed");
    assert_eq!(fake.provisions(), 1);
    fake.provision_fails.store(false, Ordering::SeqCst);
    place.run_tool("greet", &args, never).await.unwrap();
    assert_eq!(fake.provisions(), 2);
}

#[tokio::test]
async fn the_call_that_sees_the_place_die_gets_an_error_and_the_next_a_new_place() {
    let fake = fake("docker");
    let place = place(&fake);
    place.run_tool("greet", &json!({}), never).await.unwrap();
    fake.live.lock().unwrap().clear();
    let error = place.run_tool("greet", &json!({}), never).await.unwrap_err();
    assert_eq!(error.code(), "place_died");
    assert_eq!(fake.provisions(), 1, "no silent rerun");
    place.run_tool("greet", &json!({}), never).await.unwrap();
    assert_eq!((fake.provisions(), fake.live()), (2, 1));
}

#[tokio::test]
async fn a_lost_command_on_a_living_place_leaves_the_place() {
    let fake = fake("docker");
    let place = place(&fake);
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    fake.answers(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Err(ExecuteError::Lost {
            instance: InstanceId::new("i"),
            reason: "gone".into(),
        })
    });
    let error = place.run_tool("greet", &json!({}), never).await.unwrap_err();
    assert_eq!((error.code(), runs.load(Ordering::SeqCst)), ("tool_no_result", 1));
    fake.answers(|_| Ok(exits(0, "ok", "")));
    place.run_tool("greet", &json!({}), never).await.unwrap();
    assert_eq!(fake.provisions(), 1);
}

#[tokio::test]
async fn shutdown_confirms_tries_again_and_allows_a_new_start() {
    let fake = fake("docker");
    let place = place(&fake);
    place.shutdown().await.unwrap();
    place.run_tool("greet", &json!({}), never).await.unwrap();
    fake.shutdown_fails.store(true, Ordering::SeqCst);
    assert!(place.shutdown().await.is_err());
    assert!(place.shutdown().await.is_err(), "it is not forgotten");
    fake.shutdown_fails.store(false, Ordering::SeqCst);
    place.shutdown().await.unwrap();
    assert_eq!(fake.live(), 0);
    place.run_tool("greet", &json!({}), never).await.unwrap();
    assert_eq!((fake.provisions(), fake.live()), (2, 1));
}

#[tokio::test]
async fn shutdown_waits_for_a_start_that_is_under_way() {
    let fake = fake("docker");
    let place = place(&fake);
    let args = json!({});
    let (_, stopped) = tokio::join!(place.run_tool("greet", &args, never), async {
        tokio::task::yield_now().await;
        place.shutdown().await
    });
    stopped.unwrap();
    eventually(|| fake.live() == 0).await;
}

#[tokio::test]
async fn dropping_a_place_releases_it() {
    let fake = fake("docker");
    let up = place(&fake);
    up.run_tool("greet", &json!({}), never).await.unwrap();
    assert_eq!(fake.live(), 1);
    drop(up);
    eventually(|| fake.live() == 0).await;
    // Also while it is being brought up.
    let starting = place(&fake);
    let args = json!({});
    let call = tokio::time::timeout(Duration::from_millis(5), starting.run_tool("greet", &args, never));
    assert!(call.await.is_err());
    drop(starting);
    eventually(|| fake.provisions() == 2).await;
    tokio::time::sleep(Duration::from_millis(60)).await;
    assert_eq!(fake.live(), 0);
}

#[test]
fn dropping_a_place_outside_of_the_runtime_releases_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let fake = fake("docker");
    let place = place(&fake);
    runtime
        .block_on(place.run_tool("greet", &json!({}), never))
        .unwrap();
    drop(place);
    runtime.block_on(eventually(|| fake.live() == 0));
}

#[tokio::test]
async fn a_host_provider_gives_tools_the_minimal_environment_unless_told_otherwise() {
    let inherited = async |name: &str, config: ComputeConfig| {
        let fake = fake(name);
        place(&fake)
            .config(config)
            .run_tool("greet", &json!({}), never)
            .await
            .unwrap();
        let live = fake.live.lock().unwrap();
        live.values().next().unwrap().inherit_env
    };
    assert_eq!(
        inherited("local", ComputeConfig::new()).await,
        Some(InheritEnv::Minimal)
    );
    assert_eq!(inherited("docker", ComputeConfig::new()).await, None);
    let all = ComputeConfig {
        inherit_env: Some(InheritEnv::All),
        ..ComputeConfig::new()
    };
    assert_eq!(inherited("local", all).await, Some(InheritEnv::All));
}
