//! The shortest way through all layers.

use std::time::Duration;
use stead_provider::Provider;
use stead_providers::LocalProvider;
use stead_types::ComputeConfig;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_runs_and_its_instance_leaves_nothing() {
    for tree in ["auto", "cgroup1", "reaper"] {
        let dir = tempfile::tempdir().unwrap();
        let local = LocalProvider::with_state_dir(dir.path().join("state"));
        let instance = local.provision(ComputeConfig::new().option("tree", tree)).await.unwrap();
        println!("{:?}", instance.metadata);
        let result = local.execute(&instance.id, "echo out; echo err >&2; exit 3".into(), ComputeConfig::new()).await;
        let result = result.unwrap();
        assert_eq!((result.stdout_text(), result.stderr_text()), ("out\n".into(), "err\n".into()));
        assert_eq!(result.exit_code, Some(3));
        let config = ComputeConfig::new().timeout(Duration::from_millis(300));
        let result = local.execute(&instance.id, "(setsid sleep 77 &) ; sleep 78".into(), config).await.unwrap();
        assert!(result.timed_out);
        let config = ComputeConfig::new().stdin(vec![b'x'; 5 << 20]);
        let result = local.execute(&instance.id, ["wc", "-c"].into(), config).await.unwrap();
        assert_eq!(result.stdout_text().trim(), (5 << 20).to_string());
        assert_eq!(local.list_instances().await.unwrap().len(), 1);
        local.shutdown(&instance.id).await.unwrap();
        assert_eq!(local.list_instances().await.unwrap().len(), 0);
    }
}
