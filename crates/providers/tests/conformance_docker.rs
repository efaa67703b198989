//! The conformance kit against `docker`, with each way to reach the supervisor.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/real_engine.rs"]
mod support;

use std::process::Command;
use std::sync::Arc;
use stead_provider::conformance::{Facts, Subject, run_from_env};
use stead_providers::DockerProvider;
use stead_types::ComputeConfig;

const IMAGE: &str = "stead-test/busybox:1";

async fn conforms(provider: DockerProvider, way: &str) {
    let config = ComputeConfig::new()
        .image(IMAGE)
        .option("image_pull_policy", "never");
    let without_shell = ComputeConfig::new()
        .image("stead-test/empty:1")
        .option("image_pull_policy", "never");
    let subject = Subject::new(Arc::new(provider), config, Facts::new("/workspace"))
        .without_shell(without_shell)
        .break_instance(|id| async move {
            let removed = Command::new("docker")
                .args(["rm", "-f", &format!("stead-{id}")])
                .output()
                .unwrap();
            assert!(removed.status.success(), "{removed:?}");
        });
    let report = run_from_env(&subject).await;
    println!("{report}");
    assert!(report.is_success(), "docker through {way} fails:\n{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn docker_conforms_with_every_way_to_its_supervisor() {
    let Some(_engine) = support::engine_or_skip("conformance of docker").await else {
        return;
    };
    // For a run of one way alone, many times over.
    let only = std::env::var("STEAD_CONFORMANCE_WAY").ok();
    let wanted = |way: &str| only.as_deref().is_none_or(|only| only == way);
    for relay_only in [false, true] {
        if !wanted(if relay_only { "exec" } else { "socket" }) {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let provider = DockerProvider::new().state_dir(dir.path().join("state"));
        match relay_only {
            false => conforms(provider, "a socket").await,
            true => conforms(provider.relay_only(), "an exec").await,
        }
    }
}
