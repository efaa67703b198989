//! What is in the repository is for its readers: it names no machine or folder of who wrote it.

use crate::source::root;
use std::process::Command;

/// Put together here, so that this file does not find itself.
fn private_words() -> [String; 2] {
    [format!("/{}/", "work"), format!(".{}", "library/")]
}

#[test]
fn no_file_names_the_place_where_it_was_written() {
    let output = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        // A source archive: what it holds was checked when it was made.
        stead_testkit::note_skip(
            "no_file_names_the_place_where_it_was_written",
            "this machine cannot list files with git here",
        );
        return;
    };
    let mut found = Vec::new();
    let names = String::from_utf8(output.stdout).unwrap();
    for name in names.split_terminator('\0') {
        // A file that is staged but gone, and one that is no text, say nothing.
        let Ok(text) = std::fs::read_to_string(root().join(name)) else {
            continue;
        };
        for (at, line) in text.lines().enumerate() {
            if private_words().iter().any(|word| line.contains(word)) {
                found.push(format!("{name}:{}", at + 1));
            }
        }
    }
    assert!(
        found.is_empty(),
        "these lines name where they were written: {found:#?}"
    );
}
