//! An instance that was detached is found by another provider object, as by another process, and commands there
//! start from what its provision said.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/real_engine.rs"]
mod support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;
use stead_provider::Provider;
use stead_providers::{DockerProvider, LocalProvider};
use stead_testkit::BUSYBOX_IMAGE;
use stead_types::{ComputeConfig, Descendants, InstanceId, Timeout};

fn detached(base: ComputeConfig) -> ComputeConfig {
    ComputeConfig {
        detached: true,
        max_output_bytes: Some(3),
        grace: Some(Duration::from_millis(200)),
        descendants: Some(Descendants::Sweep),
        workdir: Some("/tmp".into()),
        ..base
    }
    .env("FROM_PROVISION", "a\nb c")
    .env("REPLACED", "old")
    .timeout(Duration::from_secs(2))
}

/// What the adopter must see of `detached`.
async fn holds_its_settings(adopter: &dyn Provider, id: &InstanceId) {
    let run =
        async |text: &str, config: ComputeConfig| adopter.execute(id, text.into(), config).await.unwrap();
    let roomy = ComputeConfig {
        max_output_bytes: Some(1000),
        ..ComputeConfig::new().env("REPLACED", "new")
    };
    let told = run("printf '%s|' \"$FROM_PROVISION\" \"$REPLACED\" \"$PWD\"", roomy).await;
    assert_eq!(told.stdout_text(), "a\nb c|new|/tmp|");

    let limited = run("printf 123456", ComputeConfig::new()).await;
    assert_eq!(
        (limited.stdout_text().as_ref(), limited.stdout_total_bytes),
        ("123", 6)
    );

    let slow = run("sleep 60", ComputeConfig::new()).await;
    assert!(slow.timed_out, "the timeout of the provision holds");
    let patient = ComputeConfig {
        timeout: Some(Timeout::Never),
        ..ComputeConfig::new()
    };
    let control = run("sleep 2.5; echo late", patient).await;
    assert!(!control.timed_out, "the control: its own replaces it");
}

async fn adopted(make: impl Fn(&Path) -> Box<dyn Provider>, base: ComputeConfig) {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let first = make(&state);
    let bytes = base.env.get("BYTES").map(|bytes| bytes.as_bytes().to_vec());
    let id = first.provision(detached(base)).await.unwrap().id;
    drop(first);

    let second = make(&state);
    let status = second.status(&id).await.unwrap().unwrap();
    assert_eq!(status.metadata["detached"], true);
    holds_its_settings(&*second, &id).await;
    let config = ComputeConfig {
        max_output_bytes: Some(1000),
        ..ComputeConfig::new()
    };
    let told = second
        .execute(&id, "printf %s \"$BYTES\"".into(), config)
        .await
        .unwrap();
    assert_eq!(told.stdout, bytes.unwrap_or_default());
    second.shutdown(&id).await.unwrap();
    let after = make(&state)
        .execute(&id, "true".into(), ComputeConfig::new())
        .await;
    assert_eq!(
        stead_types::error::Code::code(&after.unwrap_err()),
        "instance_not_found"
    );
}

#[tokio::test]
async fn another_owner_of_a_local_instance_keeps_its_settings() {
    // A variable of any bytes: the environment of a container has to be text.
    let bytes = OsStr::from_bytes(b"\xff\xfe");
    let base = ComputeConfig::new().env("BYTES", bytes);
    let make = |state: &Path| -> Box<dyn Provider> { Box::new(LocalProvider::with_state_dir(state)) };
    adopted(make, base).await;
}

#[tokio::test]
async fn another_owner_of_a_container_keeps_its_settings() {
    if support::engine_or_skip("another owner of a container")
        .await
        .is_none()
    {
        return;
    }
    for relay_only in [false, true] {
        let make = move |state: &Path| -> Box<dyn Provider> {
            let provider = DockerProvider::new().state_dir(state);
            match relay_only {
                false => Box::new(provider),
                true => Box::new(provider.relay_only()),
            }
        };
        adopted(make, ComputeConfig::new().image(BUSYBOX_IMAGE)).await;
    }
}
