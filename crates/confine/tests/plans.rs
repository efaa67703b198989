//! Whole plans, as they would be carried out: what changes in one changes here, and is looked at.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use stead_confine::{ControlGroup, Grant, Host, ImageRoot, Limits, Network, Policy, RootEntry, compile};

fn host(uid: u32) -> Host {
    Host {
        is_root: uid == 0,
        uid,
        gid: uid,
        programs: vec![
            RootEntry::Directory("usr".to_owned()),
            RootEntry::Link("bin".to_owned(), "usr/bin".into()),
        ],
        etc: vec!["/etc/ssl/certs".into()],
    }
}

fn policy() -> Policy {
    Policy {
        hostname: "place".to_owned(),
        stage: "/state/root".into(),
        workspace: "/state/work".into(),
        image: None,
        grants: Vec::new(),
        network: Network::None,
        limits: Limits::default(),
        groups: Vec::new(),
    }
}

fn shown(policy: &Policy, uid: u32) -> String {
    serde_json::to_string_pretty(&compile(policy, &host(uid))).unwrap()
}

#[test]
fn the_usual_place_of_root() {
    insta::assert_snapshot!(shown(&policy(), 0));
}

#[test]
fn the_usual_place_of_an_ordinary_user() {
    insta::assert_snapshot!(shown(&policy(), 1000));
}

#[test]
fn a_place_with_everything_that_can_be_asked_for() {
    let asked = Policy {
        grants: vec![
            Grant {
                host: "/home/me/code".into(),
                place: "/code".into(),
                read_only: true,
            },
            Grant {
                host: "/home/me/out".into(),
                place: "/out".into(),
                read_only: false,
            },
        ],
        network: Network::Full,
        limits: Limits {
            disk: Some(1 << 20),
            open_files: Some(64),
        },
        groups: vec![ControlGroup {
            path: "/sys/fs/cgroup/pids/stead-x".into(),
            settings: vec![("pids.max".to_owned(), "512".to_owned())],
        }],
        ..policy()
    };
    insta::assert_snapshot!(shown(&asked, 0));
}

fn image() -> Policy {
    Policy {
        image: Some(ImageRoot {
            layers: vec!["/data/top".into(), "/data/base".into()],
            changes: "/state/changes".into(),
        }),
        ..policy()
    }
}

#[test]
fn a_place_with_the_files_of_an_image() {
    insta::assert_snapshot!(shown(&image(), 0));
}

/// What no policy can ask for, because there is no word for it: every plan has it.
#[test]
fn no_policy_takes_a_wall_away() {
    for policy in [policy(), image()] {
        for (uid, network) in [
            (0, Network::None),
            (0, Network::Full),
            (1000, Network::None),
            (1000, Network::Full),
        ] {
            let policy = Policy {
                network,
                ..policy.clone()
            };
            let plan = compile(&policy, &host(uid));
            assert!(plan.no_new_privileges && plan.system_calls && plan.landlock.is_some());
            let (users, groups) = plan.users.maps();
            assert_ne!(
                (users.outside, groups.outside),
                (0, 0),
                "root of the place is nobody on the host"
            );
        }
    }
}
