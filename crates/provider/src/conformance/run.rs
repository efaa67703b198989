//! The runner.

use super::case::{Case, CaseFuture, Failure, Outcome, Verdict};
use super::report::{Line, Report};
use super::subject::Subject;
use futures_util::stream::{self, StreamExt};
use std::time::{Duration, Instant};

/// How often [`run_from_env`] runs every case; 1 without it.
pub const REPEAT_VARIABLE: &str = "STEAD_CONFORMANCE_REPEAT";

/// Which cases [`run_from_env`] runs: those whose `section name` contains it. All without it.
pub const ONLY_VARIABLE: &str = "STEAD_CONFORMANCE_ONLY";

/// Tearing a place down again may take so long; more is a hang.
const CLEAN_UP_LIMIT: Duration = Duration::from_secs(90);

/// Cases that mostly wait and run at once.
const AT_ONCE: usize = 8;

/// Runs the cases whose `section name` contains `filter`, all of them so often, and removes what they
/// brought up. They run one after the other, but for those that mostly wait.
pub async fn run(subject: &Subject, filter: Option<&str>, repetitions: usize) -> Report {
    run_with(subject, filter, repetitions, |_| {}).await
}

/// Runs as [`REPEAT_VARIABLE`] and [`ONLY_VARIABLE`] say and prints each case's line as it is done.
pub async fn run_from_env(subject: &Subject) -> Report {
    let filter = std::env::var(ONLY_VARIABLE).ok();
    let repetitions = match std::env::var(REPEAT_VARIABLE).map(|text| text.parse()) {
        Err(_) => 1,
        Ok(Ok(repetitions)) => repetitions,
        // No repetition, so no line and no success: a typing error must not look like a pass.
        Ok(Err(_)) => 0,
    };
    run_with(subject, filter.as_deref(), repetitions, |line| println!("{line}")).await
}

async fn run_with(
    subject: &Subject,
    filter: Option<&str>,
    repetitions: usize,
    mut each: impl FnMut(&Line),
) -> Report {
    let mut report = Report::default();
    let chosen: Vec<Case> = super::cases()
        .into_iter()
        .filter(|case| matches(case, filter))
        .collect();
    for repetition in 1..=repetitions {
        for group in chosen.chunk_by(|one, next| one.waits && next.waits) {
            let mut lines = stream::iter(group)
                .map(|case| run_case(subject, case, repetition))
                .buffered(AT_ONCE);
            let mut failed = false;
            while let Some(line) = lines.next().await {
                each(&line);
                failed |= line.outcome.is_err();
                report.lines.push(line);
            }
            drop(lines);
            if let Some(line) = clean_up(subject, failed, repetition).await {
                each(&line);
                report.lines.push(line);
            }
        }
    }
    if !report.lines.is_empty() {
        let last = Case::new("2", "nothing is left of the run", never_run).limit(CLEAN_UP_LIMIT.as_secs());
        let (outcome, took) = limited(last.limit, Box::pin(nothing_is_left(subject))).await;
        let line = Line::new(&last, 1, outcome, took);
        each(&line);
        report.lines.push(line);
    }
    report
}

fn matches(case: &Case, filter: Option<&str>) -> bool {
    filter.is_none_or(|text| format!("{} {}", case.section, case.name).contains(text))
}

async fn run_case(subject: &Subject, case: &Case, repetition: usize) -> Line {
    if case.needs_shell && !subject.facts.has_shell {
        return Line::new(
            case,
            repetition,
            Verdict::skipped("the place has no shell"),
            Duration::ZERO,
        );
    }
    let (outcome, took) = limited(case.limit, (case.run)(subject)).await;
    Line::new(case, repetition, outcome, took)
}

/// Removes what the last cases brought up. A line only when that fails.
async fn clean_up(subject: &Subject, failed: bool, repetition: usize) -> Option<Line> {
    let case = Case::new("2", "what a case brought up can be shut down", never_run);
    let clean = async { subject.clean_up(failed).await.map(|()| Verdict::Passed) };
    let (outcome, took) = limited(CLEAN_UP_LIMIT, Box::pin(clean)).await;
    outcome
        .is_err()
        .then(|| Line::new(&case, repetition, outcome, took))
}

async fn limited(limit: Duration, case: CaseFuture<'_>) -> (Outcome, Duration) {
    let started = Instant::now();
    let outcome = match tokio::time::timeout(limit, case).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::new(format!(
            "it hangs: no end after {} s",
            limit.as_secs()
        ))),
    };
    (outcome, started.elapsed())
}

async fn nothing_is_left(subject: &Subject) -> Outcome {
    let mine = subject.ever_provisioned();
    subject.clean_up(true).await?;
    let left: Vec<_> = subject
        .ids()
        .await?
        .intersection(&mine)
        .map(ToString::to_string)
        .collect();
    match left.is_empty() {
        true => Ok(Verdict::Passed),
        false => Err(Failure::new(format!(
            "still listed after their shutdown: {}",
            left.join(", ")
        ))),
    }
}

/// Cleaning up is no case that can be chosen, but it prints as one.
fn never_run(_: &Subject) -> CaseFuture<'_> {
    Box::pin(async { Verdict::skipped("it runs after the cases") })
}
