//! `stead config show`, and what is told of files and variables that are wrong.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// The command with no variables but those of a folder of its own.
fn stead(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home)
        .env("STEAD_STATE_DIR", home.join("state"))
        .current_dir(home);
    command
}

fn shown(command: &mut Command) -> Value {
    let output = command.args(["config", "show", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_defaults_are_shown_as_values() {
    let dir = tempfile::tempdir().unwrap();
    let values = shown(&mut stead(dir.path()));
    for (key, value) in [
        ("provider", json!("auto")),
        ("image", Value::Null),
        ("network", json!("none")),
        ("timeout", json!("60s")),
        ("cpu", Value::Null),
        ("memory", json!("2GiB")),
        ("pids", json!(512)),
        ("log", json!("warn")),
    ] {
        assert_eq!(values[key], json!({"value": value, "origin": "default"}), "{key}");
    }
    let output = stead(dir.path()).args(["config", "show"]).output().unwrap();
    let table = text(&output.stdout);
    let row = |key: &str| {
        let line = table.lines().find(|line| line.starts_with(key)).unwrap();
        line.split("  ")
            .filter(|cell| !cell.is_empty())
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(row("provider"), ["provider", "auto", "default"]);
    assert_eq!(row("cpu"), ["cpu", "no limit", "default"]);
    assert_eq!(row("memory"), ["memory", "2GiB", "default"]);
}

#[test]
fn numbers_are_numbers_wherever_they_come_from() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("stead.toml"), "cpu = 0.5\nmemory = '1GiB'\n").unwrap();
    let values = shown(stead(dir.path()).env("STEAD_PIDS", "64"));
    assert_eq!(values["cpu"]["value"], json!(0.5));
    assert_eq!(
        values["pids"],
        json!({"value": 64, "origin": "environment STEAD_PIDS"})
    );
    assert_eq!(values["memory"]["value"], json!("1GiB"));
    let file = dir.path().canonicalize().unwrap().join("stead.toml");
    assert_eq!(values["cpu"]["origin"], json!(file));
}

/// The library is asked by what it makes.
#[test]
fn the_state_directory_is_the_one_that_the_library_uses() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = dir.path().join("runtime");
    std::fs::create_dir(&runtime).unwrap();
    let by_runtime = || {
        let mut command = stead(dir.path());
        command
            .env_remove("STEAD_STATE_DIR")
            .env("XDG_RUNTIME_DIR", &runtime);
        command
    };
    let by_variable = || {
        let mut command = stead(dir.path());
        command
            .env("STEAD_STATE_DIR", "named")
            .env("XDG_RUNTIME_DIR", &runtime);
        command
    };
    for (command, origin) in [
        (&by_runtime as &dyn Fn() -> Command, "default"),
        (&by_variable, "environment STEAD_STATE_DIR"),
    ] {
        let values = shown(&mut command());
        assert_eq!(values["state_dir"]["origin"], origin);
        let state = dir.path().join(values["state_dir"]["value"].as_str().unwrap());
        assert!(!state.exists(), "showing makes nothing");
        let output = command()
            .args(["run", "--provider", "local", "--", "true"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(state.join("instances").is_dir(), "{}", state.display());
    }
}

#[test]
fn a_state_directory_in_a_file_is_told_to_have_no_effect() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("stead.toml"), "state_dir = '/elsewhere'\n").unwrap();
    let mut command = stead(dir.path());
    command.env_remove("STEAD_STATE_DIR").env("XDG_RUNTIME_DIR", "/r");
    let output = command.args(["config", "show", "--json"]).output().unwrap();
    let values: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        values["state_dir"],
        json!({"value": "/r/stead", "origin": "default"})
    );
    assert!(
        text(&output.stderr).contains("no effect yet; set STEAD_STATE_DIR"),
        "{}",
        text(&output.stderr)
    );
}

fn refused(output: &Output, parts: &[&str]) {
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    for part in parts {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_value_that_cannot_be_used_is_told_with_who_says_it() {
    let dir = tempfile::tempdir().unwrap();
    for command in [&["config", "show"][..], &["run", "--", "true"]] {
        let output = stead(dir.path())
            .env("STEAD_PIDS", "abc")
            .args(command)
            .output()
            .unwrap();
        refused(&output, &["STEAD_PIDS", "\"abc\"", "[config_invalid]"]);
    }
    let output = stead(dir.path())
        .env("STEAD_MEMORY", "lots")
        .args(["run", "--json", "--", "true"])
        .output()
        .unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["error"]["code"], "config_invalid");
    assert!(
        envelope["error"]["message"]
            .as_str()
            .unwrap()
            .contains("STEAD_MEMORY")
    );

    let file = dir.path().join("stead.toml");
    for (line, value) in [
        ("timeout = 'bogus'", "bogus"),
        ("provider = 'dokcer'", "dokcer"),
        ("network = 'None'", "None"),
        ("pids = 0", "0"),
    ] {
        std::fs::write(&file, line).unwrap();
        let output = stead(dir.path()).args(["config", "show"]).output().unwrap();
        let value = format!("{value:?}");
        refused(&output, &["stead.toml has ", &value, "[config_invalid]"]);
    }
    // The control.
    std::fs::write(&file, "timeout = '5s'\nprovider = 'local'\npids = 5\n").unwrap();
    let output = stead(dir.path())
        .args(["run", "--", "echo", "hi"])
        .output()
        .unwrap();
    assert_eq!(text(&output.stdout), "hi\n", "{}", text(&output.stderr));
}

#[test]
fn a_variable_that_nothing_reads_is_warned_of_and_the_command_runs() {
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let output = stead(dir.path())
            .env(name, "x")
            .args(["config", "show"])
            .output()
            .unwrap();
        assert!(output.status.success() && !output.stdout.is_empty());
        text(&output.stderr)
    };
    let told = run("STEAD_IMGE");
    let warning = "STEAD_IMGE is set, but nothing reads it; did you mean STEAD_IMAGE?";
    assert!(told.contains(warning), "{told}");
    for known in [
        "STEAD_INSTANCE",
        "STEAD_SECRET_GHCR",
        "STEAD_TEST_LONG",
        "STEAD_SKIP_LOG",
        "STEAD_CONFORMANCE_WAY",
    ] {
        assert_eq!(run(known), "", "{known}");
    }
}

#[test]
fn a_filter_of_the_log_that_cannot_be_read_is_warned_of_and_hides_no_warning() {
    let dir = tempfile::tempdir().unwrap();
    let run = |filter: &str| {
        let output = stead(dir.path())
            .env("STEAD_LOG", filter)
            .args(["run", "--provider", "local", "--", "true"])
            .output()
            .unwrap();
        assert!(output.status.success());
        text(&output.stderr)
    };
    for bad in ["wran", "a=b=c"] {
        let told = run(bad);
        assert!(
            told.contains(&format!("STEAD_LOG has the value {bad:?}")),
            "{told}"
        );
        assert!(told.contains("no isolation"), "the log is as with warn: {told}");
    }
    assert_eq!(run("error"), "", "the control");
}
