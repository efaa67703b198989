//! `kill -9` of the process that holds an instance: nothing of it is left, and `stead prune` does it at once.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What the specification allows; reaching it means that something is left for good.
const LEFT_AT_MOST: Duration = Duration::from_secs(60);

/// Owners that are interrupted, each a little later than the one before.
const INTERRUPTED: usize = 24;

/// A holder that a failed test does not leave behind.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn holder(state: &Path, args: &[&str]) -> (Holder, PathBuf) {
    let child = Command::new(env!("CARGO_BIN_EXE_stead"))
        .args(["run", "--timeout", "never"])
        .args(args)
        .args([
            "--shell",
            &format!("echo up; setsid sleep {n} & exec sleep {n}", n = seconds()),
        ])
        .env("STEAD_STATE_DIR", state)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut holder = Holder(child);
    let mut line = String::new();
    let stdout = holder.0.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    assert_eq!(line, "up\n");
    (holder, state.join("instances"))
}

/// SIGKILL: nothing of its own can clean up.
fn kill(holder: Holder) {
    drop(holder);
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

/// How long the sleepers of this run sleep: a number that no other run has.
fn seconds() -> u32 {
    1_000_000 + std::process::id()
}

fn sleepers() -> usize {
    let cmdline = format!("sleep\0{}\0", seconds());
    let matches = |entry: &std::fs::DirEntry| {
        std::fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == cmdline.as_bytes())
    };
    std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(matches)
        .count()
}

fn until(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + LEFT_AT_MOST;
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn containers(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().flatten();
    names
        .map(|entry| format!("stead-{}", entry.file_name().to_string_lossy()))
        .collect()
}

fn exists(container: &str) -> bool {
    Command::new("docker")
        .args(["inspect", container])
        .output()
        .unwrap()
        .status
        .success()
}

// One test, so that nobody else's sleepers are counted.
#[test]
fn nothing_is_left_of_an_owner_that_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let (child, folder) = holder(&dir.path().join("a"), &["--provider", "local"]);
    until("the control: they run", || sleepers() == 2);
    kill(child);
    until("processes of a local instance are left", || sleepers() == 0);
    until("a folder of a local instance is left", || is_empty(&folder));

    let state = dir.path().join("b");
    let (child, folder) = holder(&state, &["--provider", "local"]);
    kill(child);
    prune(&state);
    assert!(sleepers() == 0 && is_empty(&folder), "prune does it at once");

    interrupted(dir.path(), &["local"], 40_000);
    interrupted(dir.path(), &["native"], 60_000);

    if stead_testkit::engine_or_skip("nothing_is_left_of_an_owner_of_a_container") {
        docker(dir.path());
        interrupted(
            dir.path(),
            &["docker", "--image", stead_testkit::BUSYBOX_IMAGE],
            900_000,
        );
    }
}

fn prune(state: &Path) {
    let pruned = Command::new(env!("CARGO_BIN_EXE_stead"))
        .arg("prune")
        .env("STEAD_STATE_DIR", state)
        .status();
    assert!(pruned.unwrap().success());
}

fn docker(dir: &Path) {
    let image = ["--provider", "docker", "--image", stead_testkit::BUSYBOX_IMAGE];
    let (child, folder) = holder(&dir.join("c"), &image);
    let held = containers(&folder);
    assert!(held.len() == 1 && exists(&held[0]), "the control: it runs");
    kill(child);
    until("a container is left", || !exists(&held[0]));
    until("a folder of a container is left", || is_empty(&folder));
    assert_eq!(sleepers(), 0);

    let state = dir.join("d");
    let (child, folder) = holder(&state, &image);
    let held = containers(&folder);
    kill(child);
    prune(&state);
    assert!(!exists(&held[0]), "prune does it at once");
    until("a folder of a container is left", || is_empty(&folder));
}

/// Containers of an owner, in whatever state.
fn containers_of(owner: u32) -> Vec<String> {
    let label = format!("label=dev.stead.owner={owner}");
    let listed = Command::new("docker")
        .args([
            "ps",
            "-a",
            "--format",
            "{{.Names}} {{.Status}}",
            "--filter",
            &label,
        ])
        .output()
        .unwrap();
    String::from_utf8_lossy(&listed.stdout)
        .lines()
        .map(str::to_owned)
        .collect()
}

/// An owner that ends at any moment of bringing a place up, in order or not: the engine may still be making what
/// nobody waits for any more, and a folder may be half made.
fn interrupted(dir: &Path, place: &[&str], within: u64) {
    let mut owners = Vec::new();
    for at in 0..INTERRUPTED {
        let state = dir.join(format!("interrupted-{}-{at}", place[0]));
        let mut child = Command::new(env!("CARGO_BIN_EXE_stead"))
            .args(["run", "--provider"])
            .args(place)
            .args(["--timeout", "never", "--", "sleep", "1000"])
            .env("STEAD_STATE_DIR", &state)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let step = u64::try_from(at).unwrap();
        std::thread::sleep(Duration::from_micros(
            within * step / u64::try_from(INTERRUPTED).unwrap(),
        ));
        let signal = ["-INT", "-KILL", "-TERM", "-KILL"][at % 4];
        let pid = child.id();
        assert!(
            Command::new("kill")
                .args([signal, &pid.to_string()])
                .status()
                .unwrap()
                .success()
        );
        child.wait().unwrap();
        owners.push((pid, state.join("instances")));
    }
    for (owner, folder) in owners {
        until("a container of an interrupted run is left", || {
            place[0] != "docker" || containers_of(owner).is_empty()
        });
        until("a folder of an interrupted run is left", || {
            !folder.exists() || is_empty(&folder)
        });
    }
}
