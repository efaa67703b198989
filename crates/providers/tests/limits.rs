//! What a place may use: who takes more is stopped inside, is told why, and harms nobody outside.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/real_engine.rs"]
mod support;

use stead_provider::Provider;
use stead_providers::{DockerProvider, NativeProvider};
use stead_types::{
    Availability, CommandLine, ComputeConfig, ExecResult, ExecuteError, ProvisionError, Resources,
};

const MEMORY: u64 = 64 << 20;

/// Memory without end.
const HOG: &str = "tail -n 1 /dev/zero";

async fn run(provider: &dyn Provider, config: ComputeConfig, shell: &[&str]) -> Vec<ExecResult> {
    let instance = provider.provision(config).await.unwrap();
    let mut results = Vec::new();
    for text in shell {
        let command = CommandLine::Shell((*text).to_owned());
        let result: Result<ExecResult, ExecuteError> = provider
            .execute(&instance.id, command, ComputeConfig::new())
            .await;
        results.push(result.unwrap());
    }
    provider.shutdown(&instance.id).await.unwrap();
    results
}

fn limited(config: ComputeConfig) -> ComputeConfig {
    ComputeConfig {
        resources: Resources {
            memory: Some(MEMORY),
            ..Resources::default()
        },
        ..config
    }
}

async fn memory_is_limited(provider: &dyn Provider, config: ComputeConfig) {
    let commands = ["echo small", HOG, &format!("{HOG}; echo went on"), "echo after"];
    let [before, killed, survived, after] = run(provider, limited(config), &commands)
        .await
        .try_into()
        .unwrap();
    assert!(!before.oom_killed && before.success(), "the control: {before:?}");
    assert!(killed.oom_killed && !killed.success(), "{killed:?}");
    // The command itself lived on, and is told of what it lost.
    assert!(survived.oom_killed && survived.success(), "{survived:?}");
    assert!(survived.stdout_text().ends_with("went on\n"), "{survived:?}");
    assert!(
        !after.oom_killed && after.success(),
        "the place lives on: {after:?}"
    );
}

fn native(name: &str, dir: &std::path::Path) -> Option<NativeProvider> {
    if !rustix::process::geteuid().is_root() {
        stead_testkit::note_skip(name, "an ordinary user has no cgroup here that could limit");
        return None;
    }
    Some(NativeProvider::with_state_dir(dir.join("state")))
}

#[tokio::test]
async fn a_native_place_that_is_out_of_memory_says_so() {
    let test = "a_native_place_that_is_out_of_memory_says_so";
    let dir = tempfile::tempdir().unwrap();
    let Some(native) = native(test, dir.path()) else {
        return;
    };
    if let Availability::Unavailable(missing) = native.probe().await {
        return stead_testkit::skip(test, &missing.reason);
    }
    if let Err(ProvisionError::Unsupported { reason, .. }) =
        native.provision(limited(ComputeConfig::new())).await
    {
        return stead_testkit::skip(test, &reason);
    }
    memory_is_limited(&native, ComputeConfig::new()).await;
}

#[tokio::test]
async fn a_container_that_is_out_of_memory_says_so() {
    if support::engine_or_skip("a_container_that_is_out_of_memory_says_so")
        .await
        .is_none()
    {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let docker = DockerProvider::new().state_dir(dir.path().join("state"));
    memory_is_limited(&docker, ComputeConfig::new().image(stead_testkit::BUSYBOX_IMAGE)).await;
}

#[tokio::test]
async fn a_full_disk_is_full_inside_alone() {
    let test = "a_full_disk_is_full_inside_alone";
    let dir = tempfile::tempdir().unwrap();
    let native = NativeProvider::with_state_dir(dir.path().join("state"));
    if let Availability::Unavailable(missing) = native.probe().await {
        return stead_testkit::skip(test, &missing.reason);
    }
    let mut config = ComputeConfig::new();
    config.resources.disk = Some(8 << 20);
    let fill = |mebibytes: u32| {
        format!("head -c {mebibytes}M /dev/zero > /workspace/fill; echo $?; rm -f /workspace/fill")
    };
    let (four, sixteen) = (fill(4), fill(16));
    let results = run(&native, config, &[&four, &sixteen, &four]).await;
    assert_eq!(results[0].stdout_text(), "0\n", "the control: there is room");
    assert_eq!(results[1].stdout_text(), "1\n");
    assert!(
        results[1].stderr_text().contains("No space left"),
        "{:?}",
        results[1]
    );
    assert_eq!(results[2].stdout_text(), "0\n", "what was removed is free again");
    assert!(
        results.iter().all(|result| result.success()),
        "the place lives on"
    );
}
