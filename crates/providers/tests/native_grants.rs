//! What of the host a `native` place is granted, and what it is not without a second word.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use stead_provider::Provider;
use stead_providers::NativeProvider;
use stead_types::error::Code;
use stead_types::{Availability, Axis, ComputeConfig, Mount};

fn with_mount(host: &Path, read_only: bool) -> ComputeConfig {
    let mut config = ComputeConfig::new();
    config.mounts.push(Mount {
        host: host.into(),
        place: "/granted".into(),
        read_only,
    });
    config
}

#[tokio::test]
async fn grants_are_what_was_granted() {
    let dir = tempfile::tempdir().unwrap();
    let native = NativeProvider::with_state_dir(dir.path().join("state"));
    if let Availability::Unavailable(missing) = native.probe().await {
        return stead_testkit::skip("grants of native", &missing.reason);
    }
    let granted = dir.path().join("granted");
    std::fs::create_dir(&granted).unwrap();
    std::fs::set_permissions(&granted, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(granted.join("in"), "from the host").unwrap();
    for (read_only, expected) in [(false, "from the host|wrote"), (true, "from the host|refused")] {
        let place = native.provision(with_mount(&granted, read_only)).await.unwrap();
        let text = "cat /granted/in; if echo x 2>/dev/null >/granted/out; then printf '|wrote'; else printf '|refused'; fi";
        let told = native
            .execute(&place.id, text.into(), ComputeConfig::new())
            .await
            .unwrap();
        assert_eq!(told.stdout_text(), expected);
        native.shutdown(&place.id).await.unwrap();
    }
    assert_eq!(std::fs::read(granted.join("out")).unwrap(), b"x\n");
}

#[tokio::test]
async fn the_host_itself_is_granted_by_a_second_word_alone() {
    let dir = tempfile::tempdir().unwrap();
    let native = NativeProvider::with_state_dir(dir.path().join("state"));
    if let Availability::Unavailable(missing) = native.probe().await {
        return stead_testkit::skip("weaker grants of native", &missing.reason);
    }
    let link = dir.path().join("innocent");
    std::os::unix::fs::symlink("/", &link).unwrap();
    for host in [Path::new("/"), Path::new("/proc"), &link] {
        let refused = native.provision(with_mount(host, true)).await.unwrap_err();
        assert_eq!(refused.code(), "weaker_isolation", "{}", host.display());
    }
    let config = with_mount(&link, true).option("i_accept_weaker_isolation", true);
    let place = native.provision(config).await.unwrap();
    assert_eq!(place.isolation.get(Axis::HostFilesystemRestricted), Some(false));
    native.shutdown(&place.id).await.unwrap();
}

#[tokio::test]
async fn what_a_place_cannot_have_is_told_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let native = NativeProvider::with_state_dir(dir.path().join("state"));
    for place in ["/", "/x/../../y", "/dev", "/proc/sys", "/sys/kernel"] {
        let mut config = with_mount(dir.path(), true);
        config.mounts[0].place = place.into();
        let refused = native.provision(config).await.unwrap_err();
        assert_eq!(refused.code(), "config_unsupported", "{place}");
    }
    let refused = native.provision(ComputeConfig::new().user("")).await.unwrap_err();
    assert_eq!(refused.code(), "config_invalid");
    for user in ["99999", "0:99999", "4294967295"] {
        let refused = native
            .provision(ComputeConfig::new().user(user))
            .await
            .unwrap_err();
        // An ordinary user's places have one user at all.
        assert!(
            ["user_invalid", "config_unsupported"].contains(&refused.code()),
            "{user}: {refused}"
        );
    }
    assert!(
        !dir.path().join("state/instances").exists()
            || std::fs::read_dir(dir.path().join("state/instances"))
                .unwrap()
                .next()
                .is_none()
    );
}

/// Whatever a command does to the rights of its own files: the place goes.
#[tokio::test]
async fn a_place_cannot_keep_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let native = NativeProvider::with_state_dir(dir.path().join("state"));
    if let Availability::Unavailable(missing) = native.probe().await {
        return stead_testkit::skip("removal of native", &missing.reason);
    }
    let place = native.provision(ComputeConfig::new()).await.unwrap();
    let text = "mkdir -p a/b; touch a/b/c; chmod 0 a/b a . /workspace; echo ok";
    let told = native
        .execute(&place.id, text.into(), ComputeConfig::new())
        .await
        .unwrap();
    assert_eq!(told.stdout_text(), "ok\n");
    native.shutdown(&place.id).await.unwrap();
    assert!(
        std::fs::read_dir(dir.path().join("state/instances"))
            .unwrap()
            .next()
            .is_none()
    );
}
