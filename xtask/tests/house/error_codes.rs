//! Each public error code has a page docs/errors/CODE.md with its cause and remedy, and each page a code.

use crate::source::{Keep, root, rust_files, strip};
use std::collections::{BTreeMap, BTreeSet};

/// Where a code is given without a function `code`.
const GIVEN: [&str; 4] = [
    "Availability::missing(",
    "Missing::new(",
    "Failure::new(",
    "code: ",
];

/// What a page has to say.
const HEADINGS: [&str; 2] = ["## Cause", "## Remedy"];

/// The codes of one file: strings in the bodies of functions named `code`, and those given directly.
fn codes_in(text: &str) -> BTreeSet<String> {
    let code = strip(text, Keep::CodeAndStrings);
    // What tests make up needs no page.
    let code = code.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut codes = BTreeSet::new();
    for rest in after(code, "fn code(") {
        // The declaration in a trait ends with a semicolon and has no body.
        let end = rest.find(['{', ';']).unwrap_or(rest.len());
        if rest[end..].starts_with('{') {
            codes.extend(strings(block(&rest[end..])));
        }
    }
    for given in GIVEN {
        for rest in after(code, given) {
            let rest = rest.trim_start();
            codes.extend(
                rest.starts_with('"')
                    .then(|| strings(first_line(rest)).next())
                    .flatten(),
            );
        }
    }
    codes.retain(|code| is_code(code));
    codes
}

fn after<'a>(text: &'a str, marker: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(marker)
        .map(move |(at, _)| &text[at + marker.len()..])
}

/// From an opening brace to the one that closes it.
fn block(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..=at];
        }
    }
    text
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn strings(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split('"').skip(1).step_by(2).map(str::to_owned)
}

fn is_code(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Code -> a file that gives it.
fn codes() -> BTreeMap<String, String> {
    let mut codes = BTreeMap::new();
    for folder in ["crates", "bin"].map(|folder| root().join(folder)) {
        for package in std::fs::read_dir(folder).unwrap() {
            let source = package.unwrap().path().join("src");
            if !source.is_dir() {
                continue;
            }
            for file in rust_files(&source) {
                let text = std::fs::read_to_string(&file).unwrap();
                let name = file.strip_prefix(root()).unwrap_or(&file).display().to_string();
                codes.extend(codes_in(&text).into_iter().map(|code| (code, name.clone())));
            }
        }
    }
    codes
}

/// The pages by their code; README.md is the list of them.
fn pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("docs/errors")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if let Some(code) = name.strip_suffix(".md").filter(|code| *code != "README") {
            pages.insert(code.to_owned(), std::fs::read_to_string(&path).unwrap());
        }
    }
    pages
}

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let (codes, pages) = (codes(), pages());
    let unexplained: Vec<_> = codes
        .iter()
        .filter(|(code, _)| !pages.contains_key(*code))
        .collect();
    assert!(
        unexplained.is_empty(),
        "codes without a page in docs/errors: {unexplained:#?}"
    );
    let unused: Vec<_> = pages.keys().filter(|code| !codes.contains_key(*code)).collect();
    assert!(
        unused.is_empty(),
        "pages in docs/errors that no code gives: {unused:#?}"
    );
}

#[test]
fn every_page_says_cause_and_remedy_and_is_listed() {
    let list = std::fs::read_to_string(root().join("docs/errors/README.md")).unwrap();
    for (code, page) in pages() {
        assert!(
            page.starts_with(&format!("# {code}\n")),
            "docs/errors/{code}.md has another title"
        );
        for heading in HEADINGS {
            assert!(
                page.contains(&format!("\n{heading}\n")),
                "docs/errors/{code}.md has no {heading}"
            );
        }
        assert!(
            list.contains(&format!("]({code}.md)")),
            "docs/errors/README.md does not list {code}"
        );
    }
}

#[test]
fn the_codes_of_the_shared_types_are_found() {
    // If the scan saw nothing, the first test would pass with an empty folder.
    let codes = codes();
    for known in [
        "config_unsupported",
        "command_lost",
        "shutdown_failed",
        "provider_unknown",
    ] {
        assert!(codes.contains_key(known), "{known} was not found");
    }
}

#[test]
fn codes_are_found_in_bodies_and_where_they_are_given() {
    let text = r#"
        trait Code { fn code(&self) -> &'static str; }
        fn code(&self) -> &'static str { match self { A { .. } => "a_failed", B => { "b_lost" } } }
        fn remedy(&self) -> &str { "no_code" }
        fn c() { Availability::missing("c_missing", "Why.", "What."); Availability::missing(
            "d_missing", "Why.", "What."); Missing { code: "e_missing", reason } }
        #[cfg(test)]
mod tests { fn f() { Missing { code: "f_missing" } } }"#;
    let expected = ["a_failed", "b_lost", "c_missing", "d_missing", "e_missing"];
    assert_eq!(codes_in(text), expected.map(str::to_owned).into());
}
