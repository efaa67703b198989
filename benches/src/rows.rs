//! What is measured.

use crate::measure::in_turns;
use crate::report::{Measured, Row};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use stead::{
    Availability, ComputeConfig, DockerProvider, InstanceId, LocalProvider, Mount, NetworkPolicy, Provider,
};

/// One static program on both sides; benches/program has its source.
const PROGRAM: &str = concat!(env!("OUT_DIR"), "/program");

/// The same, as a container sees it.
const MOUNTED: &str = "/bench/program";

const IMAGE: &str = "stead-test/busybox:1";

/// Measures all rows.
pub async fn all(stead: &Path, state: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (tree, name) in [("auto", "cgroup"), ("reaper", "subreaper, no cgroup")] {
        rows.push(local(tree, name, state).await?);
    }
    rows.extend(docker(stead, state).await?);
    let bytes = std::fs::metadata(stead).context("the release binary")?.len();
    rows.push(Row {
        id: "P19",
        figure: "size of the `stead` binary".to_owned(),
        compared: "-",
        must: "≤ 25 MiB",
        measured: Measured::Size {
            bytes,
            limit: 25 << 20,
        },
    });
    let bytes = stead_supervisor_size();
    rows.push(Row {
        id: "-",
        figure: "size of the supervisor".to_owned(),
        compared: "-",
        must: "≤ 1.5 MiB",
        measured: Measured::Size {
            bytes,
            limit: 3 << 19,
        },
    });
    Ok(rows)
}

fn stead_supervisor_size() -> u64 {
    stead::SUPERVISOR_SIZE as u64
}

/// The same program by `posix_spawn` with three pipes.
fn spawn_and_wait(arguments: &[&str]) -> Result<std::process::Output> {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Ok(command.spawn()?.wait_with_output()?)
}

fn check_output(output: &std::process::Output, said: &str, code: i32) -> Result<()> {
    ensure!(
        output.stdout == said.as_bytes() && output.status.code() == Some(code),
        "it does not do its work: {output:?}"
    );
    Ok(())
}

async fn check_provider(provider: &dyn Provider, id: &InstanceId, program: &str) -> Result<()> {
    let result = provider
        .execute(id, [program, "say"].into(), ComputeConfig::new())
        .await?;
    ensure!(
        result.stdout == b"known\n" && result.success(),
        "it does not do its work: {result:?}"
    );
    let result = provider
        .execute(id, [program, "seven"].into(), ComputeConfig::new())
        .await?;
    ensure!(
        result.exit_code == Some(7),
        "it does not pass the code on: {result:?}"
    );
    Ok(())
}

async fn execute_true(provider: &dyn Provider, id: &InstanceId, program: &str) -> Result<()> {
    let result = provider
        .execute(id, [program].into(), ComputeConfig::new())
        .await?;
    ensure!(result.success(), "true failed: {result:?}");
    Ok(())
}

async fn local(tree: &str, name: &str, state: &Path) -> Result<Row> {
    let provider = LocalProvider::with_state_dir(state);
    let instance = provider
        .provision(ComputeConfig::new().option("tree", tree))
        .await?;
    check_provider(&provider, &instance.id, PROGRAM).await?;
    check_output(&spawn_and_wait(&["say"])?, "known\n", 0)?;
    check_output(&spawn_and_wait(&["seven"])?, "", 7)?;
    let theirs = || async { check_output(&spawn_and_wait(&[])?, "", 0) };
    let (ours, theirs) = in_turns(2000, || execute_true(&provider, &instance.id, PROGRAM), theirs).await?;
    provider.shutdown(&instance.id).await?;
    let limit = if tree == "auto" { 2.0 } else { f64::INFINITY };
    Ok(Row {
        id: "P1",
        figure: format!("execute `true` in a running place, local ({name})"),
        compared: "posix_spawn + wait, three pipes",
        must: if tree == "auto" {
            "≤ 2.0×"
        } else {
            "no limit set"
        },
        measured: Measured::Ratio { ours, theirs, limit },
    })
}

fn run(command: &mut Command) -> Result<std::process::Output> {
    Ok(command.stdin(Stdio::null()).output()?)
}

async fn docker(stead: &Path, state: &Path) -> Result<Vec<Row>> {
    let provider = DockerProvider::new().state_dir(state);
    let (p2, p6) = match provider.probe().await {
        Availability::Available => (docker_execute(&provider).await?, docker_run(stead, state).await?),
        Availability::Unavailable(missing) => (
            Measured::Skipped(missing.reason.clone()),
            Measured::Skipped(missing.reason),
        ),
    };
    Ok(vec![
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
    ])
}

async fn docker_execute(provider: &DockerProvider) -> Result<Measured> {
    let instance = provider
        .provision(ComputeConfig {
            mounts: vec![Mount {
                host: PROGRAM.into(),
                place: MOUNTED.into(),
                read_only: true,
            }],
            ..ComputeConfig::new().image(IMAGE).network(NetworkPolicy::None)
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
