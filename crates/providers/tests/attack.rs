//! The attack probe against each provider: what it reaches on the host it must not reach in a place.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/real_engine.rs"]
mod support;

use stead_provider::Provider;
use stead_providers::doctor::{AxisVerdict, Doctor, Outcome, axes};
use stead_providers::{DockerProvider, GvisorProvider, LocalProvider, NativeProvider};
use stead_types::{Availability, Axis, ComputeConfig};

async fn examined(
    provider: &dyn Provider,
    config: ComputeConfig,
    state: &std::path::Path,
) -> Vec<AxisVerdict> {
    let doctor = Doctor::with_state_dir(Some(state.join("control"))).await.unwrap();
    doctor.examine(provider, config).await.unwrap()
}

fn held(verdicts: &[AxisVerdict]) -> Vec<Axis> {
    let axes = axes(verdicts);
    Axis::ALL.into_iter().filter(|axis| axes.holds(*axis)).collect()
}

/// What was reached, for a person.
fn reached(verdicts: &[AxisVerdict]) -> String {
    let attempts = verdicts.iter().flat_map(|axis| &axis.evidence);
    let reached = attempts.filter(|attempt| attempt.outcome != Outcome::Refused);
    reached.map(|attempt| format!("{attempt:?}\n")).collect()
}

#[tokio::test]
async fn on_the_host_itself_nothing_holds() {
    let dir = tempfile::tempdir().unwrap();
    let local = LocalProvider::with_state_dir(dir.path().join("state"));
    let verdicts = examined(&local, ComputeConfig::new(), dir.path()).await;
    assert_eq!(held(&verdicts), [], "{verdicts:#?}");
    for verdict in &verdicts {
        assert_eq!(
            verdict.held,
            Some(false),
            "no attempt on {:?} has a control: {verdict:#?}",
            verdict.axis
        );
    }
}

#[tokio::test]
async fn a_native_place_holds_on_every_axis() {
    let dir = tempfile::tempdir().unwrap();
    let native = NativeProvider::with_state_dir(dir.path().join("state"));
    if let Availability::Unavailable(missing) = native.probe().await {
        return stead_testkit::skip("the attack on native", &missing.reason);
    }
    let verdicts = examined(&native, ComputeConfig::new(), dir.path()).await;
    assert_eq!(held(&verdicts), Axis::ALL, "{}", reached(&verdicts));

    // What is given away by explicit choice is seen to be given away.
    let mut config = ComputeConfig::new();
    config.network = Some(stead_types::NetworkPolicy::Full);
    let verdicts = examined(&native, config, dir.path()).await;
    assert!(!held(&verdicts).contains(&Axis::NetworkRestricted));
    assert!(
        native.observed_axes().holds(Axis::NetworkRestricted),
        "what is usual is kept"
    );
}

#[tokio::test]
async fn a_gvisor_place_holds_on_every_axis() {
    let dir = tempfile::tempdir().unwrap();
    let gvisor = GvisorProvider::with_state_dir(dir.path().join("state"));
    if let Availability::Unavailable(missing) = gvisor.probe().await {
        return stead_testkit::skip("the attack on gvisor", &missing.reason);
    }
    let verdicts = examined(&gvisor, ComputeConfig::new(), dir.path()).await;
    assert_eq!(held(&verdicts), Axis::ALL, "{}", reached(&verdicts));

    // What is given away by explicit choice is seen to be given away.
    let mut config = ComputeConfig::new();
    config.network = Some(stead_types::NetworkPolicy::Full);
    let verdicts = examined(&gvisor, config, dir.path()).await;
    assert!(!held(&verdicts).contains(&Axis::NetworkRestricted));
}

#[tokio::test]
async fn a_container_holds_on_what_docker_gives() {
    if support::engine_or_skip("the attack on docker").await.is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let docker = DockerProvider::new().state_dir(dir.path().join("state"));
    let config = ComputeConfig::new().image(stead_testkit::BUSYBOX_IMAGE);
    let verdicts = examined(&docker, config, dir.path()).await;
    assert_eq!(held(&verdicts), Axis::ALL, "{}", reached(&verdicts));
    assert_eq!(docker.observed_axes(), axes(&verdicts), "it is kept");

    // What is given away by explicit choice is seen to be given away, and what was kept does not hide it.
    let mut config = ComputeConfig::new().image(stead_testkit::BUSYBOX_IMAGE);
    config.options.insert(
        "security_opt".to_owned(),
        serde_json::json!(["seccomp=unconfined"]),
    );
    config
        .options
        .insert("i_accept_weaker_isolation".to_owned(), true.into());
    let verdicts = examined(&docker, config.clone(), dir.path()).await;
    assert!(
        !held(&verdicts).contains(&Axis::SyscallsRestricted),
        "{verdicts:#?}"
    );
    let instance = docker.provision(config).await.unwrap();
    assert_eq!(instance.isolation.syscalls_restricted, Some(false));
    assert_eq!(instance.isolation.process_contained, Some(true));
    docker.shutdown(&instance.id).await.unwrap();
}

/// The same test as the one above, run by a user who owns nothing.
#[test]
fn a_native_place_of_an_ordinary_user_holds_on_every_axis() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::process::Command;
    const NOBODY: u32 = 65_534;
    let test = "a_native_place_of_an_ordinary_user";
    if !rustix::process::geteuid().is_root() {
        return stead_testkit::note_skip(test, "this user is an ordinary one, and the test for root was it");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Where this program is, another user may not come.
    let program = dir.path().join("attack");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let own = dir.path().join("own");
    std::fs::create_dir(&own).unwrap();
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    let ran = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", "a_native_place_holds_on_every_axis", "--nocapture"])
        .current_dir("/")
        .env("TMPDIR", &own)
        .output();
    let ran = match ran {
        Ok(ran) => ran,
        Err(error) => return stead_testkit::skip(test, &format!("setpriv: {error}")),
    };
    let told = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success(),
        "{told}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    // Another name, or one that was filtered away, would pass without having run.
    assert!(told.contains("1 passed"), "{told}");
}
