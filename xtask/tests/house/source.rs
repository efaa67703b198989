//! The files of the workspace, and Rust text without what is no code.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// `cargo metadata` of the workspace without its dependencies' own packages.
pub fn packages() -> Vec<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root());
    let output = cargo.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// All Rust files below the folder of a package, but not those of a build or of a package within.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("target") && !path.join("Cargo.toml").exists() {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// What is kept of a Rust text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Code alone: a string is two quotes.
    Code,
    /// Code and the content of strings.
    CodeAndStrings,
}

/// Takes comments out of Rust text, and the content of strings when asked to; lines stay where they were.
pub fn strip(text: &str, keep: Keep) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = token_length(rest);
        let token = &rest[..length];
        let is_comment = token.starts_with("//") || token.starts_with("/*");
        let is_string = length > 1 && token.ends_with(['"', '#', '\'']) && !is_comment;
        if is_comment || (is_string && keep == Keep::Code) {
            if is_string {
                out.push_str("\"\"");
            }
            out.extend(token.chars().filter(|c| *c == '\n'));
        } else {
            out.push_str(token);
        }
        rest = &rest[length.max(first.len_utf8())..];
    }
    out
}

/// The length of the comment, the literal, the identifier or the single character at the front.
fn token_length(text: &str) -> usize {
    let first = text.chars().next().unwrap();
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment_length(text);
    }
    if first == '"' {
        return string_length(text);
    }
    if first == '\'' {
        return char_length(text).unwrap_or(1);
    }
    if !is_word(first) {
        return first.len_utf8();
    }
    let word = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let after = &text[word..];
    match &text[..word] {
        "r" | "br" | "cr" => raw_string_length(after).map_or(word, |length| word + length),
        "b" | "c" if after.starts_with('"') => word + string_length(after),
        "b" if after.starts_with('\'') => word + char_length(after).unwrap_or(0),
        _ => word,
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0usize, 0);
    while at < text.len() {
        match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// `None` for a lifetime.
fn char_length(text: &str) -> Option<usize> {
    let inner = &text[1..];
    if let Some(escape) = inner.strip_prefix('\\') {
        let close = escape.char_indices().skip(1).find(|(_, c)| *c == '\'')?.0;
        return Some(2 + close + 1);
    }
    let c = inner.chars().next()?;
    inner[c.len_utf8()..]
        .starts_with('\'')
        .then(|| 1 + c.len_utf8() + 1)
}

fn raw_string_length(after: &str) -> Option<usize> {
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = body.find(&close).map_or(body.len(), |end| end + close.len());
    Some(hashes + 1 + end)
}

#[test]
fn only_code_is_left() {
    let text = "a /* b /* c */ d */ \"e\\\" // f\" r#\"g\" h\"# 'i' '\\'' &'j str // k\nl b\"m\" \"\\\\\" n";
    assert_eq!(
        strip(text, Keep::Code),
        "a  \"\" \"\" \"\" \"\" &'j str \nl \"\" \"\" n"
    );
    assert!(strip(text, Keep::CodeAndStrings).contains("\"e\\\" // f\" r#\"g\" h\"#"));
}
