//! The conformance kit against `local`, with each way to keep a tree together.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;
use stead_provider::Provider;
use stead_provider::conformance::{Facts, Subject, run_from_env};
use stead_providers::LocalProvider;
use stead_types::{ComputeConfig, InstanceId};

async fn conforms(tree: &str) {
    let dir = tempfile::tempdir().unwrap();
    let scratch = dir.path().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    let provider = Arc::new(LocalProvider::with_state_dir(dir.path().join("state")));
    let config = ComputeConfig::new().option("tree", tree);
    if let Err(error) = provider
        .provision(config.clone())
        .await
        .map(|instance| instance.id)
    {
        let source = std::error::Error::source(&error)
            .map(ToString::to_string)
            .unwrap_or_default();
        return stead_testkit::skip(
            &format!("conformance of local with {tree}"),
            &format!("{error}: {source}"),
        );
    }
    let facts = Facts::new(&scratch)
        .scratch_on_host(&scratch)
        .shares_host_processes(true)
        .honours_memory_limit(false)
        .honours_image(false);
    let breaks = Arc::clone(&provider);
    let subject = Subject::new(provider, config, facts).break_instance(move |id| {
        let provider = Arc::clone(&breaks);
        async move { kill_supervisor(&provider, &id).await }
    });
    let report = run_from_env(&subject).await;
    println!("{report}");
    assert!(report.is_success(), "local with {tree} fails:\n{report}");
}

async fn kill_supervisor(provider: &LocalProvider, id: &InstanceId) {
    let instance = provider.status(id).await.unwrap().unwrap();
    let pid = instance.metadata["supervisor_pid"].to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-9", &pid])
            .status()
            .unwrap()
            .success()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn local_conforms_with_every_way_to_keep_a_tree() {
    // One after the other: some cases compare what exists on the host.
    let only = std::env::var("STEAD_CONFORMANCE_TREE").ok();
    for tree in ["auto", "cgroup1", "reaper"] {
        if only.as_deref().is_none_or(|only| only == tree) {
            conforms(tree).await;
        }
    }
}
