//! Many `native` places, some of which are killed at any moment: nothing of them is left.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_provider::Provider;
use stead_providers::NativeProvider;
use stead_types::{Availability, ComputeConfig, InstanceId};

/// Places; 500 with `STEAD_TEST_LONG=1`.
fn cycles() -> u64 {
    let long = std::env::var_os("STEAD_TEST_LONG").is_some_and(|set| set == "1");
    if long { 500 } else { 60 }
}

/// What the host has of these instances: cgroups, processes and mounts.
fn left(ids: &BTreeSet<InstanceId>, state: &Path) -> Vec<String> {
    let mut left = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            match name.strip_prefix("stead-") {
                Some(id) if ids.contains(&InstanceId::new(id)) => {
                    left.push(entry.path().display().to_string())
                }
                Some(_) => {}
                None => folders.push(entry.path()),
            }
        }
    }
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let marks = environ
            .split(|byte| *byte == 0)
            .filter_map(|variable| variable.strip_prefix(b"STEAD_INSTANCE="));
        for mark in marks {
            if ids.contains(&InstanceId::new(String::from_utf8_lossy(mark))) {
                left.push(entry.path().display().to_string());
            }
        }
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let ours = mounts
        .lines()
        .filter(|line| line.contains(&*state.to_string_lossy()));
    left.extend(ours.map(str::to_owned));
    left
}

#[tokio::test]
async fn nothing_is_left_of_many_places_of_which_some_are_killed() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let native = NativeProvider::with_state_dir(&state);
    if let Availability::Unavailable(missing) = native.probe().await {
        return stead_testkit::skip("leaks of native", &missing.reason);
    }
    let mut ids = BTreeSet::new();
    for cycle in 0..cycles() {
        let place = native.provision(ComputeConfig::new()).await.unwrap();
        ids.insert(place.id.clone());
        let text = "setsid sleep 1000 & echo ok";
        let mut config = ComputeConfig::new();
        config.descendants = Some(stead_types::Descendants::Keep);
        // Every third is killed from outside: while a command starts, or when it has ended.
        if cycle % 3 == 0 {
            let killer = async {
                tokio::time::sleep(Duration::from_millis(cycle % 20)).await;
                let pid = place.metadata["host_pid"].to_string();
                let killed = tokio::process::Command::new("kill")
                    .args(["-9", &pid])
                    .status()
                    .await;
                assert!(killed.unwrap().success());
            };
            // Ended or lost: both are answers.
            let (_, ()) = futures_util::join!(native.execute(&place.id, text.into(), config), killer);
        } else {
            let told = native.execute(&place.id, text.into(), config).await.unwrap();
            assert_eq!(told.stdout_text(), "ok\n");
            if cycle == 1 {
                assert!(!left(&ids, &state).is_empty(), "the control: what lives is seen");
            }
        }
        native.shutdown(&place.id).await.unwrap();
    }
    assert_eq!(left(&ids, &state), [""; 0]);
    assert!(
        std::fs::read_dir(state.join("instances"))
            .unwrap()
            .next()
            .is_none()
    );
}
