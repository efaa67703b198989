//! The instance breaks during a run: an error, and no hang.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::place::{Place, shown};
use super::subject::{BreakInstance, Subject};
use stead_types::{CommandLine, ComputeConfig, ExecResult, ExecuteError, Stdin};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            "9.12",
            "an instance that breaks during a command: Lost, and no hang",
            execute
        ),
        case!(
            "9.12",
            "an instance that breaks during many commands: each is Lost",
            many
        ),
        case!(
            "9.12",
            "an instance that breaks under live input and output: Lost",
            spawned
        ),
        case!(
            "9.12",
            "a broken instance refuses commands and can be shut down",
            afterwards
        ),
    ]
}

const NO_HOOK: &str = "the test gave no way to break an instance";

/// Starts a command that would run until the case hangs, breaks the instance, and waits for the command.
async fn broken_run(
    place: &Place<'_>,
    hook: &BreakInstance,
) -> Result<Result<ExecResult, ExecuteError>, Failure> {
    let started = place.directory().await?.join("started");
    let text = format!(": > {}; sleep 300", started.display());
    let breaking = async {
        place.until_exists(&started).await?;
        hook(place.id.clone()).await;
        Ok::<(), Failure>(())
    };
    let (result, done) = tokio::join!(place.execute(text, ComputeConfig::new()), breaking);
    done.map(|()| result)
}

fn ensure_lost(result: Result<ExecResult, ExecuteError>) -> Result<(), Failure> {
    match result {
        Err(ExecuteError::Lost { .. }) => Ok(()),
        Err(other) => Err(Failure::from(other).during("expected Lost")),
        Ok(result) => Err(Failure::new(format!("expected Lost, got {}", shown(&result)))),
    }
}

async fn execute(subject: &Subject) -> Outcome {
    let Some(hook) = subject.breaker() else {
        return Verdict::skipped(NO_HOOK);
    };
    let place = subject.fresh().await?;
    ensure_lost(broken_run(&place, &hook).await?)?;
    Ok(Verdict::Passed)
}

async fn many(subject: &Subject) -> Outcome {
    let Some(hook) = subject.breaker() else {
        return Verdict::skipped(NO_HOOK);
    };
    let place = subject.fresh().await?;
    let others = (0..10).map(|_| place.execute("sleep 300", ComputeConfig::new()));
    let (results, last) = tokio::join!(futures_util::future::join_all(others), broken_run(&place, &hook));
    ensure_lost(last?)?;
    results.into_iter().try_for_each(ensure_lost)?;
    Ok(Verdict::Passed)
}

async fn spawned(subject: &Subject) -> Outcome {
    let Some(hook) = subject.breaker() else {
        return Verdict::skipped(NO_HOOK);
    };
    let place = subject.fresh().await?;
    let config = ComputeConfig {
        stdin: Some(Stdin::Stream),
        ..ComputeConfig::new()
    };
    let mut process = place.spawn(["cat"], config).await?;
    let control = process.control();
    control.write_stdin(b"hello").await?;
    let first = process.next_output().await;
    ensure!(
        first.is_some_and(|chunk| chunk.bytes == b"hello"[..]),
        "cat does not answer"
    );
    hook(place.id.clone()).await;
    match process.wait_discarding_output().await {
        Err(ExecuteError::Lost { .. }) => {}
        other => return Err(Failure::new(format!("expected Lost, got {other:?}"))),
    }
    let late = control.write_stdin(b"more").await;
    ensure!(late.is_err(), "a lost program still takes input");
    Ok(Verdict::Passed)
}

async fn afterwards(subject: &Subject) -> Outcome {
    let Some(hook) = subject.breaker() else {
        return Verdict::skipped(NO_HOOK);
    };
    let place = subject.fresh().await?;
    ensure_lost(broken_run(&place, &hook).await?)?;
    match subject
        .provider
        .execute(&place.id, CommandLine::from(["true"]), ComputeConfig::new())
        .await
    {
        Err(_) => {}
        Ok(result) => {
            return Err(Failure::new(format!(
                "a broken instance executes: {}",
                shown(&result)
            )));
        }
    }
    if let Some(files) = subject.provider.files(&place.id).await.ok()
        && files.list("/".as_ref()).await.is_ok()
    {
        return Err(Failure::new("a broken instance has files"));
    }
    subject.shutdown(&place.id).await?;
    ensure!(
        subject.provider.status(&place.id).await?.is_none(),
        "after its shutdown it has a status"
    );
    ensure!(
        !subject.ids().await?.contains(&place.id),
        "after its shutdown it is listed"
    );
    Ok(Verdict::Passed)
}
