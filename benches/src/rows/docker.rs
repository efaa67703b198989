//! Commands in containers.

use super::{
    IMAGE, MOUNTED, PROGRAM, check_output, check_provider, execute_true, mounted, run, start_and_end,
};
use crate::measure::in_turns;
use crate::report::{Measured, Row};
use anyhow::Result;
use std::path::Path;
use std::process::Command;
use stead::{Availability, ComputeConfig, DockerProvider, InstanceId, NetworkPolicy, Provider};

/// P2 and P6.
pub async fn all(stead: &Path, state: &Path) -> Result<Vec<Row>> {
    let provider = DockerProvider::new().state_dir(state);
    let (p2, p6) = match provider.probe().await {
        Availability::Available => (docker_execute(&provider).await?, docker_run(stead, state).await?),
        Availability::Unavailable(missing) => (
            Measured::Skipped(missing.reason.clone()),
            Measured::Skipped(missing.reason),
        ),
    };
    let mut rows = vec![
        Row {
            id: "P2",
            figure: "execute `true` in a running container".to_owned(),
            compared: "docker exec",
            must: "≤ 1/40",
            measured: p2,
        },
        Row {
            id: "P6",
            figure: "`stead run -- true` on docker, from nothing to gone".to_owned(),
            compared: "docker run --rm, same limits and network",
            must: "≤ 1.1×",
            measured: p6,
        },
    ];
    if !matches!(rows[0].measured, Measured::Skipped(_)) {
        rows.push(start_and_end(&provider, usual(), 20).await?);
    }
    Ok(rows)
}

fn usual() -> ComputeConfig {
    ComputeConfig::new().image(IMAGE).network(NetworkPolicy::None)
}

async fn docker_execute(provider: &DockerProvider) -> Result<Measured> {
    let instance = provider
        .provision(ComputeConfig {
            mounts: vec![mounted()],
            ..usual()
        })
        .await?;
    let measured = docker_execute_in(provider, &instance.id).await;
    provider.shutdown(&instance.id).await?;
    measured
}

async fn docker_execute_in(provider: &DockerProvider, id: &InstanceId) -> Result<Measured> {
    check_provider(provider, id, MOUNTED).await?;
    let container = format!("stead-{id}");
    let exec = |arguments: &[&str]| {
        run(Command::new("docker")
            .args(["exec", &container, MOUNTED])
            .args(arguments))
    };
    check_output(&exec(&["say"])?, "known\n", 0)?;
    check_output(&exec(&["seven"])?, "", 7)?;
    let theirs = || async { check_output(&exec(&[])?, "", 0) };
    let (ours, theirs) = in_turns(40, || execute_true(provider, id, MOUNTED), theirs).await?;
    Ok(Measured::Ratio {
        ours,
        theirs,
        limit: 1.0 / 40.0,
    })
}

async fn docker_run(stead: &Path, state: &Path) -> Result<Measured> {
    let mount = format!("{PROGRAM}:{MOUNTED}:ro");
    let ours = |arguments: &[&str]| {
        let mut command = Command::new(stead);
        command.env("STEAD_STATE_DIR", state);
        command.args([
            "run",
            "--provider",
            "docker",
            "--image",
            IMAGE,
            "--network",
            "none",
            "--mount",
            &mount,
            "--",
            MOUNTED,
        ]);
        run(command.args(arguments))
    };
    // The same as our defaults.
    let theirs = |arguments: &[&str]| {
        let mut command = Command::new("docker");
        command.args([
            "run",
            "--rm",
            "--network",
            "none",
            "--memory",
            "2g",
            "--pids-limit",
            "512",
        ]);
        command.args([
            "--cap-drop",
            "ALL",
            "--security-opt",
            "no-new-privileges",
            "--volume",
            &mount,
            IMAGE,
            MOUNTED,
        ]);
        run(command.args(arguments))
    };
    for side in [&ours as &dyn Fn(&[&str]) -> Result<std::process::Output>, &theirs] {
        check_output(&side(&["say"])?, "known\n", 0)?;
        check_output(&side(&["seven"])?, "", 7)?;
    }
    let both = in_turns(
        20,
        || async { check_output(&ours(&[])?, "", 0) },
        || async { check_output(&theirs(&[])?, "", 0) },
    );
    let (ours, theirs) = both.await?;
    Ok(Measured::Ratio {
        ours,
        theirs,
        limit: 1.1,
    })
}
