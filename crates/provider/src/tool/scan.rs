//! Reads shell text far enough to know where a placeholder stands.
//!
//! The place's `/bin/sh` can be dash, bash (any age), busybox or another, and they differ in corners.
//! So this is no full parser: it follows what all of them read alike, and gives up (`Stop::Untracked`)
//! at what they do not. From there on text is fine, and a placeholder is refused.

use super::heredoc::HereDoc;
use super::template::{Context, Part, TemplateError, placeholder};

/// Deeper nesting is not followed.
const MAX_DEPTH: usize = 32;

pub(super) enum Stop {
    Error(TemplateError),
    Untracked(usize),
}

impl From<TemplateError> for Stop {
    fn from(error: TemplateError) -> Self {
        Self::Error(error)
    }
}

/// Splits shell text into text and placeholders.
pub(super) fn shell(text: &str) -> Result<Vec<Part>, TemplateError> {
    let mut scan = Scan {
        text,
        at: 0,
        parts: Vec::new(),
        literal_from: 0,
        depth: 0,
    };
    match scan.commands(Level {
        opened: 0,
        nested: false,
        quoted: false,
    }) {
        Ok(()) => {}
        Err(Stop::Error(error)) => return Err(error),
        Err(Stop::Untracked(since)) => scan.refuse_all_until(text.len(), Context::Untracked { since })?,
    }
    scan.push_literal(text.len());
    Ok(scan.parts)
}

pub(super) struct Scan<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    parts: Vec<Part>,
    literal_from: usize,
    depth: usize,
}

/// What kind of command list is being read.
#[derive(Clone, Copy)]
struct Level {
    /// Where its `$(` is.
    opened: usize,
    /// Whether it is in `$(…)`.
    nested: bool,
    /// Whether that is inside double quotes.
    quoted: bool,
}

/// What is known of the command list that is being read.
struct List {
    word: Word,
    /// Open `(` of subshells.
    parens: usize,
    /// Here-documents that were announced on this line.
    pending: Vec<HereDoc>,
}

/// What is known of the word that is being read.
#[derive(Clone, Copy)]
struct Word {
    /// No character of it was read yet: a `#` starts a comment.
    fresh: bool,
    /// Whether shells disagree if a `#` here starts a comment.
    unsure: bool,
    /// So far it is an identifier, so that a `[` can start an array index.
    identifier: bool,
    /// Open `[` that can be those of an index or a pattern. They outlive the word: an index may have blanks and
    /// lines.
    brackets: u32,
    /// The last character was an unquoted `(`.
    after_paren: bool,
}

impl Word {
    const NEW: Word = Word {
        fresh: true,
        unsure: false,
        identifier: false,
        brackets: 0,
        after_paren: false,
    };

    /// After a blank or an operator.
    fn end(&mut self) {
        *self = Word {
            brackets: self.brackets,
            ..Word::NEW
        };
    }

    /// After something that is part of a word and no identifier.
    fn grow(&mut self) {
        *self = Word {
            fresh: false,
            unsure: false,
            identifier: false,
            after_paren: false,
            ..*self
        };
    }

    fn take(&mut self, c: u8, next: Option<u8>) {
        let names = c == b'_' || c.is_ascii_alphabetic() || (c.is_ascii_digit() && !self.fresh);
        let identifier = names && (self.fresh || self.identifier);
        // `[` alone is the command; everything else that opens here could be an index.
        let alone = self.fresh && self.brackets == 0 && next.is_none_or(|next| next.is_ascii_whitespace());
        let brackets = match c {
            b'[' if !alone => self.brackets.saturating_add(1),
            b']' => self.brackets.saturating_sub(1),
            _ => self.brackets,
        };
        // Blanks of some locales and carriage returns are word characters for one shell and not for another.
        let unsure = !c.is_ascii() || matches!(c, b'\r' | 0x0b | 0x0c);
        *self = Word {
            fresh: false,
            unsure,
            identifier,
            brackets,
            after_paren: false,
        };
    }
}

impl Scan<'_> {
    pub(super) fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    pub(super) fn looking_at(&self, what: &str) -> bool {
        self.text.as_bytes()[self.at..].starts_with(what.as_bytes())
    }

    fn push_literal(&mut self, until: usize) {
        if until > self.literal_from {
            self.parts
                .push(Part::Text(self.text[self.literal_from..until].to_owned()));
        }
    }

    /// The placeholder at the current position, which `context` forbids.
    pub(super) fn refuse(&self, context: Context) -> TemplateError {
        match placeholder(self.text, self.at) {
            Ok(slot) => TemplateError::Unquotable {
                name: slot.name.to_owned(),
                at: self.at,
                context,
            },
            Err(error) => error,
        }
    }

    /// Goes to `until`; a placeholder on the way is refused.
    pub(super) fn refuse_all_until(&mut self, until: usize, context: Context) -> Result<(), TemplateError> {
        if let Some(found) = self.text[self.at..until].find("{{") {
            self.at += found;
            return Err(self.refuse(context));
        }
        self.at = until;
        Ok(())
    }

    fn accept(&mut self) -> Result<(), TemplateError> {
        let slot = placeholder(self.text, self.at)?;
        let (name, end) = (slot.name.to_owned(), slot.end);
        self.push_literal(self.at);
        self.parts.push(Part::Slot(name));
        self.at = end;
        self.literal_from = end;
        Ok(())
    }

    /// Reads commands until the `)` of their `$(`, or the end of the text.
    fn commands(&mut self, level: Level) -> Result<(), Stop> {
        let mut list = List {
            word: Word::NEW,
            parens: 0,
            pending: Vec::new(),
        };
        while let Some(c) = self.byte(0) {
            if c == b')' && list.parens == 0 && level.nested {
                return self.close(&list.pending);
            }
            let start = self.at;
            self.piece(level, &mut list, c)?;
            let read = &self.text[start..self.at];
            // A newline in a quote is where shells could disagree on where the here-document starts.
            if !list.pending.is_empty() && c != b'\n' && read.contains('\n') {
                self.at = start;
                return Err(Stop::Untracked(start));
            }
            let joined = read.starts_with("\\\n");
            next_word(&mut list.word, c, self.byte(0), joined);
        }
        let open = match list.pending.first() {
            Some(doc) => ("here-document", doc.at),
            None if level.nested => ("'$('", level.opened),
            None => return Ok(()),
        };
        Err(TemplateError::Unclosed {
            what: open.0,
            at: open.1,
        }
        .into())
    }

    /// Reads one character, or all that it starts.
    fn piece(&mut self, level: Level, list: &mut List, c: u8) -> Result<(), Stop> {
        let (start, word) = (self.at, &list.word);
        match c {
            b'{' if self.looking_at("{{") => self.slot(level, word, !list.pending.is_empty())?,
            b'\\' => self.escape(level, word)?,
            b'\'' | b'"' | b'`' | b'$' => self.quoting(level, c)?,
            b'#' if word.fresh || word.unsure => self.comment(level, word)?,
            b'(' if word.after_paren => return Err(Stop::Untracked(start)),
            // What `[[ … ]]` compares as numbers it also evaluates, quoted or not.
            b'[' if word.fresh && self.looking_at("[[") => return Err(Stop::Untracked(start)),
            b'<' if self.looking_at("<<<") => return Err(Stop::Untracked(start)),
            b'<' if self.looking_at("<<") => list.pending.push(self.announce(level.nested)?),
            b'c' if level.nested && word.fresh && self.keyword_case() => return Err(Stop::Untracked(start)),
            b'\n' => {
                self.at += 1;
                self.bodies(std::mem::take(&mut list.pending))?;
            }
            b'(' => {
                self.at += 1;
                list.parens += 1;
            }
            b')' => {
                self.at += 1;
                list.parens = list.parens.saturating_sub(1);
            }
            _ => self.skip_char(),
        }
        Ok(())
    }

    fn slot(&mut self, level: Level, word: &Word, announced: bool) -> Result<(), TemplateError> {
        let context = match () {
            () if level.quoted => Context::QuotedSubstitution,
            () if announced => Context::HereDocument,
            () if word.brackets > 0 => Context::Brackets,
            () => return self.accept(),
        };
        Err(self.refuse(context))
    }

    fn escape(&mut self, level: Level, word: &Word) -> Result<(), Stop> {
        let start = self.at;
        self.at += 1;
        if self.looking_at("{{") && placeholder(self.text, self.at).is_ok() {
            return Err(self.refuse(Context::Backslash).into());
        }
        // The shell joins the lines before it looks for words and operators: `<\<newline><` announces a
        // here-document and `ca\<newline>se` is a keyword. Only where a blank stands before it nothing is joined.
        let blank_before = start == 0 || matches!(self.text.as_bytes()[start - 1], b' ' | b'\t' | b'\n');
        if self.byte(0) == Some(b'\n') && (!blank_before || (level.nested && !word.fresh)) {
            self.at = start;
            return Err(Stop::Untracked(start));
        }
        self.skip_char();
        Ok(())
    }

    pub(super) fn skip_char(&mut self) {
        self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8);
    }

    /// What starts with a quote, a backquote or a dollar, outside double quotes.
    fn quoting(&mut self, level: Level, c: u8) -> Result<(), Stop> {
        match c {
            b'\'' => self.single(self.at + 1),
            b'"' => self.double(),
            b'`' => self.backquotes(false, level.quoted),
            _ => self.dollar(level.quoted, false),
        }
    }

    fn comment(&mut self, level: Level, word: &Word) -> Result<(), Stop> {
        // Old shells read quotes in a comment in `$(…)` as quotes.
        if word.unsure || level.nested {
            return Err(Stop::Untracked(self.at));
        }
        let end = self.text[self.at..]
            .find('\n')
            .map_or(self.text.len(), |length| self.at + length);
        Ok(self.refuse_all_until(end, Context::Comment)?)
    }

    fn close(&mut self, pending: &[HereDoc]) -> Result<(), Stop> {
        if !pending.is_empty() {
            return Err(Stop::Untracked(self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// The patterns of `case` have a `)` without a `(`.
    fn keyword_case(&self) -> bool {
        self.looking_at("case")
            && !self
                .byte(4)
                .is_some_and(|c| c == b'_' || c.is_ascii_alphanumeric())
    }

    /// A single-quoted string whose first character is at `from`.
    fn single(&mut self, from: usize) -> Result<(), Stop> {
        let start = self.at;
        let Some(length) = self.text[from..].find('\'') else {
            return Err(TemplateError::Unclosed {
                what: "single quote",
                at: start,
            }
            .into());
        };
        self.refuse_all_until(from + length, Context::SingleQuotes)?;
        self.at += 1;
        Ok(())
    }

    fn double(&mut self) -> Result<(), Stop> {
        let start = self.at;
        self.at += 1;
        while let Some(c) = self.byte(0) {
            match c {
                b'"' => {
                    self.at += 1;
                    return Ok(());
                }
                b'{' if self.looking_at("{{") => return Err(self.refuse(Context::DoubleQuotes).into()),
                b'\\' if matches!(self.byte(1), Some(b'$' | b'`' | b'"' | b'\\' | b'\n')) => self.at += 2,
                b'`' => self.backquotes(true, true)?,
                b'$' => self.dollar(true, true)?,
                _ => self.at += 1,
            }
        }
        Err(TemplateError::Unclosed {
            what: "double quote",
            at: start,
        }
        .into())
    }

    /// `quoted`: inside double quotes at any level. `direct`: right inside them.
    fn dollar(&mut self, quoted: bool, direct: bool) -> Result<(), Stop> {
        let start = self.at;
        match self.byte(1) {
            // Bash joins the lines before it looks at what follows the dollar; `$[` is its old arithmetic.
            Some(b'[') => Err(Stop::Untracked(start)),
            Some(b'\\') if self.byte(2) == Some(b'\n') => Err(Stop::Untracked(start)),
            Some(b'(') if self.byte(2) == Some(b'(') => self.arithmetic(),
            Some(b'(') if self.byte(2) == Some(b'\\') => Err(Stop::Untracked(start)),
            Some(b'(') => self.substitution(quoted),
            Some(b'{') if !self.text[start + 1..].starts_with("{{") => self.parameter(),
            Some(b'\'') if !direct => self.dollar_single(),
            // Two characters, so that the second is not read as the start of something.
            Some(b'$' | b'#' | b'?' | b'!' | b'-' | b'*' | b'@') => self.after_dollar(2, direct),
            _ => self.after_dollar(1, direct),
        }
    }

    fn after_dollar(&mut self, length: usize, direct: bool) -> Result<(), Stop> {
        let dollar = self.text.as_bytes()[self.at + length - 1] == b'$';
        self.at += length;
        if dollar && !direct && self.looking_at("{{") {
            return Err(self.refuse(Context::Dollar).into());
        }
        Ok(())
    }

    /// `$'…'` has escapes in some shells and none in others.
    fn dollar_single(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let inside = &self.text[start + 2..];
        let plain = inside
            .find('\'')
            .is_none_or(|length| !inside[..length].contains('\\'));
        if plain {
            self.single(start + 2)
        } else {
            Err(Stop::Untracked(start))
        }
    }

    fn substitution(&mut self, quoted: bool) -> Result<(), Stop> {
        let opened = self.at;
        if self.depth == MAX_DEPTH {
            return Err(Stop::Untracked(opened));
        }
        self.depth += 1;
        self.at += 2;
        self.commands(Level {
            opened,
            nested: true,
            quoted,
        })?;
        self.depth -= 1;
        Ok(())
    }
}

fn next_word(word: &mut Word, c: u8, next: Option<u8>, joined_lines: bool) {
    match c {
        b'\\' if joined_lines => {}
        // An index goes on over lines in some shells.
        b'\n' => word.end(),
        b' ' | b'\t' | b';' | b'&' | b'|' | b'<' | b'>' => word.end(),
        b'(' => {
            word.end();
            word.after_paren = true;
        }
        b')' => {
            word.end();
            word.unsure = true;
        }
        // A `#` here starts a comment and leaves the word as it is; elsewhere it is a character.
        b'#' if word.fresh => {}
        b'{' | b'\\' | b'\'' | b'"' | b'`' | b'$' => word.grow(),
        other => word.take(other, next),
    }
}
