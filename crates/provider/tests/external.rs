//! Drives the example provider in Python, and programs that break the protocol.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_provider::{ExternalProvider, Placement, Provider, Registry, ToolPlace};
use stead_types::error::Code;
use stead_types::{
    Availability, CommandLine, ComputeConfig, ExecResult, ExecuteError, InstanceId, ListError,
    ProvisionError, ShutdownError, Stdin,
};

fn example() -> ExternalProvider {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/provider.py");
    ExternalProvider::new("Python", [OsString::from("python3"), path.into_os_string()])
}

async fn up(provider: &ExternalProvider) -> InstanceId {
    provider.provision(ComputeConfig::new()).await.unwrap().id
}

async fn run(provider: &ExternalProvider, id: &InstanceId, command: impl Into<CommandLine>) -> ExecResult {
    provider
        .execute(id, command.into(), ComputeConfig::new())
        .await
        .unwrap()
}

#[tokio::test]
async fn the_example_runs_commands() {
    let provider = example();
    assert_eq!(provider.name(), "python");
    assert_eq!(provider.probe().await, Availability::Available);
    let id = up(&provider).await;
    let result = run(&provider, &id, "echo out; echo err >&2; exit 3").await;
    assert_eq!(
        (result.stdout_text(), result.stderr_text()),
        ("out\n".into(), "err\n".into())
    );
    assert_eq!(
        (result.exit_code, result.signal, result.timed_out),
        (Some(3), None, false)
    );
    let killed = run(&provider, &id, "kill -KILL $$").await;
    assert_eq!((killed.exit_code, killed.signal), (Some(137), Some(9)));
    let odd: Vec<OsString> = ["printf", "%s|", "a b", "$HOME", "'\"", "\n", ""]
        .map(OsString::from)
        .into();
    let odd = [odd, vec![OsString::from_vec(vec![0xff, 0xfe])]].concat();
    assert_eq!(
        run(&provider, &id, odd).await.stdout,
        b"a b|$HOME|'\"|\n||\xff\xfe|"
    );
    let missing = run(&provider, &id, ["no-such-program"]).await;
    assert_eq!(missing.exit_code, Some(127));
    assert!(missing.stderr_text().contains("no-such-program"));
    provider.shutdown(&id).await.unwrap();
    provider.shutdown(&id).await.unwrap();
    assert!(provider.status(&id).await.unwrap().is_none());
}

#[tokio::test]
async fn configuration_of_instance_and_command_is_merged() {
    let provider = example();
    let config = ComputeConfig::new().env("A", "1").env("B", "x\n'$y").workdir("/");
    let id = provider.provision(config).await.unwrap().id;
    let command = ComputeConfig::new().env("A", "2").stdin("in");
    let text = "printf '%s|' \"$A\" \"$B\" \"$(pwd)\"; cat";
    let result = provider.execute(&id, text.into(), command).await.unwrap();
    assert_eq!(result.stdout_text(), "2|x\n'$y|/|in");
    let image = provider.provision(ComputeConfig::new().image("x")).await;
    assert!(
        matches!(image, Err(ProvisionError::Unsupported { .. })),
        "{image:?}"
    );
    let late = provider
        .execute(&id, "true".into(), ComputeConfig::new().image("x"))
        .await;
    assert!(matches!(late, Err(ExecuteError::Unsupported { .. })), "{late:?}");
}

#[tokio::test]
async fn a_timeout_ends_the_tree_and_keeps_the_output() {
    let provider = example();
    let id = up(&provider).await;
    let started = Instant::now();
    let config = ComputeConfig::new().timeout(Duration::from_millis(300));
    let result = provider
        .execute(&id, "echo before; sleep 20 & wait".into(), config)
        .await
        .unwrap();
    assert!(result.timed_out && result.exit_code.is_none());
    assert_eq!(result.stdout_text(), "before\n");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn much_output_and_input_is_exact_and_commands_do_not_wait_for_each_other() {
    let provider = Arc::new(example());
    let id = up(&provider).await;
    // Nobody reads this one: it waits, and the others do not.
    let mut unread = provider
        .spawn(&id, "yes".into(), ComputeConfig::new())
        .await
        .unwrap();
    let input = vec![b'z'; 3 << 20];
    let config = ComputeConfig {
        stdin: Some(Stdin::Bytes(input.clone())),
        ..ComputeConfig::new()
    };
    let result = provider.execute(&id, ["cat"].into(), config).await.unwrap();
    assert!(result.stdout == input);
    let limited = ComputeConfig {
        max_output_bytes: Some(10),
        ..ComputeConfig::new()
    };
    let result = provider
        .execute(&id, "head -c 3000000 /dev/zero".into(), limited)
        .await
        .unwrap();
    assert_eq!(
        (
            result.stdout.len(),
            result.stdout_total_bytes,
            result.stdout_truncated
        ),
        (10, 3_000_000, true)
    );
    unread.control().cancel(Duration::from_secs(1)).await.unwrap();
    let end = unread.wait_discarding_output().await;
    assert!(matches!(end, Err(ExecuteError::Cancelled { .. })), "{end:?}");
    let many = (0..20).map(|n| {
        let (provider, id) = (Arc::clone(&provider), id.clone());
        tokio::spawn(async move {
            run(&provider, &id, format!("echo {n}")).await.stdout_text() == format!("{n}\n")
        })
    });
    for done in futures_util::future::join_all(many).await {
        assert!(done.unwrap());
    }
}

#[tokio::test]
async fn live_input_and_signals_reach_the_command_and_dropping_it_ends_it() {
    let provider = example();
    let id = up(&provider).await;
    let config = || ComputeConfig {
        stdin: Some(Stdin::Stream),
        ..ComputeConfig::new()
    };
    let mut process = provider
        .spawn(&id, "read x; echo got $x; read y".into(), config())
        .await
        .unwrap();
    process.control().write_stdin(b"hello\n").await.unwrap();
    assert_eq!(
        process.next_output().await.unwrap().bytes.as_ref(),
        b"got hello\n"
    );
    process
        .control()
        .signal(9, stead_provider::SignalTarget::Group)
        .await
        .unwrap();
    assert_eq!(process.wait_discarding_output().await.unwrap().signal, Some(9));
    let late = process.control().write_stdin(b"x").await;
    assert!(matches!(late, Err(ExecuteError::NotRunning { .. })), "{late:?}");

    let directory = tempfile::tempdir().unwrap();
    let marker = directory.path().join("marker");
    let text = format!("sleep 1; touch {}", marker.display());
    drop(provider.spawn(&id, text.into(), config()).await.unwrap());
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!marker.exists());
}

#[tokio::test]
async fn when_the_program_dies_its_commands_are_lost_and_the_next_call_starts_it_again() {
    let provider = example();
    let id = up(&provider).await;
    // The shell's parent is the provider program.
    let lost = provider
        .execute(&id, "kill -KILL $PPID; sleep 5".into(), ComputeConfig::new())
        .await;
    assert!(matches!(lost, Err(ExecuteError::Lost { .. })), "{lost:?}");
    let gone = provider.execute(&id, "true".into(), ComputeConfig::new()).await;
    assert!(matches!(gone, Err(ExecuteError::NoInstance { .. })), "{gone:?}");
    let id = up(&provider).await;
    assert_eq!(provider.list_instances().await.unwrap().len(), 1);
    assert!(run(&provider, &id, "true").await.success());
}

#[tokio::test]
async fn dropping_the_provider_ends_the_program() {
    let provider = example();
    let id = up(&provider).await;
    let pid = run(&provider, &id, "echo $PPID")
        .await
        .stdout_text()
        .trim()
        .to_owned();
    let alive = || Path::new("/proc").join(&pid).exists();
    assert!(alive());
    drop(provider);
    for _ in 0..500 {
        if !alive() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it lives on");
}

#[tokio::test]
async fn a_tool_place_works_over_it_by_name() {
    let registry = Registry::new();
    registry.register("python", || Arc::new(example())).unwrap();
    let place: Arc<ToolPlace> = Placement::new()
        .run_on("PYTHON")
        .resolve_in(&registry)
        .unwrap()
        .unwrap();
    place.set_command("greet", "echo hello-{{who}}").unwrap();
    let args = serde_json::json!({"who": "a; echo pwned"});
    let text = place
        .run_tool("greet", &args, async || Ok("LOCAL".to_owned()))
        .await
        .unwrap();
    assert_eq!(text, "hello-a; echo pwned\n");
    place.shutdown().await.unwrap();
}

/// A program in Python with the first answers of the protocol and then `rest`.
fn program(rest: &str) -> ExternalProvider {
    let text = format!(
        "import json,sys,time\n\
         def say(x): print(x if isinstance(x, str) else json.dumps(x), flush=True)\n\
         def ask(): return json.loads(sys.stdin.readline() or sys.exit())\n\
         say({{'id': ask()['id'], 'ok': {{'version': 'stead-provider/1'}}}})\n\
         m = ask()\n\
         if m['op'] == 'provision':\n \
         say({{'id': m['id'], 'ok': {{'id': m['instance'], 'status': 'running',\n  \
         'isolation': {{'process_contained': True, 'network_restricted': False}}}}}})\n \
         m = ask()\n\
         {rest}\n"
    );
    ExternalProvider::new("odd", ["python3", "-c", &text]).deadline(Duration::from_secs(5))
}

#[tokio::test]
async fn what_is_no_answer_is_a_typed_error_in_time() {
    for (rest, expected) in [
        ("say('garbage')", "external_closed"),
        ("say('[' * 100000)", "external_closed"),
        ("say('x' * 2000000)", "external_closed"),
        ("say({'id': 999, 'ok': {}})", "external_closed"),
        (
            "say({'id': m['id'], 'ok': {'instances': 1}})",
            "external_answer_invalid",
        ),
        (
            "say({'id': m['id'], 'error': {'kind': 'x', 'message': 'a\\x1bb'}})",
            "external_refused",
        ),
        (
            "say({'event': 'output', 'command': 'c99', 'stream': 'stdout', 'data': 'aGk='})",
            "external_closed",
        ),
        ("sys.exit(1)", "external_closed"),
        ("time.sleep(60)", "external_timed_out"),
    ] {
        let started = Instant::now();
        let Err(ListError::Failed {
            source: Some(source),
            reason,
            ..
        }) = program(rest).list_instances().await
        else {
            panic!("{rest}");
        };
        let error = source
            .downcast::<stead_provider::external::ExternalError>()
            .unwrap();
        assert_eq!(error.code(), expected, "{rest}: {reason}");
        assert!(!reason.contains('\x1b') && reason.len() < 1_000);
        assert!(started.elapsed() < Duration::from_secs(15), "{rest}");
    }
    let good = program("say({'id': m['id'], 'ok': {'instances': []}}); ask()");
    assert_eq!(good.list_instances().await.unwrap(), []);
}

#[tokio::test]
async fn a_command_that_the_program_handles_badly_is_lost() {
    let output = "{'event': 'output', 'command': m['command'], 'stream': 'stdout', 'data': 'aGk='}";
    for rest in [
        format!("for i in range(40): say({output})\ntime.sleep(60)"),
        "say({'event': 'exit', 'command': m['command'], 'exit_code': 0, 'timed_out': True})".to_owned(),
        "say({'event': 'exit', 'command': m['command']})".to_owned(),
        "say({'event': 'output', 'command': m['command'], 'stream': 'stdout', 'data': '?'})".to_owned(),
        "say({'id': m['id'], 'ok': {}})\nsys.exit()".to_owned(),
        "time.sleep(60)".to_owned(),
    ] {
        let provider = program(&rest);
        let id = up(&provider).await;
        let lost = provider.execute(&id, "x".into(), ComputeConfig::new()).await;
        assert!(matches!(lost, Err(ExecuteError::Lost { .. })), "{rest}: {lost:?}");
    }
    let exit = "say({'event': 'exit', 'command': m['command'], 'exit_code': 0})";
    let good = program(&format!(
        "say({{'id': m['id'], 'ok': {{}}}})\nsay({output})\n{exit}\nask()"
    ));
    let id = up(&good).await;
    assert_eq!(run(&good, &id, "x").await.stdout, b"hi");
}

#[tokio::test]
async fn a_command_that_outlives_its_timeout_is_lost() {
    let provider = program("say({'id': m['id'], 'ok': {}})\ntime.sleep(60)").deadline(Duration::from_secs(5));
    let id = up(&provider).await;
    let config = ComputeConfig {
        grace: Some(Duration::ZERO),
        ..ComputeConfig::new().timeout(Duration::from_millis(100))
    };
    let started = Instant::now();
    let lost = provider.execute(&id, "x".into(), config).await;
    assert!(matches!(lost, Err(ExecuteError::Lost { .. })), "{lost:?}");
    assert!(started.elapsed() < Duration::from_secs(15));
}

#[tokio::test]
async fn isolation_is_not_believed_unless_the_caller_says_so() {
    let claimed = async |provider: ExternalProvider| {
        let axes = provider.provision(ComputeConfig::new()).await.unwrap().isolation;
        (axes.process_contained, axes.network_restricted)
    };
    assert_eq!(claimed(program("ask()")).await, (None, Some(false)));
    assert_eq!(
        claimed(program("ask()").trust_isolation(true)).await,
        (Some(true), Some(false))
    );
}

#[tokio::test]
async fn a_program_that_cannot_be_used_is_not_available() {
    let code = async |provider: &ExternalProvider| match provider.probe().await {
        Availability::Available => "available",
        Availability::Unavailable(missing) => missing.code,
    };
    let absent = ExternalProvider::new("x", ["/no/such/program"]);
    assert_eq!(code(&absent).await, "external_start_failed");
    let error = absent.provision(ComputeConfig::new()).await.unwrap_err();
    assert_eq!(error.code(), "external_start_failed");
    assert!(matches!(
        absent.shutdown(&InstanceId::new("x")).await,
        Err(ShutdownError::StillThere { .. })
    ));
    assert_eq!(
        code(&ExternalProvider::new("x", Vec::<String>::new())).await,
        "external_start_failed"
    );
    let other = "import sys; sys.stdin.readline(); print('{\"id\":1,\"ok\":{\"version\":\"stead-provider/9\"}}', flush=True); sys.stdin.read()";
    assert_eq!(
        code(&ExternalProvider::new("x", ["python3", "-c", other])).await,
        "external_version"
    );
    let no =
        program("say({'id': m['id'], 'ok': {'available': False, 'reason': 'no key', 'remedy': 'Set it.'}})");
    assert_eq!(code(&no).await, "external_unavailable");
}

#[tokio::test]
async fn an_instance_that_nobody_waits_for_any_more_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let text = format!(
        "import json,sys,time\n\
         for line in sys.stdin:\n \
         m = json.loads(line); ok = {{'version': 'stead-provider/1'}}\n \
         if m['op'] == 'provision': time.sleep(0.5); ok = {{'id': m['instance'], 'status': 'running'}}\n \
         if m['op'] == 'shutdown': open({:?}, 'w').write(m['instance'])\n \
         print(json.dumps({{'id': m['id'], 'ok': ok}}), flush=True)\n",
        log.to_str().unwrap()
    );
    let provider = ExternalProvider::new("slow", ["python3", "-c", &text]);
    let call = tokio::time::timeout(
        Duration::from_millis(300),
        provider.provision(ComputeConfig::new()),
    );
    assert!(call.await.is_err());
    for _ in 0..300 {
        if std::fs::read_to_string(&log).is_ok_and(|id| id.len() == 36) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was left behind");
}
