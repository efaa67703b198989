//! The conformance kit against `native`, as this user.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;
use stead_provider::Provider;
use stead_provider::conformance::{Facts, Subject, run_from_env};
use stead_providers::NativeProvider;
use stead_types::{Availability, ComputeConfig, InstanceId};

#[tokio::test(flavor = "multi_thread")]
async fn native_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let provider = Arc::new(NativeProvider::with_state_dir(dir.path().join("state")));
    if let Availability::Unavailable(missing) = provider.probe().await {
        return stead_testkit::skip("conformance of native", &missing.reason);
    }
    let facts = Facts::new("/workspace").honours_image(cfg!(feature = "image"));
    let breaks = Arc::clone(&provider);
    let subject = Subject::new(provider, ComputeConfig::new(), facts).break_instance(move |id| {
        let provider = Arc::clone(&breaks);
        async move { kill_place(&provider, &id).await }
    });
    let report = run_from_env(&subject).await;
    println!("{report}");
    assert!(report.is_success(), "native fails:\n{report}");
}

/// Kills the process outside the place, as the kernel's own out-of-memory killer might.
async fn kill_place(provider: &NativeProvider, id: &InstanceId) {
    let instance = provider.status(id).await.unwrap().unwrap();
    let pid = instance.metadata["host_pid"].to_string();
    let killed = std::process::Command::new("kill").args(["-9", &pid]).status();
    assert!(killed.unwrap().success());
}
