//! A plan of `native` with one wall taken out: the attack must get through there, or the place must not come up. A probe
//! that says "refused" whatever stands there would be no probe.
#![cfg(feature = "attack-tests")]

use stead_confine::{Bind, Namespace, Plan, Step};
use stead_provider::Provider;
use stead_providers::NativeProvider;
use stead_providers::doctor::{Doctor, axes};
use stead_types::{Availability, Axis, ComputeConfig};

/// A wall, the axis that rests on it, and what takes it out.
type Wall = (&'static str, Axis, fn(&mut Plan));

/// Those of which one alone can be missing.
///
/// The mount namespace is not among them: without it the root of this host would be turned. Some walls stand behind
/// others, so that no attempt gets through when one of them alone is missing: Landlock and the masks of /proc behind the
/// mounts and the ids, the dropped capabilities behind the user namespace.
const WALLS: [Wall; 5] = [
    ("processes of its own", Axis::ProcessContained, |plan| {
        plan.namespaces.retain(|namespace| *namespace != Namespace::Pid);
    }),
    ("a root of its own", Axis::HostFilesystemRestricted, |plan| {
        // Where the canary is.
        let temporary = std::env::temp_dir();
        let is_tmp = |step: &Step| matches!(step, Step::Memory { place, .. } if *place == temporary);
        plan.root.steps.retain(|step| !is_tmp(step));
        plan.root.steps.push(Step::Bind(Bind {
            host: temporary.clone(),
            place: temporary,
            read_only: false,
            devices: false,
        }));
    }),
    ("no new privileges", Axis::PrivilegeEscalationBlocked, |plan| {
        plan.no_new_privileges = false;
        // Both need it, and Landlock's library sets it.
        plan.system_calls = false;
        plan.landlock = None;
    }),
    (
        "the allow list of system calls",
        Axis::SyscallsRestricted,
        |plan| plan.system_calls = false,
    ),
    ("a network of its own", Axis::NetworkRestricted, |plan| {
        plan.namespaces.retain(|namespace| *namespace != Namespace::Net);
        plan.loopback = false;
        // It keeps abstract sockets apart also without.
        if let Some(landlock) = &mut plan.landlock {
            landlock.scoped = false;
        }
    }),
];

#[tokio::test]
async fn without_a_wall_the_attack_gets_through() {
    let dir = tempfile::tempdir().unwrap();
    let whole = NativeProvider::with_state_dir(dir.path().join("whole"));
    if let Availability::Unavailable(missing) = whole.probe().await {
        return stead_testkit::skip("the attack on broken plans of native", &missing.reason);
    }
    let doctor = Doctor::with_state_dir(Some(dir.path().join("control")))
        .await
        .unwrap();
    let control = axes(&doctor.examine(&whole, ComputeConfig::new()).await.unwrap());
    for (wall, axis, alter) in WALLS {
        assert!(control.holds(axis), "the control: with {wall} it holds");
        let broken = NativeProvider::with_altered_plans(dir.path().join("broken"), alter);
        let verdicts = doctor.examine(&broken, ComputeConfig::new()).await;
        let verdicts = verdicts.unwrap_or_else(|error| {
            panic!("without {wall}: {error}: {:?}", std::error::Error::source(&error))
        });
        assert_eq!(
            axes(&verdicts).get(axis),
            Some(false),
            "without {wall}: {verdicts:#?}"
        );
    }
}
