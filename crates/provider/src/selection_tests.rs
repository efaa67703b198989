use super::*;
use proptest::prelude::*;

const ALL_HOLD: Axes = Axes {
    process_contained: Some(true),
    host_filesystem_restricted: Some(true),
    privilege_escalation_blocked: Some(true),
    syscalls_restricted: Some(true),
    network_restricted: Some(true),
};

fn seen(name: &str, axes: Axes) -> Candidate {
    Candidate {
        name: name.to_owned(),
        refuses: None,
        missing: None,
        axes,
    }
}

fn gone(name: &str) -> Candidate {
    Candidate {
        missing: Some(Missing {
            code: "docker_not_running",
            reason: "it is not there".to_owned(),
            remedy: "Install it.".to_owned(),
        }),
        ..seen(name, Axes::UNKNOWN)
    }
}

fn required() -> Request {
    Request::automatic(None)
}

#[test]
fn the_cheapest_that_holds_is_taken_and_a_given_order_comes_first() {
    let candidates = [
        seen("docker", ALL_HOLD),
        seen("local", Axes::NONE),
        seen("native", ALL_HOLD),
    ];
    assert_eq!(select(&required(), &candidates, &[]).unwrap().name, "native");
    let request = Request {
        order: vec!["docker".to_owned()],
        ..required()
    };
    assert_eq!(select(&request, &candidates, &[]).unwrap().name, "docker");
}

#[test]
fn what_nobody_looked_at_does_not_hold() {
    let candidates = [
        seen("native", Axes::UNKNOWN),
        gone("docker"),
        seen("local", Axes::NONE),
    ];
    let error = select(&required(), &candidates, &[]).unwrap_err();
    let told = error.to_string();
    assert!(
        told.contains("native: not observed to hold: process_contained"),
        "{told}"
    );
    assert!(
        told.contains("docker: it is not there. Install it. [docker_not_running]"),
        "{told}"
    );
    assert!(!told.contains("local:"), "it is no candidate: {told}");
}

#[test]
fn a_network_that_is_to_be_reached_need_not_be_restricted() {
    let mut open = ALL_HOLD;
    open.set(Axis::NetworkRestricted, Some(false));
    let candidates = [seen("native", open)];
    assert!(select(&required(), &candidates, &[]).is_err());
    let full = Request::automatic(Some(&NetworkPolicy::Full));
    assert_eq!(select(&full, &candidates, &[]).unwrap().name, "native");
}

#[test]
fn one_that_failed_is_passed_over_and_told() {
    let candidates = [seen("native", ALL_HOLD), seen("docker", ALL_HOLD)];
    let failed = [("native".to_owned(), "it broke".to_owned())];
    let choice = select(&required(), &candidates, &failed).unwrap();
    assert_eq!(choice.name, "docker");
    assert_eq!(
        choice.passed_over,
        [("native".to_owned(), PassedOver::Failed("it broke".to_owned()))]
    );
}

#[test]
fn the_host_needs_a_word_and_that_word_contradicts_a_requirement() {
    let candidates = [seen("local", Axes::NONE)];
    let request = |isolation, unsafe_fallback| Request {
        isolation,
        unsafe_fallback,
        ..required()
    };
    let chosen =
        |isolation, word| select(&request(isolation, word), &candidates, &[]).map(|choice| choice.name);
    assert!(matches!(
        chosen(Isolation::Preferred, false),
        Err(SelectError::NoneEligible { .. })
    ));
    assert!(matches!(
        chosen(Isolation::None, false),
        Err(SelectError::NoneEligible { .. })
    ));
    assert_eq!(chosen(Isolation::Required, true), Err(SelectError::Contradiction));
    assert_eq!(chosen(Isolation::Preferred, true), Ok("local".to_owned()));
    assert_eq!(chosen(Isolation::None, true), Ok("local".to_owned()));
}

fn any_axes() -> impl Strategy<Value = Axes> {
    prop::collection::vec(prop::option::of(any::<bool>()), 5).prop_map(|held| {
        let mut axes = Axes::UNKNOWN;
        for (axis, held) in Axis::ALL.into_iter().zip(held) {
            axes.set(axis, held);
        }
        axes
    })
}

fn any_candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let names = ["native", "gvisor", "docker", "local", "mine"];
    let each = names.map(|name| {
        (prop::option::of(any_axes()), any::<bool>()).prop_map(move |(axes, there)| match (axes, there) {
            (Some(axes), true) => Some(seen(name, axes)),
            (_, false) => Some(gone(name)),
            (None, true) => None,
        })
    });
    Vec::from(each)
        .prop_map(|found| found.into_iter().flatten().collect::<Vec<_>>())
        .prop_shuffle()
}

fn any_request() -> impl Strategy<Value = Request> {
    let isolation = prop_oneof![
        Just(Isolation::Required),
        Just(Isolation::Preferred),
        Just(Isolation::None)
    ];
    let axes = prop::sample::subsequence(Axis::ALL.to_vec(), 0..=5);
    let names = prop::sample::subsequence(vec!["docker", "mine", "local", "native"], 0..=4).prop_shuffle();
    (isolation, axes, names, any::<bool>()).prop_map(|(isolation, axes, names, unsafe_fallback)| Request {
        isolation,
        axes: axes.into_iter().collect(),
        order: names.into_iter().map(str::to_owned).collect(),
        unsafe_fallback,
    })
}

proptest! {
    /// Whatever was seen, asked and failed, and however often it is chosen again: nothing ends on this host without
    /// the word for it, and what is required was observed.
    #[test]
    fn no_sequence_of_failures_ends_on_the_host(candidates in any_candidates(), request in any_request()) {
        let mut failed: Vec<(String, String)> = Vec::new();
        let mut last = 0;
        while let Ok(choice) = select(&request, &candidates, &failed) {
            let chosen = candidates.iter().find(|one| one.name == choice.name).unwrap();
            prop_assert!(chosen.missing.is_none());
            prop_assert!(!failed.iter().any(|(name, _)| *name == choice.name));
            let holds = request.axes.iter().all(|axis| chosen.axes.holds(*axis));
            prop_assert_eq!(choice.fallback, !holds);
            if request.isolation == Isolation::Required {
                prop_assert!(holds);
            }
            if choice.name == "local" {
                prop_assert!(request.unsafe_fallback && request.isolation != Isolation::Required);
            }
            failed.push((choice.name, "failed".to_owned()));
            last += 1;
            prop_assert!(last <= candidates.len());
        }
    }
}
