//! Images and containers of the engine of this machine.
#![cfg(feature = "docker")]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/real_engine.rs"]
mod real_engine;
#[path = "support/registry.rs"]
mod registry;

use bollard::Docker;
use bollard::query_parameters::{PushImageOptionsBuilder, RemoveImageOptions, TagImageOptionsBuilder};
use futures_util::StreamExt;
use real_engine::{engine_or_skip, skip};
use registry::{PASSWORD, Registry};
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use stead_providers::docker::archive::supervisor_archive;
use stead_providers::docker::container::{ContainerExit, Phase};
use stead_providers::docker::engine::{ApiVersion, Engine};
use stead_providers::docker::image::{ImageFacts, Prepare, PullProgress, SecretSource};
use stead_providers::docker::labels::{InstanceLabels, Owner};
use stead_providers::docker::options::{Options, PullPolicy, RegistryAuth};
use stead_providers::docker::plan::{Access, InstanceFacts, Plan, plan};
use stead_providers::docker::reference::ImageRef;
use stead_types::{Code, ComputeConfig, InstanceId, ProvisionError};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const BUSYBOX: &str = "stead-test/busybox:1";

/// Stands in for the supervisor, which these tests are not about.
const SCRIPT: &str = "#!/bin/sh\nexec sleep 100000\n";

struct Secret(&'static str);

impl SecretSource for Secret {
    fn secret(&self, _: &str) -> Result<String, String> {
        Ok(self.0.to_owned())
    }
}

async fn prepare(engine: &Engine, image: &str, policy: PullPolicy) -> Result<ImageFacts, ProvisionError> {
    let prepare = Prepare {
        policy,
        auth: None,
        secrets: &Secret(""),
        progress: &|_| {},
    };
    engine
        .prepare_image(&ImageRef::parse(image).unwrap(), &prepare)
        .await
}

/// The engine with the test image, or the word that the test is skipped.
async fn ready(test: &str) -> Option<(Engine, ImageFacts)> {
    let engine = engine_or_skip(test).await?;
    match prepare(&engine, BUSYBOX, PullPolicy::Never).await {
        Ok(image) => Some((engine, image)),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

fn planned(image: &ImageFacts, access: Access, config: &ComputeConfig) -> Plan {
    let options = Options::parse(&config.options).unwrap();
    let owner = Owner {
        pid: std::process::id(),
        start: 1,
        boot_id: "test".to_owned(),
    };
    let labels = InstanceLabels {
        instance: InstanceId::generate(),
        owner: Some(owner),
        created_at: Some(OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()),
        detached: false,
    };
    let facts = InstanceFacts {
        takes_filter: true,
        labels,
        access,
        supervisor_args: Vec::new(),
        mounts: Vec::new(),
        engine_sockets: Vec::new(),
        api: ApiVersion(1, 41),
    };
    plan(config, &options, image, &facts).unwrap()
}

fn script_in(folder: &Path, text: &str) -> Access {
    let (supervisor, control) = (folder.join("supervisor"), folder.join("ctl"));
    std::fs::write(&supervisor, text).unwrap();
    std::fs::set_permissions(&supervisor, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(&control).unwrap();
    Access::Socket { supervisor, control }
}

/// A container that is removed also when a test fails, by a thread of its own with its own runtime.
struct Running {
    engine: Engine,
    name: String,
}

impl Running {
    async fn start(engine: &Engine, plan: Plan) -> Self {
        let running = Self {
            engine: engine.clone(),
            name: plan.name.clone(),
        };
        engine.create_container(&plan.name, plan.body).await.unwrap();
        engine.start_container(&running.name).await.unwrap();
        running
    }

    /// What a program in it prints.
    async fn output(&self, argv: &[&str]) -> String {
        let mut relay = self.engine.exec_relay(&self.name, argv, None).await.unwrap();
        let mut output = String::new();
        relay.stream.read_to_string(&mut output).await.unwrap();
        output + &relay.diagnostics.text()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (engine, name) = (self.engine.clone(), std::mem::take(&mut self.name));
        let removal = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            let _ = runtime.block_on(engine.remove_container(&name));
        });
        let _ = removal.join();
    }
}

#[tokio::test]
async fn a_container_lives_as_planned_and_is_gone_when_it_is_said_to_be() {
    let test = "a_container_lives_as_planned_and_is_gone_when_it_is_said_to_be";
    let Some((engine, image)) = ready(test).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let config = ComputeConfig::new().env("GREETING", "a\nb").workdir("/made/here");
    let plan = planned(&image, script_in(folder.path(), SCRIPT), &config);
    let labels = InstanceLabels::from_map(plan.body.labels.as_ref().unwrap()).unwrap();
    let running = Running::start(&engine, plan).await;

    let inspected = engine.inspect_container(&running.name).await.unwrap().unwrap();
    assert_eq!((inspected.phase, inspected.exit_code), (Phase::Running, None));
    assert_eq!(inspected.labels.as_ref(), Some(&labels));
    let listed = engine.list_containers().await.unwrap();
    let own: Vec<_> = listed.into_iter().filter(|one| one.labels == labels).collect();
    assert_eq!(
        (own.len(), own[0].phase, &own[0].container),
        (1, Phase::Running, &inspected.container)
    );

    let status = running.output(&["cat", "/proc/self/status"]).await;
    assert!(status.contains("CapBnd:\t00000000000000eb"), "{status}");
    assert!(
        status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"),
        "{status}"
    );
    assert_eq!(
        running
            .output(&["sh", "-c", "pwd; printf %s \"$GREETING\""])
            .await,
        "/made/here\na\nb"
    );

    // Both removals are right, whichever of them the engine heeds.
    let both = tokio::join!(
        engine.remove_container(&running.name),
        engine.remove_container(&running.name)
    );
    assert!(both.0.is_ok() && both.1.is_ok(), "{both:?}");
    assert_eq!(engine.inspect_container(&running.name).await.unwrap(), None);
    engine.remove_container(&running.name).await.unwrap();
    assert_eq!(
        engine.wait_container(&running.name).await.unwrap(),
        ContainerExit::Gone
    );
}

#[tokio::test]
async fn an_uploaded_program_starts_and_a_relay_carries_bytes() {
    let Some((engine, image)) = ready("an_uploaded_program_starts_and_a_relay_carries_bytes").await else {
        return;
    };
    let config = ComputeConfig::new()
        .option("read_only", true)
        .option("cap_drop", json!(["ALL"]))
        .user("1234:1234");
    let plan = planned(&image, Access::ExecRelay, &config);
    let running = Running {
        engine: engine.clone(),
        name: plan.name.clone(),
    };
    engine.create_container(&plan.name, plan.body).await.unwrap();
    let archive = supervisor_archive(SCRIPT.as_bytes(), &[1; 32], Some((1234, 1234))).unwrap();
    engine
        .upload_archive(&plan.name, "/run/stead", archive)
        .await
        .unwrap();
    engine.start_container(&plan.name).await.unwrap();

    let relay = engine
        .exec_relay(&running.name, &["sh", "-c", "cat; echo done >&2"], None)
        .await
        .unwrap();
    let (mut read, mut write) = tokio::io::split(relay.stream);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    read.read_to_end(&mut got).await.unwrap();
    writer.await.unwrap();
    assert!(got == expected);
    assert_eq!(relay.diagnostics.text(), "done");

    // As the one user of the container, in the places that are left to write to, and in no other.
    let ids = running
        .output(&[
            "sh",
            "-c",
            "id -u; touch /workspace/a /tmp/a /run/stead/ctl/a && echo wrote",
        ])
        .await;
    assert_eq!(ids, "1234\nwrote\n");
    assert!(
        running
            .output(&["touch", "/a"])
            .await
            .contains("Read-only file system")
    );
}

#[tokio::test]
async fn a_container_that_ends_says_how_and_leaves_nothing() {
    let Some((engine, image)) = ready("a_container_that_ends_says_how_and_leaves_nothing").await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = "#!/bin/sh\nwhile [ ! -e /run/stead/ctl/end ]; do sleep 0.05; done; exit 7\n";
    let running = Running::start(
        &engine,
        planned(&image, script_in(folder.path(), script), &ComputeConfig::new()),
    )
    .await;
    let exit = async {
        std::fs::write(folder.path().join("ctl/end"), "").unwrap();
        engine.wait_container(&running.name).await
    };
    assert_eq!(exit.await.unwrap(), ContainerExit::Code(7));
    while engine.inspect_container(&running.name).await.unwrap().is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_host_path_that_the_engine_does_not_see_is_told_apart() {
    let Some((engine, image)) = ready("a_host_path_that_the_engine_does_not_see_is_told_apart").await else {
        return;
    };
    let access = Access::Socket {
        supervisor: "/nowhere/supervisor".into(),
        control: "/nowhere/ctl".into(),
    };
    let plan = planned(&image, access, &ComputeConfig::new());
    let error = engine.create_container(&plan.name, plan.body).await.unwrap_err();
    assert!(error.is_bind_source_missing(), "{error:?}");
    assert_eq!(engine.inspect_container(&plan.name).await.unwrap(), None);
}

#[tokio::test]
async fn an_image_that_nobody_has_is_missing() {
    let Some((engine, _)) = ready("an_image_that_nobody_has_is_missing").await else {
        return;
    };
    let error = prepare(&engine, "stead-test/none:1", PullPolicy::Never)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "image_missing");
    let by_id = format!("sha256:{}", "0".repeat(64));
    assert_eq!(
        prepare(&engine, &by_id, PullPolicy::IfMissing)
            .await
            .unwrap_err()
            .code(),
        "image_missing"
    );
}

/// Puts the test image into a registry and takes the local name away again.
async fn publish(registry: &Registry) {
    let docker = Docker::connect_with_defaults().unwrap();
    let (repo, name) = (
        format!("{}/box", registry.host),
        format!("{}/box:1", registry.host),
    );
    let tag = TagImageOptionsBuilder::new().repo(&repo).tag("1").build();
    docker.tag_image(BUSYBOX, Some(tag)).await.unwrap();
    let options = PushImageOptionsBuilder::new().tag("1").build();
    let mut steps = docker.push_image(&repo, Some(options), None);
    while let Some(step) = steps.next().await {
        step.unwrap();
    }
    docker
        .remove_image(&name, None::<RemoveImageOptions>, None)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_is_pulled_from_a_registry() {
    let test = "an_image_is_pulled_from_a_registry";
    let Some((engine, image)) = ready(test).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let Some(registry) = Registry::start(folder.path(), false) else {
        return skip(test, "the program docker-registry is missing");
    };
    publish(&registry).await;
    let name = format!("{}/box:1", registry.host);
    assert_eq!(
        prepare(&engine, &name, PullPolicy::Never)
            .await
            .unwrap_err()
            .code(),
        "image_missing"
    );

    let steps = Mutex::new(Vec::<PullProgress>::new());
    let progress = |step| steps.lock().unwrap().push(step);
    let secrets = Secret("");
    let prepare_with = Prepare {
        policy: PullPolicy::IfMissing,
        auth: None,
        secrets: &secrets,
        progress: &progress,
    };
    let pulled = engine
        .prepare_image(&ImageRef::parse(&name).unwrap(), &prepare_with)
        .await
        .unwrap();
    assert_eq!(pulled.id, image.id);
    assert!(steps.lock().unwrap().iter().any(|step| !step.status.is_empty()));

    let none = format!("{}/none:1", registry.host);
    let error = prepare(&engine, &none, PullPolicy::IfMissing).await.unwrap_err();
    assert!(
        matches!(&error, ProvisionError::PullFailed { image, .. } if *image == none),
        "{error:?}"
    );
    let docker = Docker::connect_with_defaults().unwrap();
    docker
        .remove_image(&name, None::<RemoveImageOptions>, None)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_with_a_login_wants_the_right_password() {
    let test = "a_registry_with_a_login_wants_the_right_password";
    let Some((engine, image)) = ready(test).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let Some(open) = Registry::start(folder.path(), false) else {
        return skip(test, "the program docker-registry is missing");
    };
    publish(&open).await;
    drop(open);
    let Some(closed) = Registry::start(folder.path(), true) else {
        return skip(test, "the program docker-registry is missing");
    };
    let name = format!("{}/box:1", closed.host);
    let auth = RegistryAuth {
        username: "stead".to_owned(),
        password_secret: "box".to_owned(),
    };
    let with = async |auth: Option<&RegistryAuth>, password| {
        let secrets = Secret(password);
        let prepare = Prepare {
            policy: PullPolicy::IfMissing,
            auth,
            secrets: &secrets,
            progress: &|_| {},
        };
        engine
            .prepare_image(&ImageRef::parse(&name).unwrap(), &prepare)
            .await
    };
    assert_eq!(
        with(None, PASSWORD).await.unwrap_err().code(),
        "image_pull_failed"
    );
    assert_eq!(
        with(Some(&auth), "wrong").await.unwrap_err().code(),
        "image_pull_failed"
    );
    assert_eq!(with(Some(&auth), PASSWORD).await.unwrap().id, image.id);
    let docker = Docker::connect_with_defaults().unwrap();
    docker
        .remove_image(&name, None::<RemoveImageOptions>, None)
        .await
        .unwrap();
}
