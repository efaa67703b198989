//! Measures what users wait for, each against what they would otherwise use, in one run on one machine, and
//! writes docs/benchmarks.md. Start it with `cargo xtask bench`, which builds the release binary first.
#![forbid(unsafe_code)]

mod machine;
mod measure;
mod report;
mod rows;

use anyhow::{Context, Result};
use std::path::PathBuf;

#[tokio::main]
async fn main() -> Result<()> {
    let workspace = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    let stead = std::env::var_os("STEAD_BENCH_BINARY")
        .map(PathBuf::from)
        .context(
            "STEAD_BENCH_BINARY does not name the release binary; start this with `cargo xtask bench`",
        )?;
    let state = std::env::temp_dir().join(format!("stead-bench-{}", std::process::id()));
    let rows = rows::all(&stead, &state).await;
    // The folder is ours; one that is gone already is fine.
    let _ = std::fs::remove_dir_all(&state);
    let text = report::markdown(&machine::describe(), &rows?);
    println!("{text}");
    std::fs::write(workspace.join("docs/benchmarks.md"), text).context("docs/benchmarks.md cannot be written")
}
