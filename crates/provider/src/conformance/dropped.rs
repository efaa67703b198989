//! Futures and processes that are dropped leave nothing running.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::subject::Subject;
use super::tree_script::{Escape, Runaway};
use std::collections::BTreeSet;
use std::time::Duration;
use stead_types::{CommandLine, ComputeConfig, ComputeInstance, InstanceId, ProvisionError};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("9.16", "a dropped execute leaves no process", execute).waits(),
        case!(
            "9.16",
            "a dropped execute leaves no process that tries to stay",
            execute_escapes
        )
        .waits(),
        case!(
            "9.16",
            "an execute that is dropped before its command starts leaves no process",
            execute_early
        )
        .waits(),
        case!("9.16", "a dropped process ends its tree", process).waits(),
        case!("9.16", "a dropped provision leaves no instance", provision)
            .without_shell()
            .limit(180),
    ]
}

/// A future that is given up after so long; none is long enough to be kept for sure.
const DELAYS: [u64; 8] = [0, 1, 5, 20, 50, 100, 300, 1000];

async fn provision(subject: &Subject) -> Outcome {
    let before = subject.ids().await?;
    let mut dropped = 0;
    for delay in DELAYS.map(Duration::from_millis) {
        let provision = subject.provider.provision(subject.config.clone());
        let given: Result<Result<ComputeInstance, ProvisionError>, _> =
            tokio::time::timeout(delay, provision).await;
        match given {
            Ok(instance) => subject.provider.shutdown(&instance?.id).await?,
            Err(_) => dropped += 1,
        }
    }
    if dropped == 0 {
        return Verdict::skipped("this provider provisions without ever waiting, so nothing can be dropped");
    }
    until_no_more_than(subject, &before).await?;
    // Nothing that was given up comes up later either.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let left: Vec<_> = subject.ids().await?.difference(&before).cloned().collect();
    ensure!(left.is_empty(), "after a while there are {left:?}");
    Ok(Verdict::Passed)
}

async fn until_no_more_than(subject: &Subject, before: &BTreeSet<InstanceId>) -> Result<(), Failure> {
    while subject.ids().await?.difference(before).next().is_some() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Executes the runaway's command and drops the future when the descendant is there.
async fn drop_execute(subject: &Subject, escape: Escape) -> Result<(), Failure> {
    let place = subject.shared().await?;
    let runaway = Runaway::new(&place, escape).await?;
    let command = place.execute(runaway.command("sleep 300"), ComputeConfig::new());
    tokio::select! {
        result = command => {
            return Err(Failure::new(format!("the command ended before it was dropped: {result:?}")));
        }
        started = runaway.until_started() => started?,
    }
    runaway.until_no_process().await?;
    runaway.ensure_gone().await
}

async fn execute(subject: &Subject) -> Outcome {
    drop_execute(subject, Escape::Background).await?;
    Ok(Verdict::Passed)
}

async fn execute_escapes(subject: &Subject) -> Outcome {
    for escape in [Escape::Session, Escape::IgnoresTerm, Escape::Daemon] {
        drop_execute(subject, escape).await?;
    }
    Ok(Verdict::Passed)
}

async fn execute_early(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for delay in [0, 0, 1, 1, 2, 5, 10].map(Duration::from_millis) {
        let runaway = Runaway::new(&place, Escape::Session).await?;
        let command = place.execute(runaway.command("sleep 300"), ComputeConfig::new());
        if let Ok(result) = tokio::time::timeout(delay, command).await {
            return Err(Failure::new(format!(
                "the command ended before it was dropped: {result:?}"
            )));
        }
        // A command that was asked for before this one and is not refused has started by now.
        place.sh_ok("true").await?;
        runaway.until_no_process().await?;
        runaway.ensure_gone().await?;
    }
    Ok(Verdict::Passed)
}

async fn process(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for escape in [Escape::Background, Escape::Daemon] {
        let runaway = Runaway::new(&place, escape).await?;
        let text = CommandLine::Shell(runaway.command("sleep 300"));
        let process = place.spawn(text, ComputeConfig::new()).await?;
        runaway.until_started().await?;
        drop(process);
        runaway.until_no_process().await?;
        runaway.ensure_gone().await?;
    }
    Ok(Verdict::Passed)
}
