//! The library as somebody else's dependency: tests/outside is no member of the workspace, and its
//! program is the example of the README.

use crate::{step, workspace};
use anyhow::{Context, Result, bail, ensure};

/// What brings a web server along. Who embeds Stead to run a tool call must not compile one.
const SERVERS: [&str; 6] = ["actix-web", "axum", "poem", "rocket", "tower-http", "warp"];

/// Bollard needs hyperlocal's connector, which it can only have together with its server side; that is a
/// module that nobody calls, not a web server (docs/adr/0003).
const TOLERATED: &str = "hyperlocal ";

/// Looks at what the facade pulls in, then compiles and runs the example.
pub fn check() -> Result<()> {
    pulls_in_no_server()?;
    runs_the_example()
}

fn runs_the_example() -> Result<()> {
    let folder = workspace::root().join("tests/outside");
    // The same versions as everywhere: a release of somebody else's must not turn our tests red.
    std::fs::copy(workspace::root().join("Cargo.lock"), folder.join("Cargo.lock"))
        .context("could not copy the lock file")?;
    let mut command = workspace::cargo();
    command
        .args(["run", "--quiet", "--manifest-path"])
        .arg(folder.join("Cargo.toml"));
    command.env("CARGO_TARGET_DIR", workspace::target().join("outside"));
    eprintln!("xtask: the example of the README, from outside the workspace");
    let said = step::output(&mut command)?;
    ensure!(!said.trim().is_empty(), "the example printed nothing");
    Ok(())
}

fn pulls_in_no_server() -> Result<()> {
    let all = tree(&["--prefix", "none"])?;
    if let Some(line) = server_in(&all) {
        bail!("the library pulls in a web server: {line}");
    }
    // Without the docker provider hyper is not there at all, and cargo says that as an error.
    if !all.lines().any(|line| line.starts_with("hyper v")) {
        return Ok(());
    }
    let inverted = tree(&["--invert", "hyper", "--prefix", "depth"])?;
    let users = hyper_server_users(&inverted);
    match users.iter().find(|user| !user.starts_with(TOLERATED)) {
        None => Ok(()),
        Some(user) => bail!("the library switches on hyper's server for {user}"),
    }
}

fn tree(how: &[&str]) -> Result<String> {
    let mut command = workspace::cargo();
    command.args([
        "tree",
        "--package",
        "stead",
        "--all-features",
        "--edges",
        "normal,features",
    ]);
    step::output(command.args(how))
}

/// The first line of a `cargo tree` that is a web server.
fn server_in(tree: &str) -> Option<&str> {
    tree.lines()
        .find(|line| SERVERS.contains(&line.split_whitespace().next().unwrap_or_default()))
}

/// Who switches on hyper's server: in the inverted tree, whose lines begin with their depth, what is
/// right below the feature.
fn hyper_server_users(tree: &str) -> Vec<&str> {
    let lines = tree.lines().map(|line| {
        let name = line.trim_start_matches(|c: char| c.is_ascii_digit());
        (&line[..line.len() - name.len()], name)
    });
    let mut below = lines.skip_while(|(_, name)| !name.starts_with("hyper feature \"server\""));
    below.next();
    below
        .take_while(|(depth, _)| *depth != "1")
        .filter(|(depth, _)| *depth == "2")
        .map(|(_, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_by_its_name() {
        assert_eq!(server_in("stead v0.1.0\naxum-core v0.5.0\n"), None);
        assert_eq!(server_in("stead v0.1.0\naxum v0.8.0\n"), Some("axum v0.8.0"));
    }

    #[test]
    fn who_switches_on_the_server_is_found() {
        let tree = "0hyper v1.0.0\n1hyper feature \"client\"\n2a v1\n1hyper feature \"server\"\n2b v1\n3c v1\n\
                    10d v1\n2e feature \"server\"\n1hyper feature \"full\"\n2f v1\n";
        assert_eq!(hyper_server_users(tree), ["b v1", "e feature \"server\""]);
        assert!(hyper_server_users("0hyper v1.0.0\n1hyper feature \"client\"\n2a v1\n").is_empty());
    }
}
