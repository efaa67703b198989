//! Unsafe code is in crates/sys and nowhere else.

use crate::source::{Keep, packages, root, rust_files, strip};
use std::path::{Path, PathBuf};

const UNSAFE_CRATE: &str = "stead-sys";

fn folder(package: &serde_json::Value) -> PathBuf {
    Path::new(package["manifest_path"].as_str().unwrap())
        .parent()
        .unwrap()
        .to_owned()
}

/// The lines on which the keyword stands.
fn lines_with_the_keyword(text: &str) -> Vec<usize> {
    let code = strip(text, Keep::Code);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let has = |line: &str| line.split(|c| !is_word(c)).any(|word| word == "unsafe");
    code.lines()
        .enumerate()
        .filter(|(_, line)| has(line))
        .map(|(at, _)| at + 1)
        .collect()
}

#[test]
fn no_other_crate_has_unsafe_code() {
    let mut found = Vec::new();
    for package in packages()
        .iter()
        .filter(|package| package["name"] != UNSAFE_CRATE)
    {
        for file in rust_files(&folder(package)) {
            let text = std::fs::read_to_string(&file).unwrap();
            let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
            found.extend(
                lines_with_the_keyword(&text)
                    .into_iter()
                    .map(|line| format!("{name}:{line}")),
            );
        }
    }
    assert!(found.is_empty(), "unsafe code outside crates/sys: {found:#?}");
}

#[test]
fn every_other_library_and_program_forbids_it() {
    for package in packages()
        .iter()
        .filter(|package| package["name"] != UNSAFE_CRATE)
    {
        for target in package["targets"].as_array().unwrap() {
            let kinds: Vec<_> = target["kind"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|k| k.as_str())
                .collect();
            if !kinds
                .iter()
                .any(|kind| matches!(*kind, "lib" | "bin" | "rlib" | "proc-macro"))
            {
                continue;
            }
            let path = target["src_path"].as_str().unwrap();
            let code = strip(&std::fs::read_to_string(path).unwrap(), Keep::Code);
            assert!(
                code.contains("#![forbid(unsafe_code)]"),
                "{path} does not forbid unsafe code"
            );
        }
    }
}

#[test]
fn the_keyword_is_seen_only_where_it_is_code() {
    assert_eq!(lines_with_the_keyword("fn a() {}\nunsafe { b() }\n"), [2]);
    assert!(lines_with_the_keyword("// unsafe\n#![forbid(unsafe_code)]\nlet a = \"unsafe\";").is_empty());
}
