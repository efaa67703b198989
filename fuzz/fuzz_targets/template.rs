//! A template is refused, or every value stands in it as one single-quoted word outside of all quotes,
//! and nothing else of the text changes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use stead_fuzz::{ends_bare, unquoted};
use stead_provider::tool::{ShellTemplate, TextTemplate};

/// Tried on each template besides the generated value.
const HOSTILE: [&str; 9] = [
    "",
    "'",
    "'\\''",
    "\\",
    "$(x)`x`\"",
    "\n#",
    "{{ a }}",
    "-x",
    "a b*?~!\u{2028}é",
];

/// A value that the text does not have, to find the places of the values.
const MARK: &str = "MARK-7f3a";

fn args(names: &[String], value: &str) -> Map<String, Value> {
    let value = Value::String(value.to_owned());
    names.iter().map(|name| (name.clone(), value.clone())).collect()
}

/// The template's text is `pieces` with a placeholder of the next name between each two of them.
fn is_built_of(text: &str, pieces: &[&str], names: &[String]) -> bool {
    let mut rest = text.strip_prefix(pieces[0]);
    for (piece, name) in pieces[1..].iter().zip(names) {
        let blank = [' ', '\t'];
        rest = rest
            .and_then(|rest| rest.strip_prefix("{{"))
            .and_then(|rest| rest.trim_start_matches(blank).strip_prefix(name.as_str()))
            .and_then(|rest| rest.trim_start_matches(blank).strip_prefix("}}"))
            .and_then(|rest| rest.strip_prefix(piece));
    }
    rest == Some("") && pieces.len() == names.len() + 1
}

fn shell(text: &str, value: &str) {
    let Ok(template) = ShellTemplate::parse(text) else {
        return;
    };
    let names: Vec<String> = template.placeholders().map(str::to_owned).collect();
    let marked = template.render(&args(&names, MARK)).expect("no NUL");
    let quoted = format!("'{MARK}'");
    let pieces: Vec<&str> = marked.split(quoted.as_str()).collect();
    assert!(is_built_of(text, &pieces, &names), "{text:?} became {marked:?}");
    // Outside of quotes wherever the simple judge can tell.
    for slot in 1..pieces.len() {
        let before = pieces[..slot].join(quoted.as_str());
        assert_ne!(
            ends_bare(&before),
            Some(false),
            "a value stands in quotes: {marked:?}"
        );
    }
    for value in HOSTILE.into_iter().chain([value]) {
        let rendered = match template.render(&args(&names, value)) {
            Ok(rendered) => rendered,
            Err(_) => {
                assert!(value.contains('\0') && !names.is_empty());
                continue;
            }
        };
        // Every value is the same word, so its length follows from the length of the whole.
        let fixed: usize = pieces.iter().map(|piece| piece.len()).sum();
        let length = (rendered.len() - fixed).checked_div(names.len()).unwrap_or(0);
        let mut at = pieces[0].len();
        assert!(rendered.starts_with(pieces[0]));
        for piece in &pieces[1..] {
            let word = rendered.get(at..at + length).expect("a whole word");
            assert_eq!(unquoted(word).as_deref(), Some(value), "in {rendered:?}");
            assert!(word.starts_with('\'') && word.ends_with('\''));
            at += length;
            assert!(rendered[at..].starts_with(piece));
            at += piece.len();
        }
        assert_eq!(at, rendered.len());
    }
}

fn plain(text: &str) {
    let Ok(template) = TextTemplate::parse(text) else {
        return;
    };
    let names: Vec<String> = template.placeholders().map(str::to_owned).collect();
    let marked = template.render(&args(&names, MARK)).expect("no NUL");
    let pieces: Vec<&str> = marked.split(MARK).collect();
    assert!(is_built_of(text, &pieces, &names), "{text:?} became {marked:?}");
}

fuzz_target!(|input: (&str, &str)| {
    let (value, text) = input;
    if !text.contains(MARK) {
        shell(text, value);
        plain(text);
    }
});
