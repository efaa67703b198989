//! `stead providers`.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use serde_json::Value;
use std::process::{Command, Output};

/// Without an engine, so that the outcome is the same everywhere.
fn providers(args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    Command::new(env!("CARGO_BIN_EXE_stead"))
        .env("STEAD_STATE_DIR", dir.path().join("state"))
        .env("HOME", dir.path())
        .env("DOCKER_HOST", "unix:///nowhere/docker.sock")
        .env_remove("DOCKER_CONTEXT")
        .current_dir(dir.path())
        .arg("providers")
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn each_provider_comes_with_the_axes_that_were_observed() {
    let output = providers(&["--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = document["providers"].as_array().unwrap();
    for provider in all {
        let axes = provider["axes"].as_object().unwrap();
        let names: Vec<&str> = axes.keys().map(String::as_str).collect();
        let mut expected = [
            "process_contained",
            "host_filesystem_restricted",
            "privilege_escalation_blocked",
            "syscalls_restricted",
            "network_restricted",
        ];
        let mut names = names;
        names.sort_unstable();
        expected.sort_unstable();
        assert_eq!(names, expected, "{provider}");
        assert!(
            axes.values().all(|seen| seen.is_null() || seen.is_boolean()),
            "{provider}"
        );
    }
    let local = all.iter().find(|row| row["provider"] == "local").unwrap();
    assert!(
        local["axes"]
            .as_object()
            .unwrap()
            .values()
            .all(|seen| seen == false)
    );
    let docker = all.iter().find(|row| row["provider"] == "docker").unwrap();
    assert_eq!(docker["available"], false);
    for part in ["reason", "remedy", "code"] {
        assert!(docker[part].is_string(), "{docker}");
    }
}

#[test]
fn the_table_has_the_axes_and_parts_the_reason_from_the_remedy() {
    let output = providers(&["--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = document["providers"].as_array().unwrap();
    let docker = all.iter().find(|row| row["provider"] == "docker").unwrap();

    let output = providers(&[]);
    let table = String::from_utf8(output.stdout).unwrap();
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(row("PROVIDER").contains("ISOLATION"), "{table}");
    let cells: Vec<&str> = row("local").split_whitespace().collect();
    assert_eq!(cells[2], "none", "{table}");
    let part = |name: &str| docker[name].as_str().unwrap().trim_end_matches('.').to_owned();
    let told = format!("{}. {}", part("reason"), part("remedy"));
    assert!(row("docker").contains(&told), "{told}: {table}");
    assert!(row("docker").ends_with(&format!("[{}]", part("code"))), "{table}");
}
