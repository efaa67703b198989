//! The whole request, compared as JSON.

use super::*;
use crate::docker::labels::Owner;
use serde_json::{Value, json};
use stead_types::{InstanceId, Mount, Resources};
use time::OffsetDateTime;

const ID: &str = "019a0000-0000-7000-8000-000000000001";

fn image(user: Option<&str>) -> ImageFacts {
    ImageFacts {
        id: "sha256:abc".to_owned(),
        user: user.map(str::to_owned),
        arch: "amd64".to_owned(),
    }
}

fn facts() -> InstanceFacts {
    InstanceFacts {
        labels: InstanceLabels {
            instance: InstanceId::new(ID),
            owner: Some(Owner {
                pid: 7,
                start: 8,
                boot_id: "boot".to_owned(),
            }),
            created_at: Some(OffsetDateTime::UNIX_EPOCH),
            detached: false,
        },
        access: Access::Socket {
            supervisor: "/lib/stead/sup".into(),
            control: "/run/user/7/stead/x".into(),
        },
        supervisor_args: vec!["serve".to_owned()],
        mounts: Vec::new(),
        engine_sockets: vec!["/run/docker.sock".into()],
        api: ApiVersion(1, 41),
        takes_filter: true,
    }
}

fn options(value: Value) -> Options {
    Options::parse(value.as_object().unwrap()).unwrap()
}

fn planned(config: &ComputeConfig, value: Value) -> Plan {
    plan(config, &options(value), &image(None), &facts()).unwrap()
}

fn host(plan: &Plan) -> Value {
    body(plan)["HostConfig"].clone()
}

/// The request, with a word for the long text of the filter.
fn body(plan: &Plan) -> Value {
    let mut body = serde_json::to_value(&plan.body).unwrap();
    for option in body["HostConfig"]["SecurityOpt"].as_array_mut().unwrap() {
        if *option == format!("seccomp={}", crate::docker::seccomp::profile()) {
            *option = "OUR FILTER".into();
        }
    }
    body
}

/// Code and key of the error.
fn refused(config: &ComputeConfig, value: Value) -> (&'static str, String) {
    use stead_types::Code;
    let error = plan(config, &options(value), &image(None), &facts()).unwrap_err();
    let key = match &error {
        ProvisionError::Unsupported { key, .. } => key.clone(),
        ProvisionError::WeakerIsolation { option, .. } | ProvisionError::Option { option, .. } => {
            option.clone()
        }
        _ => String::new(),
    };
    (error.code(), key)
}

#[test]
fn the_default_is_closed() {
    let plan = planned(&ComputeConfig::new(), json!({}));
    let expected = json!({
        "User": "0:0",
        "AttachStdin": false, "AttachStdout": false, "AttachStderr": false, "Tty": false, "OpenStdin": false,
        "Env": [],
        "Cmd": ["serve"],
        "Healthcheck": {"Test": ["NONE"]},
        "Image": "sha256:abc",
        "WorkingDir": "/workspace",
        "Entrypoint": ["/run/stead/bin/supervisor"],
        "Labels": {
            "dev.stead.managed": "true",
            "dev.stead.owner": "7",
            "dev.stead.owner-start": "8",
            "dev.stead.boot-id": "boot",
            "dev.stead.instance": ID,
            "dev.stead.created-at": "1970-01-01T00:00:00Z",
            "dev.stead.detached": "false",
        },
        "HostConfig": {
            "AutoRemove": true,
            "RestartPolicy": {"Name": "no"},
            "Init": false,
            "Memory": 2_147_483_648_i64, "MemorySwap": 2_147_483_648_i64,
            "PidsLimit": 512,
            "CapDrop": ["ALL"],
            "CapAdd": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"],
            "Privileged": false,
            "SecurityOpt": ["no-new-privileges", "OUR FILTER"],
            "NetworkMode": "default",
            "IpcMode": "private",
            "ReadonlyRootfs": false,
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m", "max-file": "1"}},
            "Mounts": [
                {"Type": "bind", "Source": "/lib/stead/sup", "Target": "/run/stead/bin/supervisor",
                 "ReadOnly": true, "BindOptions": {"NonRecursive": true}},
                {"Type": "bind", "Source": "/run/user/7/stead/x", "Target": "/run/stead/ctl", "ReadOnly": false},
            ],
        },
    });
    assert_eq!(body(&plan), expected);
    assert_eq!(plan.name, format!("stead-{ID}"));
    assert_eq!(plan.command_user, None);
    assert_eq!(
        plan.cleared,
        Axes {
            network_restricted: Some(false),
            ..Axes::UNKNOWN
        }
    );
    assert_eq!(plan.consented, [""; 0]);
}

#[test]
fn what_is_asked_for_is_in_the_request() {
    let mut config = ComputeConfig::new()
        .env("A", "b\n c=$HOME")
        .workdir("/w")
        .network(NetworkPolicy::None);
    config.resources = Resources {
        cpu: Some(0.5),
        memory: Some(64 << 20),
        pids: Some(9),
        disk: None,
    };
    config.user = Some("nobody".to_owned());
    let plan = planned(&config, json!({"cap_drop": ["CHOWN"], "shm_size": 1_048_576}));
    let body = serde_json::to_value(&plan.body).unwrap();
    assert_eq!(body["Env"], json!(["A=b\n c=$HOME"]));
    assert_eq!(body["WorkingDir"], "/w");
    assert_eq!(body["User"], "0:0");
    let host = host(&plan);
    assert_eq!(host["NanoCpus"], 500_000_000);
    assert_eq!(
        (&host["Memory"], &host["MemorySwap"]),
        (&json!(64 << 20), &json!(64 << 20))
    );
    assert_eq!(
        (&host["PidsLimit"], &host["ShmSize"]),
        (&json!(9), &json!(1_048_576))
    );
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(
        host["CapAdd"],
        json!(["DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID"])
    );
    assert_eq!(
        (plan.command_user.as_deref(), plan.workdir.as_str()),
        (Some("nobody"), "/w")
    );
    assert_eq!(plan.cleared, Axes::UNKNOWN);
}

#[test]
fn without_the_means_to_switch_the_whole_container_runs_as_the_user() {
    let drop = json!({"cap_drop": ["ALL"]});
    let of = |config: &ComputeConfig, user: Option<&str>, value: Value| {
        let plan = plan(config, &options(value), &image(user), &facts()).unwrap();
        (plan.body.user.unwrap(), plan.command_user)
    };
    let text = str::to_owned;
    let none = ComputeConfig::new();
    assert_eq!(
        of(&none, Some("web"), json!({})),
        (text("0:0"), Some(text("web")))
    );
    assert_eq!(of(&none, Some("web"), drop.clone()), (text("web"), None));
    assert_eq!(
        of(&none.clone().user("5:6"), Some("web"), drop.clone()),
        (text("5:6"), None)
    );
    assert_eq!(of(&none, None, drop), (text("0:0"), None));
}

#[test]
fn a_read_only_root_keeps_two_folders_to_write_to() {
    let tmpfs = "rw,exec,nosuid,nodev,mode=1777,uid=0,gid=0";
    let read_only = || json!({"read_only": true});
    let host_of = |config: &ComputeConfig, facts: &InstanceFacts| {
        host(&plan(config, &options(read_only()), &image(None), facts).unwrap())
    };
    let host = host_of(&ComputeConfig::new(), &facts());
    assert_eq!(host["ReadonlyRootfs"], true);
    assert_eq!(host["Tmpfs"], json!({"/tmp": tmpfs, "/workspace": tmpfs}));
    // What is mounted is not hidden.
    let mut granted = facts();
    let grant = Mount {
        host: "/home/me".into(),
        place: "/workspace".into(),
        read_only: false,
    };
    granted.mounts = vec![GrantedMount::as_given(&grant)];
    assert_eq!(
        host_of(&ComputeConfig::new(), &granted)["Tmpfs"],
        json!({"/tmp": tmpfs})
    );
    assert_eq!(
        host_of(&ComputeConfig::new().workdir("/"), &facts())["Tmpfs"],
        json!({"/tmp": tmpfs})
    );
    let tmpfs_of = |user| host_of(&ComputeConfig::new().user(user), &facts())["Tmpfs"]["/tmp"].clone();
    assert_eq!(tmpfs_of("5"), "rw,exec,nosuid,nodev,mode=1777,uid=5");
    assert_eq!(tmpfs_of("5:6"), "rw,exec,nosuid,nodev,mode=1777,uid=5,gid=6");
    assert_eq!(tmpfs_of("web:6"), "rw,exec,nosuid,nodev,mode=1777");
}

#[test]
fn the_engine_makes_the_working_directory_unless_it_is_a_tmpfs() {
    let made = |value| planned(&ComputeConfig::new(), value).body.working_dir;
    assert_eq!(made(json!({})).as_deref(), Some("/workspace"));
    assert_eq!(made(json!({"read_only": true})), None);
}

#[test]
fn a_remote_engine_gets_a_volume_and_no_path_of_ours() {
    let mut remote = facts();
    remote.access = Access::ExecRelay;
    let plan = plan(&ComputeConfig::new(), &Options::default(), &image(None), &remote).unwrap();
    let volume = json!([
        {"Type": "volume", "Target": "/run/stead", "ReadOnly": false, "VolumeOptions": {"NoCopy": true}}
    ]);
    assert_eq!(host(&plan)["Mounts"], volume);
}

#[test]
fn a_mount_is_of_the_real_path_and_read_only_with_all_below_it() {
    let grant = Mount {
        host: "/home/me/link:a".into(),
        place: "/data".into(),
        read_only: true,
    };
    let mount = GrantedMount {
        source: "/srv/real:a".into(),
        ..GrantedMount::as_given(&grant)
    };
    let mut with = facts();
    with.mounts = vec![mount];
    let third = |facts: &InstanceFacts| {
        host(&plan(&ComputeConfig::new(), &Options::default(), &image(None), facts).unwrap())["Mounts"][2]
            .clone()
    };
    let mut expected = json!({"Type": "bind", "Source": "/srv/real:a", "Target": "/data", "ReadOnly": true,
        "BindOptions": {"NonRecursive": true}});
    assert_eq!(third(&with), expected);
    with.api = ApiVersion(1, 44);
    expected.as_object_mut().unwrap().remove("BindOptions");
    assert_eq!(third(&with), expected);
}

#[test]
fn nothing_is_mounted_over_the_supervisor() {
    for place in ["/", "/run", "/run/stead", "/run/stead/ctl", "/a/../run/stead"] {
        let grant = Mount {
            host: "/home/me".into(),
            place: place.into(),
            read_only: false,
        };
        let mut with = facts();
        with.mounts = vec![GrantedMount::as_given(&grant)];
        let error = plan(&ComputeConfig::new(), &Options::default(), &image(None), &with).unwrap_err();
        assert!(
            matches!(error, ProvisionError::Unsupported { key, .. } if key == "mounts"),
            "{place}"
        );
    }
    for workdir in ["/run/stead", "/run/stead/ctl", "/a/../run/stead"] {
        let code = refused(&ComputeConfig::new().workdir(workdir), json!({})).0;
        assert_eq!(code, "workdir_invalid", "{workdir}");
    }
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    let mut config = ComputeConfig::new();
    config.resources.disk = Some(1 << 30);
    assert_eq!(
        refused(&config, json!({})),
        ("config_unsupported", "resources.disk".to_owned())
    );
    config = ComputeConfig::new();
    config.inherit_env = Some(InheritEnv::All);
    assert_eq!(
        refused(&config, json!({})),
        ("config_unsupported", "inherit_env".to_owned())
    );
    config = ComputeConfig::new().network(NetworkPolicy::Allow {
        domains: vec!["a.b".to_owned()],
    });
    assert_eq!(
        refused(&config, json!({})),
        ("config_unsupported", "network".to_owned())
    );
    config = ComputeConfig::new().network(NetworkPolicy::None);
    assert_eq!(
        refused(&config, json!({"network_mode": "host"})),
        ("option_invalid", "network_mode".to_owned())
    );
    use std::os::unix::ffi::OsStringExt;
    config = ComputeConfig::new().env("A", std::ffi::OsString::from_vec(vec![0xff]));
    assert_eq!(
        refused(&config, json!({})),
        ("config_unsupported", "env.A".to_owned())
    );
    assert_eq!(
        refused(&ComputeConfig::new().env("A=", ""), json!({})).0,
        "config_invalid"
    );
    assert_eq!(
        refused(&ComputeConfig::new().user(""), json!({})).0,
        "config_invalid"
    );
}

#[test]
fn what_weakens_needs_consent_and_clears_its_axes() {
    let all = Axis::ALL;
    for (value, axes) in [
        (json!({"privileged": true}), &all[..]),
        (json!({"network_mode": "host"}), &[Axis::NetworkRestricted]),
        (json!({"network_mode": "shared"}), &[Axis::NetworkRestricted]),
        (
            json!({"pid_mode": "host", "network_mode": "none"}),
            &[Axis::ProcessContained],
        ),
        (
            json!({"security_opt": ["seccomp:unconfined"], "network_mode": "none"}),
            &[Axis::SyscallsRestricted],
        ),
        (json!({"cap_add": ["SYS_ADMIN"]}), &all[..]),
    ] {
        assert_eq!(
            refused(&ComputeConfig::new(), value.clone()).0,
            "weaker_isolation",
            "{value}"
        );
        let mut consent = value;
        consent["i_accept_weaker_isolation"] = true.into();
        let plan = planned(&ComputeConfig::new(), consent);
        let cleared: Vec<_> = all
            .into_iter()
            .filter(|axis| plan.cleared.get(*axis) == Some(false))
            .collect();
        assert_eq!(cleared, axes);
        assert_eq!(plan.consented.len(), 1);
    }
}

#[test]
fn the_engines_socket_needs_consent() {
    let grant = Mount {
        host: "/run/docker.sock".into(),
        place: "/s".into(),
        read_only: true,
    };
    let mut with = facts();
    with.mounts = vec![GrantedMount::as_given(&grant)];
    let of = |value| plan(&ComputeConfig::new(), &options(value), &image(None), &with);
    assert!(matches!(
        of(json!({})),
        Err(ProvisionError::WeakerIsolation { .. })
    ));
    assert_eq!(
        of(json!({"i_accept_weaker_isolation": true})).unwrap().cleared,
        Axes::NONE
    );
}

#[test]
fn an_id_that_we_did_not_make_names_no_container() {
    let mut other = facts();
    other.labels.instance = InstanceId::new("../x");
    assert!(plan(&ComputeConfig::new(), &Options::default(), &image(None), &other).is_err());
}
