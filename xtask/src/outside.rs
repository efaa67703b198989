//! The library as somebody else's dependency: tests/outside is a crate of its own, with its own
//! lock file, whose program is the example of the README.

use crate::{step, workspace};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;

/// What brings a web server along. Who embeds Stead to run a tool call must not compile one.
const SERVERS: [&str; 6] = ["actix-web", "axum", "poem", "rocket", "tower-http", "warp"];

/// Compiles and runs the example, and looks at what the facade pulls in.
pub fn check() -> Result<()> {
    pulls_in_no_server()?;
    readme_shows_the_example()?;
    let manifest = workspace::root().join("tests/outside/Cargo.toml");
    let mut command = workspace::cargo();
    command.args(["run", "--quiet", "--manifest-path"]).arg(manifest);
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

fn readme_shows_the_example() -> Result<()> {
    let readme = read(&workspace::root().join("README.md"))?;
    let example = read(&workspace::root().join("tests/outside/src/main.rs"))?;
    ensure!(
        shows(&readme, &example),
        "README.md has no ```rust block that is exactly tests/outside/src/main.rs without its leading comment"
    );
    Ok(())
}

/// Whether one of the Rust blocks is the example. The example's `//!` lines are for its reader only.
fn shows(readme: &str, example: &str) -> bool {
    let body: Vec<_> = example
        .lines()
        .skip_while(|line| line.starts_with("//!"))
        .collect();
    let body = body.join("\n");
    let blocks = readme
        .split("```rust\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("\n```"));
    blocks.into_iter().any(|(block, _)| block.trim() == body.trim())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))
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

    #[test]
    fn the_example_must_be_shown_as_it_is() {
        let example = "//! For the reader.\n\nfn main() {}\n";
        assert!(shows("text\n```rust\nfn main() {}\n```\n", example));
        assert!(!shows("text\n```rust\nfn main() { }\n```\n", example));
        assert!(!shows("no block", example));
    }
}
