//! Commands in places of the kernel's own means.

use super::{
    MOUNTED, PROGRAM, check_output, check_provider, execute_true, in_turns, mounted, run, spawn_and_wait,
    start_and_end,
};
use crate::report::{Measured, Row};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, Output};
use stead::{Availability, ComputeConfig, NativeProvider, Provider};

/// P1, P5, P12, and the start of a place.
pub async fn all(stead: &Path, state: &Path) -> Result<Vec<Row>> {
    let provider = NativeProvider::with_state_dir(state);
    let skipped = match provider.probe().await {
        Availability::Available => None,
        Availability::Unavailable(missing) => Some(missing.reason),
    };
    let row = |id, figure: &str, compared, must, measured| Row {
        id,
        figure: figure.to_owned(),
        compared,
        must,
        measured,
    };
    let (p1, p5, p12) = match &skipped {
        None => (
            execute(&provider).await?,
            from_nothing_to_gone(stead, state).await?,
            idle(&provider).await?,
        ),
        Some(reason) => (
            Measured::Skipped(reason.clone()),
            Measured::Skipped(reason.clone()),
            Measured::Skipped(reason.clone()),
        ),
    };
    let mut rows = vec![
        row(
            "P1",
            "execute `true` in a running place, native",
            "posix_spawn + wait, three pipes",
            "≤ 2.0×",
            p1,
        ),
        row(
            "P5",
            "`stead run -- true` on native, from nothing to gone",
            "bwrap, same namespaces and root",
            "≤ 1.5×",
            p5,
        ),
        row(
            "P12",
            "memory of an idle native place over all its processes (PSS)",
            "-",
            "≤ 3 MiB",
            p12,
        ),
    ];
    if skipped.is_none() {
        rows.push(start_and_end(&provider, ComputeConfig::new(), 100).await?);
    }
    Ok(rows)
}

async fn execute(provider: &NativeProvider) -> Result<Measured> {
    let config = ComputeConfig {
        mounts: vec![mounted()],
        ..ComputeConfig::new()
    };
    let instance = provider.provision(config).await?;
    check_provider(provider, &instance.id, MOUNTED).await?;
    check_output(&spawn_and_wait(&["say"])?, "known\n", 0)?;
    let theirs = || async { check_output(&spawn_and_wait(&[])?, "", 0) };
    let (ours, theirs) = in_turns(2000, || execute_true(provider, &instance.id, MOUNTED), theirs).await?;
    provider.shutdown(&instance.id).await?;
    Ok(Measured::Ratio {
        ours,
        theirs,
        limit: 2.0,
    })
}

async fn from_nothing_to_gone(stead: &Path, state: &Path) -> Result<Measured> {
    let mount = format!("{PROGRAM}:{MOUNTED}:ro");
    // No provider is named: it is the one that is chosen, by what was seen in the first of these runs.
    let ours = |arguments: &[&str]| {
        let mut command = Command::new(stead);
        command.env("STEAD_STATE_DIR", state);
        command.args(["run", "--mount", &mount, "--", MOUNTED]);
        run(command.args(arguments))
    };
    let theirs = |arguments: &[&str]| run(Command::new("bwrap").args(bubblewrap()).args(arguments));
    if let Err(error) = theirs(&[]) {
        return Ok(Measured::Skipped(format!("bwrap: {error}")));
    }
    for side in [&ours as &dyn Fn(&[&str]) -> Result<Output>, &theirs] {
        check_output(&side(&["say"])?, "known\n", 0)?;
        check_output(&side(&["seven"])?, "", 7)?;
    }
    let both = in_turns(
        100,
        || async { check_output(&ours(&[])?, "", 0) },
        || async { check_output(&theirs(&[])?, "", 0) },
    );
    let (ours, theirs) = both.await?;
    Ok(Measured::Ratio {
        ours,
        theirs,
        limit: 1.5,
    })
}

/// The namespaces and the root of a native place, as far as bubblewrap has them: no filter, no Landlock, no limits.
fn bubblewrap() -> Vec<String> {
    let mut all: Vec<String> = ["--unshare-all", "--as-pid-1", "--hostname", "place"]
        .map(str::to_owned)
        .to_vec();
    let mut push = |words: [&str; 3]| all.extend(words.map(str::to_owned));
    push(["--ro-bind", "/usr", "/usr"]);
    for name in ["bin", "lib", "lib32", "lib64", "libx32", "sbin"] {
        if let Ok(target) = std::fs::read_link(format!("/{name}")) {
            push(["--symlink", &target.to_string_lossy(), &format!("/{name}")]);
        } else if Path::new("/").join(name).is_dir() {
            push(["--ro-bind", &format!("/{name}"), &format!("/{name}")]);
        }
    }
    push(["--ro-bind", PROGRAM, MOUNTED]);
    for pair in [
        ["--proc", "/proc"],
        ["--dev", "/dev"],
        ["--tmpfs", "/tmp"],
        ["--tmpfs", "/run"],
        ["--tmpfs", "/root"],
        ["--tmpfs", "/workspace"],
    ] {
        all.extend(pair.map(str::to_owned));
    }
    all.push(MOUNTED.to_owned());
    all
}

/// After a command has run, so that nothing is counted as small that only was not used yet.
async fn idle(provider: &NativeProvider) -> Result<Measured> {
    let config = ComputeConfig {
        mounts: vec![mounted()],
        ..ComputeConfig::new()
    };
    let instance = provider.provision(config).await?;
    execute_true(provider, &instance.id, MOUNTED).await?;
    let outside = instance.metadata.get("host_pid").and_then(|pid| pid.as_u64());
    let bytes = memory(outside.context("the instance names no process")?);
    provider.shutdown(&instance.id).await?;
    Ok(Measured::Size {
        bytes: bytes?,
        limit: 3 << 20,
    })
}

/// Bytes of a process and all below it, each page divided by the number of processes that share it.
fn memory(pid: u64) -> Result<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kibibytes: u64 = line
        .and_then(|line| line.trim().strip_suffix("kB"))
        .context("no Pss")?
        .trim()
        .parse()?;
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let below: Result<Vec<u64>> = children
        .split_ascii_whitespace()
        .map(|child| memory(child.parse()?))
        .collect();
    Ok(kibibytes * 1024 + below?.iter().sum::<u64>())
}
