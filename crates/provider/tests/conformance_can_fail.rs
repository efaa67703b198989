//! The kit finds what is wrong with a provider that is wrong, and nothing where it is right.
#![cfg(feature = "conformance")]
#![expect(
    clippy::unwrap_used,
    reason = "a test may panic, also outside of its test functions"
)]

mod naive;

use naive::Naive;
use std::sync::Arc;
use stead_provider::conformance::{Facts, Report, Subject, Verdict, cases, run};
use stead_types::ComputeConfig;

fn subject(scratch: &std::path::Path) -> Subject {
    let facts = Facts::new(scratch)
        .scratch_on_host(scratch)
        .shares_host_processes(true)
        .has_terminals(false)
        .honours_memory_limit(false)
        .honours_image(false);
    Subject::new(Arc::new(Naive::default()), ComputeConfig::new(), facts)
}

async fn judge(names: &[&str]) -> Report {
    let scratch = tempfile::tempdir().unwrap();
    let subject = subject(scratch.path());
    let mut all = Report::default();
    for name in names {
        let mut report = run(&subject, Some(name), 1).await;
        // The line about what is left comes with each run.
        assert_eq!(report.lines.len(), 2, "{name:?} is not one case:\n{report}");
        all.lines.append(&mut report.lines);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_kills_the_leader_fails() {
    let names = [
        "a timeout ends a background child",
        "a timeout ends a child in its own session",
        "a timeout ends a nohup child",
        "a timeout ends a child that ignores TERM",
        "sweep: a background child dies with its leader",
        "sweep: a double forked child dies with its leader",
        "SIGTERM reaches the whole tree",
        "files: an archive that wants to leave its directory is refused",
        "an option that nobody knows is refused",
        "cancelling ends the tree",
    ];
    let report = judge(&names).await;
    println!("{report}");
    assert_eq!(report.failed().count(), names.len(), "{report}");
    assert!(!report.is_success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_right_passes() {
    let names = [
        "an exit code is passed on",
        "a timeout is its own outcome",
        "a program that is not found is 127",
        "arguments are verbatim",
        "env values are verbatim",
        "a NUL is an error",
        "streams are kept apart",
        "output over the limit is drained",
        "50 MiB of standard input are exact",
        "a spawned program takes input while it gives output",
        "commands of one instance do not wait for each other",
        "after shutdown the instance is gone",
        "an unknown id is no instance",
        "an instance's key given to a command is refused",
        "files: what is written is read, byte exact",
        "files: a list has all names in byte order",
        "files: an archive is unpacked byte exact",
    ];
    let report = judge(&names).await;
    println!("{report}");
    assert!(report.is_success(), "{report}");
    assert_eq!(report.passed().count(), 2 * names.len(), "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_judged_is_no_pass() {
    let report = judge(&[
        "a terminal has the size",
        "an instance that breaks during a command",
    ])
    .await;
    assert_eq!(report.skipped().count(), 2, "{report}");
    assert!(
        report
            .lines
            .iter()
            .all(|line| line.outcome != Ok(Verdict::Passed) || line.section == "2")
    );
    let scratch = tempfile::tempdir().unwrap();
    let nothing = run(&subject(scratch.path()), Some("no case has this name"), 1).await;
    assert!(!nothing.is_success(), "{nothing}");
}

#[test]
fn names_are_unique() {
    let all = cases();
    let names: std::collections::BTreeSet<_> = all.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), all.len());
}
