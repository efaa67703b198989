//! The built command, as a user meets it.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The command with folders of its own.
fn stead(state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
    command
        .env("STEAD_STATE_DIR", state.join("state"))
        .env("HOME", state)
        .env_remove("XDG_CONFIG_HOME");
    // The warning of `local` has a test of its own.
    command.env("STEAD_LOG", "error");
    command.current_dir(state);
    command
}

fn run(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    stead(dir.path()).args(args).output().unwrap()
}

fn local(args: &[&str]) -> Output {
    run(&[&["run", "--provider", "local"], args].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn streams_and_codes_are_the_commands_own() {
    let output = local(&["--shell", "echo out; echo err >&2; exit 3"]);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("out\n".into(), "err\n".into())
    );
    assert_eq!(output.status.code(), Some(3));
    for (args, code) in [
        (&["--", "true"][..], 0),
        (&["--shell", "kill -TERM $$"], 143),
        (&["--timeout", "300ms", "--", "sleep", "60"], 124),
        (&["--shell", "exit 124"], 124),
        (&["--", "no-such-program-here"], 127),
        (&["--", "/tmp"], 126),
    ] {
        assert_eq!(local(args).status.code(), Some(code), "{args:?}");
    }
    assert!(text(&local(&["--", "no-such-program-here"]).stderr).contains("no-such-program-here: not found"));
}

#[test]
fn json_is_one_document_with_stable_names() {
    let output = local(&["--json", "--shell", "printf 'a\\377'; echo e >&2"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let names: Vec<&String> = document.as_object().unwrap().keys().collect();
    assert_eq!(
        names,
        [
            "exit_code",
            "signal",
            "timed_out",
            "stdout",
            "stdout_base64",
            "stdout_total_bytes",
            "stdout_truncated",
            "stderr",
            "stderr_total_bytes",
            "stderr_truncated",
            "duration_ms",
            "provider",
            "isolation",
        ]
    );
    assert_eq!(document["isolation"]["process_contained"], false);
}

#[test]
fn input_is_passed_on_and_a_reader_that_stops_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    for (program, expected) in [
        ("cat", "hello".repeat(100_000)),
        ("head -c 5", "hello".to_owned()),
    ] {
        let mut child = stead(dir.path())
            .args(["run", "--provider", "local", "-i", "--shell", program])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // It may stop to read.
        let writer = std::thread::spawn(move || drop(stdin.write_all("hello".repeat(100_000).as_bytes())));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        assert!(text(&output.stdout) == expected && output.status.success());
    }
}

#[test]
fn a_signal_ends_what_was_started() {
    let dir = tempfile::tempdir().unwrap();
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let mut child = stead(dir.path())
            .args([
                "run",
                "--provider",
                "local",
                "--shell",
                "echo $$; exec sleep 4400",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(child.stdout.as_mut().unwrap()),
            &mut line,
        )
        .unwrap();
        assert!(Path::new(&format!("/proc/{}", line.trim())).exists());
        let killed = Command::new("kill")
            .args([&format!("-{signal}"), &child.id().to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert!(!Path::new(&format!("/proc/{}", line.trim())).exists());
    }
    let left = stead(dir.path()).args(["ps", "--json"]).output().unwrap();
    let left: serde_json::Value = serde_json::from_slice(&left.stdout).unwrap();
    let local = left["instances"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|i| i["provider"] == "local")
        .count();
    assert_eq!(local, 0, "{left}");
}

#[test]
fn a_reader_that_is_gone_ends_it_quietly() {
    let dir = tempfile::tempdir().unwrap();
    let stead = format!(
        "{} run --provider local -- yes | head -n 1",
        env!("CARGO_BIN_EXE_stead")
    );
    let output = Command::new("sh")
        .args(["-c", &stead])
        .env("STEAD_STATE_DIR", dir.path().join("state"))
        .env("STEAD_LOG", "error")
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("y\n".into(), String::new())
    );
}

#[test]
fn mistakes_are_told_with_what_to_do_and_a_code() {
    for (args, code, part) in [
        (
            &["run", "--provider", "dokcer", "--", "true"][..],
            125,
            "did you mean 'docker'?",
        ),
        (
            &["run", "--provider", "local", "--image", "x", "--", "true"],
            125,
            "[config_unsupported]",
        ),
        (
            &["run", "--provider", "local", "--memory", "1GiB", "--", "true"],
            125,
            "[config_unsupported]",
        ),
        (
            &["run", "--provider", "local", "--network", "none", "--", "true"],
            125,
            "[config_unsupported]",
        ),
        (
            &["run", "--provider", "local", "--timeout", "soon", "--", "true"],
            2,
            "500ms",
        ),
        (
            &["run", "--provider", "local", "-e", "=x", "--", "true"],
            2,
            "[usage]",
        ),
        (
            &[
                "run",
                "--provider",
                "local",
                "--user",
                "no-such-user",
                "--",
                "true",
            ],
            125,
            "[config_unsupported]",
        ),
        (&["run", "--provider", "local"], 2, "<CMD>"),
        (&["rm", "nothing"], 125, "[instance_not_found]"),
    ] {
        let output = run(args);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}: {}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).contains(part),
            "{args:?}: {}",
            text(&output.stderr)
        );
        assert!(output.stdout.is_empty());
    }
    let output = run(&["run", "--json", "--provider", "nope", "--", "true"]);
    let envelope: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["error"]["code"], "provider_unknown");
    assert_eq!(envelope["error"]["details"]["retryable"], false);
}

/// Without an engine, without an image, without any set-up.
#[test]
fn auto_isolates_by_the_kernel_alone() {
    let dir = tempfile::tempdir().unwrap();
    let probed = stead(dir.path()).args(["providers", "--json"]).output().unwrap();
    let probed: serde_json::Value = serde_json::from_slice(&probed.stdout).unwrap();
    let rows = probed["providers"].as_array().unwrap();
    let native = rows.iter().find(|row| row["provider"] == "native").unwrap();
    if native["available"] != true {
        return stead_testkit::skip("auto_isolates_by_the_kernel_alone", &native["reason"].to_string());
    }
    let ran = stead(dir.path())
        .env(
            "DOCKER_HOST",
            format!("unix://{}", dir.path().join("no.sock").display()),
        )
        .args(["run", "--json", "--shell", "id -u; ls /home"])
        .output()
        .unwrap();
    assert_eq!(text(&ran.stderr), "");
    let ran: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(ran["provider"], "native");
    assert_eq!(ran["stdout"], "0\n");
    for axis in stead::Axis::ALL {
        assert_eq!(ran["isolation"][axis.name()], true, "{axis:?}");
    }
}

#[test]
fn auto_never_means_this_host() {
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("marker");
    let mut command = stead(dir.path());
    command.env(
        "DOCKER_HOST",
        format!("unix://{}", dir.path().join("no.sock").display()),
    );
    let output = command
        // Nothing but an engine has an image.
        .args([
            "run",
            "--image",
            "x",
            "--shell",
            &format!("touch {}", marker.display()),
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let said = text(&output.stderr);
    assert!(
        said.contains("nothing was run on this host") && said.contains("[no_isolating_provider]"),
        "{said}"
    );
    assert!(!marker.exists());
    // The control: asked for by name, the same command runs here.
    assert!(
        stead(dir.path())
            .args([
                "run",
                "--provider",
                "local",
                "--shell",
                &format!("touch {}", marker.display())
            ])
            .status()
            .unwrap()
            .success()
    );
    assert!(marker.exists());
}

#[test]
fn a_tool_is_called_through_a_declared_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("place.toml");
    std::fs::write(&file, "provider = 'local'\n[tools.greet]\ncommand = 'echo hello-{{who}}'\n[tools.bad]\ncommand = 'echo no >&2; exit 9'\n").unwrap();
    let call = |args: &[&str]| {
        stead(dir.path())
            .args(["tool", "run", file.to_str().unwrap()])
            .args(args)
            .output()
            .unwrap()
    };
    let output = call(&["greet", "--arg", "who=a; echo pwned"]);
    assert_eq!(
        text(&output.stdout),
        "hello-a; echo pwned\n",
        "{}",
        text(&output.stderr)
    );
    let output = call(&["greet", "--arg-json", "who=[1]", "--json"]);
    assert_eq!(
        text(&output.stdout),
        "{\"output\":\"hello-[1]\\n\",\"stderr\":\"\",\"output_total_bytes\":10,\"output_truncated\":false}\n"
    );
    let output = call(&["bad"]);
    assert_eq!(output.status.code(), Some(9));
    assert!(text(&output.stderr).contains("no"));
    assert_eq!(call(&["missing"]).status.code(), Some(2));
    std::fs::write(&file, "provider = 'local'\nprovidr = 1\n").unwrap();
    assert_eq!(call(&["greet"]).status.code(), Some(2));
}

#[test]
fn the_configuration_is_shown_with_its_origin_and_a_mistake_stops_all() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("stead.toml"),
        "provider = 'local'\ntimeout = '300ms'\n",
    )
    .unwrap();
    let shown = stead(dir.path())
        .args(["config", "show", "--json"])
        .env("STEAD_IMAGE", "x")
        .output()
        .unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["image"]["origin"], "environment STEAD_IMAGE");
    assert_eq!(shown["pids"]["origin"], "default");
    // And they are effective: this host, and the timeout.
    assert_eq!(
        stead(dir.path())
            .args(["run", "--", "sleep", "60"])
            .output()
            .unwrap()
            .status
            .code(),
        Some(124)
    );
    std::fs::write(dir.path().join("stead.toml"), "providr = 'local'\n").unwrap();
    let output = stead(dir.path()).args(["run", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean `provider`?"));
}

#[test]
fn local_says_once_that_it_does_not_isolate() {
    let dir = tempfile::tempdir().unwrap();
    let output = stead(dir.path())
        .env("STEAD_LOG", "warn")
        .args(["run", "--provider", "local", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stderr).matches("no isolation").count(),
        1,
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn help_of_each_command_has_an_example() {
    for command in [
        &["run"][..],
        &["providers"],
        &["ps"],
        &["prune"],
        &["rm"],
        &["tool", "run"],
        &["config", "show"],
        &["image", "pull"],
        &["image", "ls"],
        &["image", "rm"],
        &["image", "prune"],
    ] {
        let output = run(&[command, &["--help"]].concat());
        assert!(
            output.status.success() && text(&output.stdout).contains("Example"),
            "{command:?}"
        );
    }
    assert!(text(&run(&["completions", "bash"]).stdout).contains("_stead"));
    assert!(text(&run(&["man"]).stdout).contains(".TH stead"));
}

#[test]
fn the_error_texts_are_as_they_were() {
    let output = run(&["run", "--provider", "nope", "--", "true"]);
    insta::assert_snapshot!(text(&output.stderr), @r"
    error: unknown compute provider 'nope'. Available: docker, local, native. Falling back to local would run on the host what was asked to be isolated
    Use one of docker, local, native, or register the provider first. [provider_unknown]
    ");
}

/// A place file in a folder of its own, and what one call of it gives.
fn tool(file: &str, args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("place.toml"), file).unwrap();
    let mut command = stead(dir.path());
    command
        .args(["tool", "run", "place.toml"])
        .args(args)
        .output()
        .unwrap()
}

const PLACE: &str = "provider = \"local\"\n[tools.bytes]\ncommand = \"printf 'a\\\\377b'\"\n\
    [tools.greet]\ncommand = \"echo hello {{who}}\"\n[tools.fails]\ncommand = \"echo why >&2; exit 3\"\n";

#[test]
fn a_tools_bytes_are_printed_as_they_are() {
    assert_eq!(tool(PLACE, &["bytes"]).stdout, b"a\xffb");
    let output = tool(PLACE, &["bytes", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (
            &document["output"],
            &document["output_base64"],
            &document["output_truncated"]
        ),
        (&"a\u{fffd}b".into(), &"Yf9i".into(), &false.into())
    );
    let cut = "provider = \"local\"\n[tools.much]\ncommand = \"head -c 11000000 /dev/zero\"\n";
    let output = tool(cut, &["much"]);
    assert_eq!(output.stdout.len(), 10 << 20, "nothing is mixed into the bytes");
    assert!(text(&output.stderr).contains("the first 10485760 of 11000000 bytes"));
}

#[test]
fn a_tool_that_is_not_declared_is_told_apart_from_one_that_fails() {
    let output = tool(PLACE, &["gret"]);
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(
        told.contains("[tool_not_declared]") && told.contains("greet"),
        "{told}"
    );
    assert!(!told.contains("host"), "nothing ran there: {told}");

    let output = tool(PLACE, &["fails", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let envelope: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["error"]["code"], "tool_failed");
    assert_eq!(envelope["error"]["details"]["exit_code"], 3);
    assert_eq!(envelope["error"]["details"]["output"], "why");

    let output = tool(PLACE, &["greet", "--arg", "who=a", "--arg", "who=b"]);
    assert_eq!(output.status.code(), Some(2), "which of the two would it be?");
    let output = tool(PLACE, &["greet", "--arg", "who=a", "--arg", "whoo=b"]);
    assert_eq!(text(&output.stdout), "hello a\n");
    assert!(text(&output.stderr).contains("no placeholder whoo"));
}

/// Without the engine, what it has is not known.
#[test]
fn what_cannot_be_asked_is_not_told_as_nothing() {
    let without = |args: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        let mut command = stead(dir.path());
        command
            .env("DOCKER_HOST", "unix:///nowhere")
            .args(args)
            .output()
            .unwrap()
    };
    for args in [["ps", "--json"], ["prune", "--json"]] {
        let output = without(&args);
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["unknown"][0]["provider"], "docker", "{args:?}");
        assert_eq!(document["unknown"][0]["code"], "docker_not_running", "{args:?}");
    }
    let id = "01900000-0000-7000-8000-000000000000";
    let output = without(&["rm", id, "--json"]);
    let envelope: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["error"]["code"], "docker_not_running");
    assert_eq!(output.status.code(), Some(125));
}

#[test]
fn what_is_wrong_in_itself_starts_nothing() {
    // A name that cannot be pulled would fail later, and say something else.
    let image = [
        "run",
        "--provider",
        "docker",
        "--image",
        "stead-test/no-such-image:1",
    ];
    for bad in [
        &["--timeout", "0", "--", "true"][..],
        &["--", ""],
        &["--memory", "1", "--", "true"],
        &["--cpu", "0", "--", "true"],
        &["--network", "None", "--", "true"],
        &["--workdir", "relative", "--", "true"],
        &["-v", "/no/such/thing:/x", "--", "true"],
        &["-e", "", "--", "true"],
    ] {
        let output = run(&[&image[..], bad].concat());
        assert_eq!(output.status.code(), Some(2), "{bad:?}: {}", text(&output.stderr));
    }
}

#[test]
fn on_this_host_a_working_directory_is_one_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let typo = dir.path().join("typo/deep");
    let output = local(&["--workdir", typo.to_str().unwrap(), "--", "pwd"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("[workdir_invalid]"));
    assert!(!typo.exists(), "nothing is made up on the host");

    let mut command = stead(dir.path());
    let output = command
        .args(["run", "--provider", "local", "--workdir", ".", "--", "pwd"])
        .output()
        .unwrap();
    let here = dir.path().canonicalize().unwrap();
    assert_eq!(text(&output.stdout).trim_end(), here.to_str().unwrap());
}

#[test]
fn a_document_is_owed_also_when_a_signal_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = stead(dir.path());
    let up = dir.path().join("up");
    let shell = format!("echo part; : > {}; exec sleep 60", up.display());
    command.args(["run", "--provider", "local", "--json", "--shell", &shell]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while !up.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let envelope: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["error"]["code"], "command_cancelled");
    assert_eq!(envelope["error"]["details"]["stdout"], "part\n");
}
