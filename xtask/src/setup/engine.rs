//! A container engine on the usual socket.

use crate::workspace;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where an engine listens, and where the tests look for it.
pub const SOCKET: &str = "/var/run/docker.sock";

/// How long a fresh engine may take; the first start makes its data folder.
const PATIENCE: Duration = Duration::from_secs(90);

/// Files that the engine believes after an abrupt end: a process id in them may be somebody else's by
/// now, and then the engine waits for, or even ends, a stranger.
const PID_FILES: [(&str, &str); 2] = [
    ("/var/run/docker.pid", "dockerd"),
    ("/var/run/docker/containerd/containerd.pid", "containerd"),
];

/// Whether there is an engine to test with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// One answers on [`SOCKET`].
    Answers,
    /// None does, and none could be started.
    Absent,
}

/// Starts `dockerd` unless an engine answers. It outlives xtask; its log is target/dockerd.log.
pub fn start() -> Result<Engine> {
    if answers() {
        return Ok(Engine::Answers);
    }
    let Some(program) = workspace::find_program("dockerd") else {
        eprintln!("xtask: no container engine answers on {SOCKET}, and dockerd is not installed");
        return Ok(Engine::Absent);
    };
    if !super::is_root() {
        eprintln!("xtask: no container engine answers this user on {SOCKET}, and only root can start one");
        return Ok(Engine::Absent);
    }
    remove_stale_pid_files();
    let log = workspace::target().join("dockerd.log");
    let mut engine = spawn(&program, &log)?;
    eprintln!("xtask: starting dockerd, its log is {}", log.display());
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if answers() {
            return Ok(Engine::Answers);
        }
        if let Some(status) = engine.try_wait()? {
            eprintln!("xtask: dockerd ended with {status}");
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    eprintln!(
        "xtask: dockerd did not come up; the end of its log:\n{}",
        tail(&log)
    );
    Ok(Engine::Absent)
}

/// In a session of its own, so that neither Ctrl-C nor the end of the terminal reaches it.
fn spawn(program: &Path, log: &Path) -> Result<Child> {
    std::fs::create_dir_all(workspace::target())?;
    let log = std::fs::File::create(log).with_context(|| format!("could not write {}", log.display()))?;
    let mut command = Command::new("setsid");
    command
        .arg(program)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log);
    command.spawn().context("could not start dockerd")
}

fn remove_stale_pid_files() {
    for (file, name) in PID_FILES {
        let Ok(pid) = std::fs::read_to_string(file) else {
            continue;
        };
        let running = std::fs::read_to_string(format!("/proc/{}/comm", pid.trim())).unwrap_or_default();
        if running.trim() != name {
            // Without the right to remove it there is none to start the engine either, which says so.
            let _ = std::fs::remove_file(file);
        }
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Asks the engine itself: a socket file is there also when nobody listens.
#[cfg(unix)]
fn answers() -> bool {
    ping().is_ok_and(|answer| answer.starts_with("HTTP/1.") && answer.contains(" 200 "))
}

#[cfg(not(unix))]
fn answers() -> bool {
    false
}

#[cfg(unix)]
fn ping() -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(SOCKET)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.set_write_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")?;
    // The status line is enough; an engine that keeps the connection open would make us wait.
    let mut answer = [0; 32];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
