//! Commands in a place on the host.

use super::{PROGRAM, check_output, check_provider, execute_true, spawn_and_wait, start_and_end};
use crate::measure::in_turns;
use crate::report::{Measured, Row};
use anyhow::Result;
use std::path::Path;
use stead::{ComputeConfig, LocalProvider, Provider};

/// P1.
pub async fn execute(tree: &str, name: &str, state: &Path) -> Result<Row> {
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

/// The start of a place.
pub async fn start(state: &Path) -> Result<Row> {
    start_and_end(&LocalProvider::with_state_dir(state), ComputeConfig::new(), 100).await
}
