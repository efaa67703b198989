//! The tree when its leader ends by itself: swept, or kept.
//!
//! Kept descendants are also the control of all negative cases: the same script makes its marker when it
//! is left alone.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::place::token;
use super::subject::Subject;
use super::tree_script::{Escape, Runaway};
use std::time::Duration;
use stead_types::{ComputeConfig, Descendants};

pub(super) fn cases() -> Vec<Case> {
    [
        case!(
            "4",
            "sweep: a background child dies with its leader",
            sweep_background
        ),
        case!(
            "4",
            "sweep: a child in its own session dies with its leader",
            sweep_session
        ),
        case!("4", "sweep: a nohup child dies with its leader", sweep_nohup),
        case!(
            "4",
            "sweep: a child that ignores TERM dies with its leader",
            sweep_ignores_term
        ),
        case!(
            "4",
            "sweep: a double forked child dies with its leader",
            sweep_double_fork
        ),
        case!("4", "sweep: a daemon dies with its leader", sweep_daemon),
        case!("4", "sweep: a stopped child dies with its leader", sweep_stopped),
        case!("4", "sweep is the default of execute", sweep_default),
        case!("4", "keep: descendants live on and can work", keep),
        case!(
            "4",
            "keep: descendants die with their instance",
            keep_until_shutdown
        ),
    ]
    .map(Case::waits)
    .to_vec()
}

async fn sweeps(subject: &Subject, escape: Escape) -> Outcome {
    let place = subject.shared().await?;
    let runaway = Runaway::new(&place, escape).await?;
    runaway.leader_exits(Descendants::Sweep).await?;
    runaway.ensure_gone().await?;
    Ok(Verdict::Passed)
}

async fn sweep_background(subject: &Subject) -> Outcome {
    sweeps(subject, Escape::Background).await
}

async fn sweep_session(subject: &Subject) -> Outcome {
    sweeps(subject, Escape::Session).await
}

async fn sweep_nohup(subject: &Subject) -> Outcome {
    sweeps(subject, Escape::Nohup).await
}

async fn sweep_ignores_term(subject: &Subject) -> Outcome {
    sweeps(subject, Escape::IgnoresTerm).await
}

async fn sweep_double_fork(subject: &Subject) -> Outcome {
    sweeps(subject, Escape::DoubleFork).await
}

async fn sweep_daemon(subject: &Subject) -> Outcome {
    sweeps(subject, Escape::Daemon).await
}

async fn sweep_stopped(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let runaway = Runaway::new(&place, Escape::Stopped).await?;
    runaway.leader_exits(Descendants::Sweep).await?;
    // A process that stands still makes no marker anyway: only that it is gone says something.
    runaway.ensure_no_process().await?;
    Ok(Verdict::Passed)
}

async fn sweep_default(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let runaway = Runaway::new(&place, Escape::Background).await?;
    let result = place
        .execute(runaway.command("echo ok"), ComputeConfig::new())
        .await?;
    ensure!(
        result.success(),
        "the leader did not end well: {}",
        super::place::shown(&result)
    );
    runaway.ensure_gone().await?;
    Ok(Verdict::Passed)
}

async fn keep(subject: &Subject) -> Outcome {
    let place = subject.fresh().await?;
    for escape in [
        Escape::Background,
        Escape::Session,
        Escape::Nohup,
        Escape::IgnoresTerm,
        Escape::DoubleFork,
        Escape::Daemon,
    ] {
        let runaway = Runaway::new(&place, escape).await?;
        runaway.leader_exits(Descendants::Keep).await?;
        runaway
            .until_marker()
            .await
            .map_err(|failure| failure.during(&format!("{escape:?}")))?;
    }
    Ok(Verdict::Passed)
}

async fn keep_until_shutdown(subject: &Subject) -> Outcome {
    let Some(witness) = Witness::of(subject) else {
        return Verdict::skipped("nobody outside the place sees its processes or its files");
    };
    for escape in [Escape::Background, Escape::Daemon, Escape::IgnoresTerm] {
        let place = subject.fresh().await?;
        let runaway = Runaway::new(&place, escape).await?;
        runaway.leader_exits(Descendants::Keep).await?;
        // The control: it is there until the instance goes.
        let seen = place.processes_with(&token(&runaway.directory)).await?;
        ensure!(
            seen != Some(String::new()),
            "{escape:?}: the kept descendant is not there"
        );
        subject.shutdown(&place.id).await?;
        witness
            .ensure_gone(subject, &runaway)
            .await
            .map_err(|f| f.during(&format!("{escape:?}")))?;
    }
    Ok(Verdict::Passed)
}

/// How one sees from outside that a place's processes are gone when the place is.
enum Witness {
    /// The scratch directory is the host's: the descendant would make its marker there.
    Files,
    /// Another instance sees the same processes.
    Processes,
}

impl Witness {
    fn of(subject: &Subject) -> Option<Self> {
        match (
            &subject.facts.scratch_on_host,
            subject.facts.shares_host_processes,
        ) {
            (Some(_), _) => Some(Self::Files),
            (None, true) => Some(Self::Processes),
            (None, false) => None,
        }
    }

    async fn ensure_gone(&self, subject: &Subject, runaway: &Runaway<'_>) -> Result<(), Failure> {
        match self {
            Self::Processes => {
                let other = subject.shared().await?;
                let found = other
                    .processes_with(&token(&runaway.directory))
                    .await?
                    .unwrap_or_default();
                ensure!(found.is_empty(), "these outlived their instance: {found}");
            }
            Self::Files => {
                let Some(directory) = subject.on_host(&runaway.directory) else {
                    return Err(Failure::new("the scratch directory has no place on the host"));
                };
                std::fs::write(directory.join("go"), "")?;
                tokio::time::sleep(Duration::from_millis(2500)).await;
                let made = directory.join("marker").exists();
                ensure!(!made, "a descendant outlived its instance: the marker was made");
            }
        }
        Ok(())
    }
}
