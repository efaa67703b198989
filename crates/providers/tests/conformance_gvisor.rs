//! The conformance kit against `gvisor`, as this user.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;
use stead_provider::Provider;
use stead_provider::conformance::{Facts, Subject, run_from_env};
use stead_providers::GvisorProvider;
use stead_types::{Availability, ComputeConfig, InstanceId};

// Where there are several commands at once each needs a subreaper, which gVisor of 2022 does not have: docs/STATUS.md.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "trees beside each other are not kept apart yet; the provider is not offered"]
async fn gvisor_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let provider = Arc::new(GvisorProvider::with_state_dir(dir.path().join("state")));
    if let Availability::Unavailable(missing) = provider.probe().await {
        return stead_testkit::skip("conformance of gvisor", &missing.reason);
    }
    let facts = Facts::new("/workspace")
        .honours_image(false)
        // The host's kernel ends the whole sandbox.
        .outlives_memory_limit(false);
    let breaks = Arc::clone(&provider);
    let subject = Subject::new(provider, ComputeConfig::new(), facts).break_instance(move |id| {
        let provider = Arc::clone(&breaks);
        async move { kill_place(&provider, &id).await }
    });
    let report = run_from_env(&subject).await;
    println!("{report}");
    assert!(report.is_success(), "gvisor fails:\n{report}");
}

/// Kills the keeper, as the kernel's own out-of-memory killer might.
async fn kill_place(provider: &GvisorProvider, id: &InstanceId) {
    let instance = provider.status(id).await.unwrap().unwrap();
    let pid = instance.metadata["host_pid"].to_string();
    let killed = std::process::Command::new("kill").args(["-9", &pid]).status();
    assert!(killed.unwrap().success());
}
