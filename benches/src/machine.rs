//! Which machine it was.

use std::fs;
use std::process::Command;

/// Machine, kernel and versions, a line each.
pub fn describe() -> Vec<String> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or(": unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = read("/proc/meminfo");
    let memory = memory.lines().next().unwrap_or_default().replace("MemTotal:", "");
    let said = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).lines().next()?.to_owned();
        output.status.success().then_some(text)
    };
    vec![
        format!("{} × {}", cores, model.trim_start_matches([':', ' ', '\t'])),
        format!("memory {}", memory.trim()),
        format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        said("dockerd", "--version").unwrap_or_else(|| "no Docker engine".to_owned()),
        said("rustc", "--version").unwrap_or_default(),
        format!("stead {}, release build", env!("CARGO_PKG_VERSION")),
    ]
}
