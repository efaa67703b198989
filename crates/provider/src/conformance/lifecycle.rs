//! Instances: from probe to shutdown, and ids that name nothing.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::place::shown;
use super::subject::Subject;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use stead_types::{
    Availability, CommandLine, ComputeConfig, ExecuteError, FilesError, InstanceId, InstanceStatus,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("2", "probe says that the provider can be used", probe).without_shell(),
        case!("2", "a provisioned instance runs and is listed", provisioned).without_shell(),
        case!("2", "no axis claims what is not so", honest_axes).without_shell(),
        case!("2", "an unknown id is no instance", unknown_id).without_shell(),
        case!("2", "shutdown of an unknown id is fine", unknown_shutdown).without_shell(),
        case!(
            "2",
            "after shutdown the instance is gone, and a second one is fine",
            shutdown_twice
        )
        .without_shell(),
        case!(
            "2",
            "concurrent shutdowns of one instance all succeed",
            concurrent_shutdowns
        )
        .without_shell(),
        case!(
            "2",
            "shutdown during a command ends it with an error",
            shutdown_during_run
        ),
        case!("2", "instances come and go beside each other", side_by_side),
    ]
}

async fn probe(subject: &Subject) -> Outcome {
    for _ in 0..2 {
        if let Availability::Unavailable(missing) = subject.provider.probe().await {
            return Err(Failure::new(format!("{}: {}", missing.code, missing.reason)));
        }
    }
    Ok(Verdict::Passed)
}

async fn provisioned(subject: &Subject) -> Outcome {
    let instance = subject.provision(subject.config.clone()).await?;
    let name = subject.provider.name();
    ensure!(
        name == name.to_lowercase() && !name.is_empty(),
        "the provider's name {name:?} is not lower case"
    );
    ensure!(
        instance.provider == name,
        "the instance says that it is of {:?}",
        instance.provider
    );
    ensure!(
        instance.status == InstanceStatus::Running,
        "its status is {:?}",
        instance.status
    );
    let Some(seen) = subject.provider.status(&instance.id).await? else {
        return Err(Failure::new("status does not know it"));
    };
    let same = seen.id == instance.id && seen.status == InstanceStatus::Running;
    ensure!(same, "status says {seen:?}");
    let listed = subject.provider.list_instances().await?;
    let times = listed.iter().filter(|other| other.id == instance.id).count();
    ensure!(times == 1, "it is listed {times} times");
    Ok(Verdict::Passed)
}

async fn honest_axes(subject: &Subject) -> Outcome {
    if !subject.facts.shares_host_processes {
        return Verdict::skipped("the test knows of no isolation that this place lacks");
    }
    let instance = subject.provision(subject.config.clone()).await?;
    let claimed = instance.isolation.process_contained;
    ensure!(
        claimed == Some(false),
        "processes are the host's, and process_contained is {claimed:?}"
    );
    Ok(Verdict::Passed)
}

fn unknown_ids() -> Vec<InstanceId> {
    let odd = [
        "",
        ".",
        "..",
        "/",
        "../../etc",
        "a/b",
        "no such instance",
        "\u{1f980}",
        "a\0b",
    ];
    odd.into_iter()
        .map(InstanceId::new)
        .chain([InstanceId::generate()])
        .collect()
}

async fn unknown_id(subject: &Subject) -> Outcome {
    for id in unknown_ids() {
        let command = || CommandLine::from(["true"]);
        match subject
            .provider
            .execute(&id, command(), ComputeConfig::new())
            .await
        {
            Err(ExecuteError::NoInstance { instance }) if instance == id => {}
            other => {
                return Err(Failure::new(format!(
                    "execute on {id:?}: expected NoInstance, got {other:?}"
                )));
            }
        }
        match subject.provider.spawn(&id, command(), ComputeConfig::new()).await {
            Err(ExecuteError::NoInstance { instance }) if instance == id => {}
            other => {
                return Err(Failure::new(format!(
                    "spawn on {id:?}: expected NoInstance, got {other:?}"
                )));
            }
        }
        ensure_no_files(subject, &id).await?;
        let status = subject.provider.status(&id).await?;
        ensure!(status.is_none(), "status of {id:?}: {status:?}");
    }
    Ok(Verdict::Passed)
}

async fn ensure_no_files(subject: &Subject, id: &InstanceId) -> Result<(), Failure> {
    let error = match subject.provider.files(id).await {
        Err(error) => error,
        // A provider may look only when something is asked for.
        Ok(files) => match files.list("/".as_ref()).await {
            Err(error) => error,
            Ok(_) => return Err(Failure::new(format!("{id:?} has files"))),
        },
    };
    match error {
        FilesError::NoInstance { .. } | FilesError::Unsupported { .. } => Ok(()),
        other => Err(Failure::from(other).during(&format!("files of {id:?}: expected NoInstance"))),
    }
}

async fn unknown_shutdown(subject: &Subject) -> Outcome {
    for id in unknown_ids() {
        subject.provider.shutdown(&id).await?;
    }
    Ok(Verdict::Passed)
}

async fn ensure_gone(subject: &Subject, id: &InstanceId) -> Result<(), Failure> {
    let status = subject.provider.status(id).await?;
    ensure!(status.is_none(), "after its shutdown the status is {status:?}");
    ensure!(
        !subject.ids().await?.contains(id),
        "after its shutdown it is listed"
    );
    match subject
        .provider
        .execute(id, CommandLine::from(["true"]), ComputeConfig::new())
        .await
    {
        Err(ExecuteError::NoInstance { .. }) => ensure_no_files(subject, id).await,
        other => Err(Failure::new(format!(
            "execute after shutdown: expected NoInstance, got {other:?}"
        ))),
    }
}

async fn shutdown_twice(subject: &Subject) -> Outcome {
    let instance = subject.provision(subject.config.clone()).await?;
    ensure!(
        subject.ids().await?.contains(&instance.id),
        "before its shutdown it is not listed"
    );
    subject.shutdown(&instance.id).await?;
    ensure_gone(subject, &instance.id).await?;
    subject.shutdown(&instance.id).await?;
    ensure_gone(subject, &instance.id).await?;
    Ok(Verdict::Passed)
}

async fn concurrent_shutdowns(subject: &Subject) -> Outcome {
    let instance = subject.provision(subject.config.clone()).await?;
    for done in join_all((0..8).map(|_| subject.shutdown(&instance.id))).await {
        done?;
    }
    ensure_gone(subject, &instance.id).await?;
    Ok(Verdict::Passed)
}

async fn shutdown_during_run(subject: &Subject) -> Outcome {
    let place = subject.fresh().await?;
    let started = place.directory().await?.join("started");
    let text = format!(": > {}; sleep 300", started.display());
    let command = place.execute(text, ComputeConfig::new());
    let shutdown = async {
        place.until_exists(&started).await?;
        subject.shutdown(&place.id).await
    };
    let (result, done) = tokio::join!(command, shutdown);
    done?;
    match result {
        Err(ExecuteError::Lost { .. } | ExecuteError::Cancelled { .. }) => {}
        Err(other) => return Err(Failure::from(other).during("expected Lost or Cancelled")),
        Ok(result) => {
            return Err(Failure::new(format!(
                "expected Lost or Cancelled, got {}",
                shown(&result)
            )));
        }
    }
    ensure_gone(subject, &place.id).await?;
    Ok(Verdict::Passed)
}

async fn side_by_side(subject: &Subject) -> Outcome {
    let places: Vec<_> = join_all((0..4).map(|_| subject.fresh())).await;
    let places = places.into_iter().collect::<Result<Vec<_>, Failure>>()?;
    let ids: BTreeSet<_> = places.iter().map(|place| place.id.clone()).collect();
    ensure!(ids.len() == 4, "four instances have only {} ids", ids.len());
    let listed = subject.ids().await?;
    ensure!(
        ids.is_subset(&listed),
        "not all of {ids:?} are listed: {listed:?}"
    );
    let (gone, stay) = places.split_at(2);
    for done in join_all(gone.iter().map(|place| subject.shutdown(&place.id))).await {
        done?;
    }
    for place in gone {
        ensure_gone(subject, &place.id).await?;
    }
    for place in stay {
        let result = place.sh("echo ok").await?;
        ensure!(
            result.stdout == b"ok\n",
            "the other instance does not work any more: {}",
            shown(&result)
        );
    }
    Ok(Verdict::Passed)
}
