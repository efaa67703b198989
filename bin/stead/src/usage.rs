//! What is told of a command line that the parser refuses: its own text with the code, or the document that
//! other failures have too.

use crate::colour;
use crate::failure::{Failure, USAGE};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;
use std::io::Write;

/// Prints what the parser answers instead of a command, and gives the exit code. `args` has the program too.
pub fn report(mut error: clap::Error, args: &[OsString]) -> u8 {
    // Help and version are answers and go to standard output; mistakes are not. Whoever reads may be gone.
    if !error.use_stderr() {
        let _ = error.print();
        return 0;
    }
    if let Some(hint) = hint(&error, args) {
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![hint.into()]),
        );
    }
    if asks_for_json(args) {
        return failure(&error).report(true);
    }
    let _ = writeln!(std::io::stderr(), "{}", text(&error, colour::on_stderr()));
    USAGE
}

/// Whether `--json` is among the arguments. What follows `--` is not ours.
fn asks_for_json(args: &[OsString]) -> bool {
    ours(args).any(|arg| arg == "--json")
}

fn ours(args: &[OsString]) -> impl Iterator<Item = &OsString> {
    args.iter().skip(1).take_while(|arg| *arg != "--")
}

fn is_missing_command(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// The parser's own text, and the code.
fn text(error: &clap::Error, colours: bool) -> String {
    let rendered = error.render();
    let text = match colours {
        true => rendered.ansi().to_string(),
        false => rendered.to_string(),
    };
    let text = text.trim_end();
    match is_missing_command(error) {
        // It is the help alone.
        true => format!("{text}\n\nerror: no command is given [usage]"),
        false => format!("{text} [usage]"),
    }
}

/// The same in the parts that other failures have.
fn failure(error: &clap::Error) -> Failure {
    if is_missing_command(error) {
        return Failure::usage("no command is given", "Name one; `--help` lists them.");
    }
    let text = error.render().to_string();
    let mut paragraphs = text.trim().split("\n\n");
    let message = one_line(paragraphs.next().unwrap_or_default());
    let message = message.strip_prefix("error: ").unwrap_or(&message);
    let mut remedy: Vec<String> = Vec::new();
    for paragraph in paragraphs.filter(|paragraph| !paragraph.starts_with("For more information")) {
        match paragraph.trim_start().starts_with("tip: ") {
            true => remedy.extend(
                paragraph
                    .lines()
                    .map(|line| capitalized(line.trim().trim_start_matches("tip: "))),
            ),
            false => remedy.push(one_line(paragraph)),
        }
    }
    if remedy.is_empty() {
        remedy.push("`--help` tells what can be written.".to_owned());
    }
    Failure::usage(message, remedy.join(". "))
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

/// What was likely meant by a word that `stead run` does not take: a command without the `--` before it, or
/// more of a text that is not quoted as a whole.
fn hint(error: &clap::Error, args: &[OsString]) -> Option<String> {
    let runs = args.get(1).is_some_and(|command| command == "run");
    if error.kind() != ErrorKind::UnknownArgument || !runs || args.iter().any(|arg| arg == "--") {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if word.starts_with('-') {
        return None;
    }
    let has_text = ours(args).any(|arg| arg == "--shell" || arg.as_encoded_bytes().starts_with(b"--shell="));
    Some(match has_text {
        true => "the text of `--shell` is one argument: quote it as a whole".to_owned(),
        false => format!("put `--` before the command: `stead run [OPTIONS] -- {word} …`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    fn refused(line: &str) -> (clap::Error, Vec<OsString>) {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        (Cli::try_parse_from(&args).unwrap_err(), args)
    }

    #[test]
    fn a_forgotten_separator_is_told_and_nothing_else_is_taken_for_one() {
        let hint = |line| {
            let (error, args) = refused(line);
            hint(&error, &args).unwrap_or_default()
        };
        assert!(hint("stead run --image x echo hi").contains("-- echo …"));
        assert!(hint("stead run ls -la").contains("-- ls …"));
        assert!(hint("stead run --shell echo hi").contains("quote it"));
        for other in [
            "stead run --mem 1 x",
            "stead run",
            "stead run x -- y",
            "stead ps x",
            "stead rnu",
        ] {
            assert_eq!(hint(other), "", "{other}");
        }
    }

    #[test]
    fn json_is_asked_for_before_the_separator_only() {
        let asks = |line: &str| asks_for_json(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(asks("stead run --json x"));
        assert!(asks("stead --json"));
        assert!(!asks("stead run --x -- echo --json"));
        assert!(!asks("--json run"));
    }

    #[test]
    fn the_parts_of_a_refusal_are_told_apart() {
        let told = |line| {
            let failure = failure(&refused(line).0);
            (failure.message, failure.remedy)
        };
        let (message, remedy) = told("stead run --mem 1 -- true");
        assert_eq!(message, "unexpected argument '--mem' found");
        assert!(
            remedy.starts_with("A similar argument exists: '--memory'. "),
            "{remedy}"
        );
        assert!(remedy.contains("Usage: stead run "), "{remedy}");
        let (message, remedy) = told("stead completions nosh");
        assert!(
            message.starts_with("invalid value 'nosh' for '<SHELL>' [possible"),
            "{message}"
        );
        assert!(!remedy.is_empty());
        let (message, _) = told("stead run");
        assert_eq!(
            message,
            "the following required arguments were not provided: <CMD>..."
        );
        assert_eq!(told("stead tool").0, "no command is given");
    }
}
