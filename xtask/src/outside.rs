//! The library as somebody else's dependency: tests/outside is no member of the workspace, and its
//! program is the example of the README.

use crate::{step, workspace};
use anyhow::{Context, Result, bail, ensure};

/// What brings a web server along. Who embeds Stead to run a tool call must not compile one.
const SERVERS: [&str; 6] = ["actix-web", "axum", "poem", "rocket", "tower-http", "warp"];

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
    let arguments = [
        "tree",
        "--package",
        "stead",
        "--all-features",
        "--edges",
        "normal,features",
    ];
    let tree = step::output(workspace::cargo().args(arguments).args(["--prefix", "none"]))?;
    match server_in(&tree) {
        None => Ok(()),
        Some(line) => bail!("the library pulls in a web server: {line}"),
    }
}

/// The first line of a `cargo tree` with features that stands for a web server.
fn server_in(tree: &str) -> Option<&str> {
    tree.lines().find(|line| {
        let name = line.split_whitespace().next().unwrap_or_default();
        SERVERS.contains(&name) || line.starts_with("hyper feature \"server\"")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_by_its_crate_or_its_feature() {
        assert_eq!(
            server_in("stead v0.1.0\nhyper feature \"client\"\naxum-core v0.5.0\n"),
            None
        );
        assert_eq!(server_in("stead v0.1.0\naxum v0.8.0\n"), Some("axum v0.8.0"));
        assert_eq!(
            server_in("hyper feature \"server\" (*)"),
            Some("hyper feature \"server\" (*)")
        );
    }
}
