//! Templates of tool commands: text with `{{ name }}` placeholders.
//!
//! A name has letters, digits, `_` and `.`, and is looked up literally: `{{ a.b }}` is the argument
//! `a.b`, not the field `b` of `a`. Spaces and tabs around it do not count. Every `{{` starts a
//! placeholder; one that is malformed (`{{ bad-name }}`, `{{}}`, `{{ name`) is an error with its
//! position, because a misspelt placeholder that passes as text would be found too late. A `}}` alone
//! is text. To write `{{` itself in shell text, part it: `{\{` outside quotes, `'{''{'` inside.

use super::scan;
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};
use stead_types::error::Code;

/// Where in shell text a placeholder stands when its value cannot be quoted there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    /// Between `'` and `'`, or `$'` and `'`.
    SingleQuotes,
    /// Between `"` and `"`.
    DoubleQuotes,
    /// Right after a backslash, which would take the quote's meaning away.
    Backslash,
    /// Right after a `$`, where some shells read `$'` as another kind of quote.
    Dollar,
    /// After a `#` that starts a comment: a newline in the value would end it.
    Comment,
    /// In the text or delimiter of a here-document, or on the rest of the line that announces one.
    HereDocument,
    /// In `$(…)` inside double quotes.
    QuotedSubstitution,
    /// In `` `…` ``, where backslashes and backquotes of the value would be read twice.
    Backquotes,
    /// In `${…}`.
    Parameter,
    /// In `$((…))`.
    Arithmetic,
    /// In `[…]` of a word, which some shells evaluate as an array index.
    Brackets,
    /// After a construct that shells read differently from each other.
    Untracked {
        /// Byte position of the construct.
        since: usize,
    },
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SingleQuotes => "inside single quotes",
            Self::DoubleQuotes => "inside double quotes",
            Self::Backslash => "after a backslash",
            Self::Dollar => "right after a '$'",
            Self::Comment => "in a comment",
            Self::HereDocument => "in a here-document or on the line that announces one",
            Self::QuotedSubstitution => "in $(…) inside double quotes",
            Self::Backquotes => "in backquotes",
            Self::Parameter => "in ${…}",
            Self::Arithmetic => "in $((…))",
            Self::Brackets => "in brackets of a word",
            Self::Untracked { since } => {
                return write!(
                    f,
                    "after a construct at byte {since} that shells read in different ways"
                );
            }
        })
    }
}

/// Why a template cannot be declared or filled in. Positions are bytes from 0 in the template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// Nothing to run: no text, blanks only, or an empty argument list.
    #[error("the template is empty")]
    Empty,
    /// The template itself has a NUL byte.
    #[error("the template has a NUL byte at byte {at}")]
    Nul {
        /// Its position.
        at: usize,
    },
    /// A `{{` that is not followed by a name and `}}`.
    #[error("the placeholder at byte {at} is malformed: {reason}")]
    Malformed {
        /// Position of the `{{`.
        at: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// A placeholder where quoting cannot hold.
    #[error("the placeholder '{name}' at byte {at} stands {context}, where quoting cannot hold")]
    Unquotable {
        /// Its name.
        name: String,
        /// Position of the `{{`.
        at: usize,
        /// Where it stands.
        context: Context,
    },
    /// Shell text that ends too early.
    #[error("the {what} that starts at byte {at} is not closed")]
    Unclosed {
        /// What is open.
        what: &'static str,
        /// Where it starts.
        at: usize,
    },
    /// One entry of an argument list, or the text for standard input.
    #[error("{part}: {error}")]
    Part {
        /// `argument N` (from 0) or `stdin`.
        part: String,
        /// What is wrong with it; its position counts from the start of this part.
        error: Box<TemplateError>,
    },
    /// A value with a NUL byte, which no program can get.
    #[error("the value of '{name}' has a NUL byte")]
    NulValue {
        /// Name of the argument.
        name: String,
    },
    /// An environment variable or timeout of the tool that no program can get.
    #[error("the tool's settings are invalid: {reason}")]
    Settings {
        /// What is wrong.
        reason: String,
    },
}

impl TemplateError {
    pub(crate) fn within(self, part: impl Into<String>) -> Self {
        Self::Part {
            part: part.into(),
            error: Box::new(self),
        }
    }

    fn is_about_value(&self) -> bool {
        match self {
            Self::NulValue { .. } => true,
            Self::Part { error, .. } => error.is_about_value(),
            _ => false,
        }
    }
}

impl From<std::convert::Infallible> for TemplateError {
    fn from(never: std::convert::Infallible) -> Self {
        match never {}
    }
}

impl Code for TemplateError {
    fn code(&self) -> &'static str {
        if self.is_about_value() {
            "tool_arguments_invalid"
        } else {
            "template_invalid"
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Empty => "Write the command to run.",
            Self::Nul { .. } => "Remove the NUL byte.",
            Self::Malformed { .. } => {
                "Write {{ name }} with letters, digits, '_' and '.'; for a literal '{{' in shell text write {\\{ or '{''{'."
            }
            Self::Unquotable { .. } => {
                "Take the placeholder out of it, since it quotes itself, or use an argument list, which needs no quoting."
            }
            Self::Unclosed { .. } => "Close it.",
            Self::Part { error, .. } => return error.remedy(),
            Self::NulValue { .. } => "Give the value without NUL bytes.",
            Self::Settings { .. } => "Correct the tool's env or timeout.",
        }
        .to_owned()
    }
}

/// Text or a placeholder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(String),
    Slot(String),
}

/// A well-formed placeholder.
pub(crate) struct Placeholder<'a> {
    pub(crate) name: &'a str,
    /// Byte after its `}}`.
    pub(crate) end: usize,
}

/// Reads the placeholder whose `{{` is at `at`.
pub(crate) fn placeholder(text: &str, at: usize) -> Result<Placeholder<'_>, TemplateError> {
    let malformed = |reason| TemplateError::Malformed { at, reason };
    let inside = text.get(at + 2..).unwrap_or_default();
    let Some(length) = inside.find("}}") else {
        return Err(malformed("there is no '}}' after it"));
    };
    let name = inside[..length].trim_matches([' ', '\t']);
    if name.is_empty() {
        return Err(malformed("it has no name"));
    }
    if !name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.') {
        return Err(malformed("a name has letters, digits, '_' and '.' only"));
    }
    Ok(Placeholder {
        name,
        end: at + 2 + length + 2,
    })
}

/// An argument as text: a string as is, a number or boolean as its JSON text, an array or object as
/// compact JSON, a missing or null one as nothing.
fn value_text(args: &Map<String, Value>, name: &str) -> Result<String, TemplateError> {
    let text = match args.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    if text.contains('\0') {
        return Err(TemplateError::NulValue {
            name: name.to_owned(),
        });
    }
    Ok(text)
}

/// One single-quoted shell word.
pub(crate) fn quote(text: &str) -> String {
    let mut word = String::with_capacity(text.len() + 2);
    word.push('\'');
    for (at, piece) in text.split('\'').enumerate() {
        // Writing to a String cannot fail.
        let _ = write!(word, "{}{piece}", if at == 0 { "" } else { "'\\''" });
    }
    word.push('\'');
    word
}

fn fill(
    parts: &[Part],
    args: &Map<String, Value>,
    shape: fn(String) -> String,
) -> Result<String, TemplateError> {
    parts.iter().try_fold(String::new(), |mut out, part| {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Slot(name) => out.push_str(&shape(value_text(args, name)?)),
        }
        Ok(out)
    })
}

fn names(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts.iter().filter_map(|part| match part {
        Part::Text(_) => None,
        Part::Slot(name) => Some(name.as_str()),
    })
}

fn refuse_nul(text: &str) -> Result<(), TemplateError> {
    text.find('\0')
        .map_or(Ok(()), |at| Err(TemplateError::Nul { at }))
}

/// Shell text in which every value becomes one single-quoted word.
///
/// One word is what the shell sees. What the command does with it is its own affair: `eval {{x}}`
/// evaluates it, and a value that begins with `-` can be read as an option (write `--` before it).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellTemplate {
    parts: Vec<Part>,
}

impl ShellTemplate {
    /// Reads a template. A placeholder where quoting cannot hold for every POSIX shell is an error.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.trim().is_empty() {
            return Err(TemplateError::Empty);
        }
        refuse_nul(text)?;
        Ok(Self {
            parts: scan::shell(text)?,
        })
    }

    /// The shell text for one call. Fails only when a value has a NUL byte.
    pub fn render(&self, args: &Map<String, Value>) -> Result<String, TemplateError> {
        fill(&self.parts, args, |value| quote(&value))
    }

    /// The placeholders' names in order, with repetitions.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        names(&self.parts)
    }
}

/// Text in which values are put as they are, for places that no shell reads: one argument, or
/// standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextTemplate {
    parts: Vec<Part>,
}

impl TextTemplate {
    /// Reads a template. Empty text is allowed.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        refuse_nul(text)?;
        let mut parts = Vec::new();
        let mut done = 0;
        while let Some(found) = text[done..].find("{{") {
            let at = done + found;
            let slot = placeholder(text, at)?;
            if at > done {
                parts.push(Part::Text(text[done..at].to_owned()));
            }
            parts.push(Part::Slot(slot.name.to_owned()));
            done = slot.end;
        }
        if done < text.len() {
            parts.push(Part::Text(text[done..].to_owned()));
        }
        Ok(Self { parts })
    }

    /// The text for one call. Fails only when a value has a NUL byte.
    pub fn render(&self, args: &Map<String, Value>) -> Result<String, TemplateError> {
        fill(&self.parts, args, |value| value)
    }

    /// The placeholders' names in order, with repetitions.
    pub fn placeholders(&self) -> impl Iterator<Item = &str> {
        names(&self.parts)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
