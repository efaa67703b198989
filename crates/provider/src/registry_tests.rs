use super::*;
use crate::contract::Provider;
use crate::fake::Fake;
use std::sync::atomic::{AtomicUsize, Ordering};

fn factory(name: &'static str) -> Factory {
    Arc::new(move || Arc::new(Fake::new(name)))
}

fn registry() -> Registry {
    Registry::with_builtins([("local", factory("local")), ("docker", factory("docker"))]).unwrap()
}

fn named(result: Result<Option<Arc<dyn Provider>>, ResolveError>) -> Option<String> {
    result.unwrap().map(|provider| provider.name().to_owned())
}

#[test]
fn nothing_and_blank_names_are_no_provider() {
    let registry = registry();
    for target in [
        Target::None,
        Target::from(None::<&str>),
        "".into(),
        " \t".into(),
        Some("").into(),
    ] {
        assert_eq!(named(registry.resolve(target)), None);
    }
    assert_eq!(named(registry.resolve("docker")), Some("docker".to_owned()));
}

#[test]
fn a_name_in_any_case_is_a_fresh_provider() {
    let registry = registry();
    let made = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&made);
    registry
        .register("My-Remote", move || {
            counter.fetch_add(1, Ordering::SeqCst);
            Arc::new(Fake::new("my-remote"))
        })
        .unwrap();
    assert_eq!(registry.list(), ["docker", "local", "my-remote"]);
    for name in ["my-remote", "MY-REMOTE", " My-Remote "] {
        assert_eq!(named(registry.resolve(name)), Some("my-remote".to_owned()));
    }
    assert_eq!(made.load(Ordering::SeqCst), 3);
}

#[test]
fn a_provider_is_itself() {
    let provider: Arc<dyn Provider> = Arc::new(Fake::new("x"));
    let resolved = Registry::new().resolve(Arc::clone(&provider)).unwrap().unwrap();
    assert!(Arc::ptr_eq(&provider, &resolved));
    assert_eq!(
        named(Registry::new().resolve(Arc::new(Fake::new("y")))),
        Some("y".to_owned())
    );
}

#[test]
fn an_unknown_name_says_what_exists_and_suggests_what_is_close() {
    let registry = registry();
    let error = |name: &str| registry.resolve(name).err().unwrap();
    let message = error("Dokcer").to_string();
    assert_eq!(
        message,
        "unknown compute provider 'dokcer' (did you mean 'docker'?). Available: docker, local. Falling back to \
         local would run on the host what was asked to be isolated"
    );
    assert!(matches!(
        error("e2b"),
        ResolveError::Unknown { suggestion: None, .. }
    ));
}

#[test]
fn registering_again_replaces() {
    let registry = registry();
    registry
        .register("docker", || Arc::new(Fake::new("other")))
        .unwrap();
    assert_eq!(named(registry.resolve("docker")), Some("other".to_owned()));
    registry.add_builtins([("docker", factory("docker"))]).unwrap();
    assert_eq!(
        named(registry.resolve("docker")),
        Some("other".to_owned()),
        "built-ins replace nothing"
    );
    assert_eq!(registry.unregister("Docker"), Ok(true));
    assert_eq!(registry.unregister("docker"), Ok(false));
    assert!(registry.resolve("docker").is_err());
}

#[test]
fn local_can_be_neither_replaced_nor_removed() {
    let registry = registry();
    for name in ["local", "LOCAL"] {
        assert!(matches!(
            registry.register(name, || Arc::new(Fake::new("vm"))),
            Err(ResolveError::BadName { .. })
        ));
        assert!(matches!(
            registry.unregister(name),
            Err(ResolveError::BadName { .. })
        ));
        assert!(registry.register_place(name, || unreachable!()).is_err());
    }
    assert_eq!(named(registry.resolve("local")), Some("local".to_owned()));
    assert!(
        Registry::new()
            .register("local", || Arc::new(Fake::new("vm")))
            .is_err()
    );
}

#[test]
fn bad_names_are_refused() {
    let registry = Registry::new();
    for name in ["a", "my.remote_2-x", &"a".repeat(64)] {
        assert!(
            registry.register(name, || Arc::new(Fake::new("x"))).is_ok(),
            "{name}"
        );
    }
    for name in [
        "",
        " ",
        " a",
        "a b",
        "a/b",
        "-a",
        ".",
        "é",
        "a\0",
        &"a".repeat(65),
    ] {
        assert!(
            registry.register(name, || Arc::new(Fake::new("x"))).is_err(),
            "{name:?}"
        );
    }
}

struct Odd(&'static str);

#[async_trait::async_trait]
impl Provider for Odd {
    fn name(&self) -> &str {
        self.0
    }
    fn observed_axes(&self) -> Axes {
        Axes::NONE
    }
    async fn probe(&self) -> Availability {
        match self.0 {
            "slow" => std::future::pending().await,
            "panics" => panic!("as asked"),
            _ => Availability::Available,
        }
    }
    async fn provision(
        &self,
        _: stead_types::ComputeConfig,
    ) -> Result<stead_types::ComputeInstance, stead_types::ProvisionError> {
        unreachable!()
    }
    async fn spawn(
        &self,
        _: &stead_types::InstanceId,
        _: stead_types::CommandLine,
        _: stead_types::ComputeConfig,
    ) -> Result<crate::Process, stead_types::ExecuteError> {
        unreachable!()
    }
    async fn shutdown(&self, _: &stead_types::InstanceId) -> Result<(), stead_types::ShutdownError> {
        unreachable!()
    }
    async fn list_instances(&self) -> Result<Vec<stead_types::ComputeInstance>, stead_types::ListError> {
        unreachable!()
    }
    async fn status(
        &self,
        _: &stead_types::InstanceId,
    ) -> Result<Option<stead_types::ComputeInstance>, stead_types::ListError> {
        unreachable!()
    }
    async fn files(
        &self,
        _: &stead_types::InstanceId,
    ) -> Result<Box<dyn crate::Files>, stead_types::FilesError> {
        unreachable!()
    }
}

#[tokio::test(start_paused = true)]
async fn describing_bounds_slow_probes_and_survives_panics() {
    let registry = Registry::new();
    for name in ["slow", "panics", "good", "slow2"] {
        registry
            .register(name, move || Arc::new(Odd(name.trim_end_matches('2'))))
            .unwrap();
    }
    let started = tokio::time::Instant::now();
    let rows = registry.describe().await;
    assert_eq!(started.elapsed().as_secs(), 15, "all are asked at once");
    let code = |name: &str| {
        let row = rows.iter().find(|row| row.name == name).unwrap();
        match &row.availability {
            Availability::Available => "available",
            Availability::Unavailable(missing) => missing.code,
        }
    };
    assert_eq!(
        rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(),
        ["good", "panics", "slow", "slow2"]
    );
    assert_eq!(code("good"), "available");
    assert_eq!(code("slow"), "probe_timed_out");
    assert_eq!(code("slow2"), "probe_timed_out");
    assert_eq!(code("panics"), "probe_failed");
    assert_eq!(rows[0].axes, Axes::NONE);
    assert_eq!(rows[1].axes, Axes::UNKNOWN);
}
