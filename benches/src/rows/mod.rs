//! What is measured.

mod docker;
mod local;
mod native;

use crate::measure::{alone, in_turns};
use crate::report::{Measured, Row};
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use stead::{ComputeConfig, InstanceId, Mount, Provider};

/// One static program on both sides; benches/program has its source.
const PROGRAM: &str = concat!(env!("OUT_DIR"), "/program");

/// The same, as a container sees it.
const MOUNTED: &str = "/bench/program";

const IMAGE: &str = "stead-test/busybox:1";

/// Measures all rows.
pub async fn all(stead: &Path, state: &Path) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (tree, name) in [("auto", "cgroup"), ("reaper", "subreaper, no cgroup")] {
        rows.push(local::execute(tree, name, state).await?);
    }
    rows.extend(native::all(stead, state).await?);
    rows.extend(docker::all(stead, state).await?);
    rows.push(local::start(state).await?);
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

fn run(command: &mut Command) -> Result<std::process::Output> {
    Ok(command.stdin(Stdio::null()).output()?)
}

/// The program, where places see it.
fn mounted() -> Mount {
    Mount {
        host: PROGRAM.into(),
        place: MOUNTED.into(),
        read_only: true,
    }
}

/// What it costs to bring a place up and to remove it, with nothing run in it.
async fn start_and_end(provider: &dyn Provider, config: ComputeConfig, rounds: usize) -> Result<Row> {
    let times = alone(rounds, || async {
        let instance = provider.provision(config.clone()).await?;
        provider.shutdown(&instance.id).await?;
        Ok(())
    });
    Ok(Row {
        id: "-",
        figure: format!("provision and shutdown, {}", provider.name()),
        compared: "-",
        must: "no limit set",
        measured: Measured::Time(times.await?),
    })
}
