//! What is told of wrong command lines, and the pages that say how to write them.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn stead_in(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stead"))
        .env("STEAD_STATE_DIR", dir.join("state"))
        .env("HOME", dir)
        .env("STEAD_LOG", "error")
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(dir)
        .args(args)
        .output()
        .unwrap()
}

fn stead(args: &[&str]) -> Output {
    stead_in(tempfile::tempdir().unwrap().path(), args)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a command prints that ends well.
fn printed(args: &[&str]) -> String {
    let output = stead(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Without the line breaks of a narrow column.
fn flat(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn with_json_a_wrong_command_line_is_told_as_other_failures_are() {
    for args in [
        &["run", "--json", "--mem", "1", "--", "true"][..],
        &["run", "--json"],
        &["ps", "--json", "x"],
        &["--json"],
        &["rnu", "--json"],
        &["tool", "run", "--json"],
    ] {
        let output = stead(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        let error = &envelope["error"];
        assert_eq!(error["code"], "usage", "{args:?}");
        assert_eq!(error["details"]["retryable"], false);
        for part in [&error["message"], &error["details"]["remedy"]] {
            let part = part.as_str().unwrap();
            assert!(!part.is_empty() && !part.contains('\n'), "{args:?}: {part:?}");
        }
    }
    let output = stead(&["run", "--json", "--mem", "1", "--", "true"]);
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["error"]["message"], "unexpected argument '--mem' found");
}

#[test]
fn without_json_it_is_a_text_that_ends_with_the_code() {
    for args in [
        &["run", "--mem", "1", "--", "true"][..],
        // This one is the command's.
        &["run", "--mem", "1", "--", "echo", "--json"],
        &["run"],
        &["tool"],
        &[],
        &["completions", "nosh"],
        &["man", "nothing"],
        &["help", "nothing"],
    ] {
        let output = stead(args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(told.ends_with("[usage]\n"), "{args:?}: {told}");
        assert!(told.contains("error: "), "{args:?}: {told}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn a_forgotten_separator_is_told() {
    let output = stead(&["run", "--image", "x", "echo", "hi"]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        told.contains("put `--` before the command: `stead run [OPTIONS] -- echo …`"),
        "{told}"
    );
    let output = stead(&["run", "--json", "--image", "x", "echo", "hi"]);
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    let remedy = envelope["error"]["details"]["remedy"].as_str().unwrap();
    assert!(remedy.contains("ut `--` before the command"), "{remedy}");
    // The control.
    let output = stead(&["run", "--provider", "local", "--", "echo", "hi"]);
    assert_eq!(text(&output.stdout), "hi\n");
    assert!(!text(&stead(&["ps", "x"]).stderr).contains("before the command"));
}

#[test]
fn each_command_has_a_manual_page() {
    assert!(printed(&["man"]).contains(".TH stead 1"));
    assert!(printed(&["man", "run"]).contains(".TH stead-run 1"));
    let page = printed(&["man", "tool", "run"]);
    assert!(
        page.contains(".TH stead-tool-run 1") && page.contains("PLACEFILE"),
        "{page}"
    );
    assert!(page.contains("stead tool run"), "{page}");

    let dir = tempfile::tempdir().unwrap();
    let output = stead_in(dir.path(), &["man", "--dir", "man/man1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(dir.path().join("man/man1").join(name)).unwrap();
    for name in [
        "stead",
        "stead-run",
        "stead-providers",
        "stead-ps",
        "stead-prune",
        "stead-rm",
        "stead-tool",
        "stead-tool-run",
        "stead-config",
        "stead-config-show",
        "stead-completions",
        "stead-man",
        "stead-help",
    ] {
        assert!(
            read(&format!("{name}.1")).contains(&format!(".TH {name} 1")),
            "{name}"
        );
    }
    assert_eq!(read("stead-tool-run.1"), page.strip_suffix('\n').unwrap());

    std::fs::write(dir.path().join("file"), "").unwrap();
    let output = stead_in(dir.path(), &["man", "--dir", "file/man1"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("[output_failed]"));
}

#[test]
fn help_of_each_command_has_an_example_also_of_those_with_commands_of_their_own() {
    for command in [
        &[][..],
        &["run"],
        &["providers"],
        &["ps"],
        &["prune"],
        &["rm"],
        &["tool"],
        &["tool", "run"],
        &["config"],
        &["config", "show"],
        &["completions"],
        &["man"],
        &["help"],
    ] {
        let help = printed(&[command, &["--help"]].concat());
        assert!(help.contains("Example"), "{command:?}: {help}");
        assert!(
            help.contains("\n  stead ") || help.contains("| stead"),
            "{command:?}"
        );
        assert_eq!(printed(&[&["help"], command].concat()), help, "{command:?}");
    }
}

#[test]
fn help_of_run_says_the_defaults() {
    let help = flat(&printed(&["run", "--help"]));
    for part in [
        "python:3.11-slim",
        "which no built-in provider honours yet",
        "only local takes a relative one",
        "[default: /workspace on docker and native, a fresh empty directory on local]",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
