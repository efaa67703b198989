//! The tree at the deadline: SIGTERM to all of it, the grace, SIGKILL to what is left, and only then the result.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::place::{shown, token};
use super::subject::Subject;
use super::tree_script::{Escape, Runaway};
use std::time::Duration;
use stead_types::ComputeConfig;

pub(super) fn cases() -> Vec<Case> {
    [
        case!(
            "9.1",
            "a timeout ends the shell and the program it waits for",
            whole_tree
        ),
        case!("9.2", "a timeout ends a background child", background),
        case!("9.2", "a timeout ends a child in its own session", session),
        case!("9.2", "a timeout ends a nohup child", nohup),
        case!("9.2", "a timeout ends a child that ignores TERM", ignores_term),
        case!("4", "a timeout ends a double forked child", double_fork),
        case!("4", "a timeout ends a daemon", daemon),
        case!("4", "a timeout ends a stopped child", stopped),
        case!(
            "4",
            "a timeout ends a leader that ignores TERM",
            leader_ignores_term
        ),
        case!("4", "a timeout ends a stopped leader", stopped_leader),
        case!("4", "a timeout ends a tree that keeps growing", growing),
        case!(
            "4",
            "SIGTERM reaches the whole tree, and the grace is granted",
            term_reaches_all
        ),
        case!("4", "what is left after the grace is killed", killed_after_grace),
    ]
    .map(Case::waits)
    .to_vec()
}

const SHORT: Duration = Duration::from_millis(300);

/// Runs the descendant into a timeout; longer ones if the host is too busy to start it in time.
async fn run_into_timeout(runaway: &Runaway<'_>) -> Result<(), Failure> {
    for seconds in [1, 4, 16] {
        if runaway.times_out(seconds, SHORT).await?.is_some() {
            return Ok(());
        }
    }
    Err(Failure::new(
        "the descendant was not started within 16 s; this host is too busy to tell",
    ))
}

async fn ends(subject: &Subject, escape: Escape) -> Outcome {
    let place = subject.shared().await?;
    let runaway = Runaway::new(&place, escape).await?;
    run_into_timeout(&runaway).await?;
    runaway.ensure_gone().await?;
    Ok(Verdict::Passed)
}

async fn background(subject: &Subject) -> Outcome {
    ends(subject, Escape::Background).await
}

async fn session(subject: &Subject) -> Outcome {
    ends(subject, Escape::Session).await
}

async fn nohup(subject: &Subject) -> Outcome {
    ends(subject, Escape::Nohup).await
}

async fn ignores_term(subject: &Subject) -> Outcome {
    ends(subject, Escape::IgnoresTerm).await
}

async fn double_fork(subject: &Subject) -> Outcome {
    ends(subject, Escape::DoubleFork).await
}

async fn daemon(subject: &Subject) -> Outcome {
    ends(subject, Escape::Daemon).await
}

async fn stopped(subject: &Subject) -> Outcome {
    ends(subject, Escape::Stopped).await
}

fn one_second() -> ComputeConfig {
    let mut config = ComputeConfig::new().timeout(Duration::from_secs(1));
    config.grace = Some(SHORT);
    config
}

/// Text in which `DIR` is a fresh directory runs into a timeout, and then no process of it is there.
async fn leaves_no_process(subject: &Subject, text: &str) -> Outcome {
    let place = subject.shared().await?;
    let directory = place.directory().await?;
    let text = text.replace("DIR", &directory.display().to_string());
    let result = place.execute(text.as_str(), one_second()).await?;
    ensure!(result.timed_out, "expected a timeout, got {}", shown(&result));
    let found = place
        .processes_with(&token(&directory))
        .await?
        .unwrap_or_default();
    ensure!(
        found.is_empty(),
        "the result came before these were gone: {found}"
    );
    Ok(Verdict::Passed)
}

async fn whole_tree(subject: &Subject) -> Outcome {
    leaves_no_process(subject, "sh -c 'sleep 300; echo hi; : DIR'; echo hi; : DIR").await
}

async fn leader_ignores_term(subject: &Subject) -> Outcome {
    leaves_no_process(subject, "trap '' TERM; while :; do sleep 1; done; : DIR").await
}

async fn stopped_leader(subject: &Subject) -> Outcome {
    leaves_no_process(subject, "kill -STOP $$; : DIR").await
}

async fn growing(subject: &Subject) -> Outcome {
    // Each child starts the next one and ends: whoever kills what it saw a moment ago kills too little.
    let text = "next() { [ $1 -gt 3000 ] || ( sleep 0.02 2>/dev/null || sleep 1; : DIR; next $(($1 + 1)) ) & }; \
                trap '' TERM; next 1; next 1; next 1; while :; do sleep 1; done";
    leaves_no_process(subject, text).await
}

async fn term_reaches_all(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let dir = place.directory().await?;
    let shown_dir = dir.display();
    let child = format!(
        "trap \"sleep 1; : > {shown_dir}/child; exit 0\" TERM; : > {shown_dir}/started; \
         while :; do sleep 1; done"
    );
    let text = format!(
        "trap ': > {shown_dir}/leader; wait; exit 0' TERM; setsid sh -c '{child}' & \
         while [ ! -e {shown_dir}/started ]; do sleep 1; done; : > {shown_dir}/ready; \
         while :; do sleep 1; done"
    );
    let mut config = ComputeConfig::new().timeout(Duration::from_secs(6));
    config.grace = Some(Duration::from_secs(40));
    let result = place.execute(text, config).await?;
    ensure!(result.timed_out, "expected a timeout, got {}", shown(&result));
    ensure!(
        place.exists(&dir.join("ready")).await?,
        "not started within 6 s; this host is too busy to tell"
    );
    ensure!(
        place.exists(&dir.join("leader")).await?,
        "the leader did not get SIGTERM"
    );
    ensure!(
        place.exists(&dir.join("child")).await?,
        "a child in its own session did not get SIGTERM, or not the time to act on it"
    );
    Ok(Verdict::Passed)
}

async fn killed_after_grace(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let directory = place.directory().await?;
    let text = format!(
        "trap 'echo got' TERM; echo ready; while :; do sleep 1; done; : {}",
        directory.display()
    );
    let mut config = ComputeConfig::new().timeout(Duration::from_secs(3));
    // Long enough for a shell that sleeps one second at a time to act on the signal.
    config.grace = Some(Duration::from_secs(4));
    let result = place.execute(text, config).await?;
    ensure!(
        result.timed_out && result.exit_code.is_none(),
        "expected a timeout, got {}",
        shown(&result)
    );
    let heard = result.stdout_text().starts_with("ready\ngot\n");
    ensure!(heard, "SIGTERM did not come before SIGKILL: {}", shown(&result));
    let found = place
        .processes_with(&token(&directory))
        .await?
        .unwrap_or_default();
    ensure!(
        found.is_empty(),
        "the result came before these were gone: {found}"
    );
    Ok(Verdict::Passed)
}
