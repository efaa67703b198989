//! The parts of shell text in which no placeholder is possible and whose end must be found:
//! `${…}`, `$((…))` and `` `…` ``.

use super::scan::{Scan, Stop};
use super::template::{Context, TemplateError};

impl Scan<'_> {
    /// `${…}`, when there are no quotes in it.
    pub(super) fn parameter(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let mut open = 0_usize;
        while let Some(c) = self.byte(0) {
            match c {
                b'$' if self.byte(1) == Some(b'{') && !self.text[self.at + 1..].starts_with("{{") => {
                    // Newer shells run commands in `${ …}` and `${|…}`.
                    if !self
                        .byte(2)
                        .is_some_and(|c| c.is_ascii_alphanumeric() || b"_#?@*!$-".contains(&c))
                    {
                        return Err(Stop::Untracked(start));
                    }
                    open += 1;
                    // Three: the `#` of `${#name}` and the like are no more than names here.
                    self.at += 3;
                }
                b'{' if self.looking_at("{{") => return Err(self.refuse(Context::Parameter).into()),
                b'}' => {
                    open -= 1;
                    self.at += 1;
                    if open == 0 {
                        return Ok(());
                    }
                }
                b'$' if matches!(self.byte(1), Some(b'(' | b'[' | b'\'' | b'"' | b'\\')) => {
                    return self.give_up(start, Context::Parameter);
                }
                b'\'' | b'"' | b'\\' | b'`' | b'\n' | b'{' | b'[' => {
                    return self.give_up(start, Context::Parameter);
                }
                _ => self.at += 1,
            }
        }
        Err(TemplateError::Unclosed {
            what: "'${'",
            at: start,
        }
        .into())
    }

    /// Not followed any further; what stands here for sure gets its own name in the error.
    fn give_up(&mut self, start: usize, context: Context) -> Result<(), Stop> {
        let line = self.text[self.at..]
            .find(['}', '\n', ')'])
            .map_or(self.text.len(), |length| self.at + length);
        self.refuse_all_until(line, context)?;
        Err(Stop::Untracked(start))
    }

    /// `$((…))`, when it is arithmetic for every shell.
    pub(super) fn arithmetic(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let mut open = 0_usize;
        self.at += 1;
        while let Some(c) = self.byte(0) {
            match c {
                b'{' if self.looking_at("{{") => return Err(self.refuse(Context::Arithmetic).into()),
                b'(' => open += 1,
                // With something between the last two, it is `$(` with a subshell in it.
                b')' if open == 2 && self.byte(1) != Some(b')') => return Err(Stop::Untracked(start)),
                b')' if open == 2 => {
                    self.at += 2;
                    return Ok(());
                }
                b')' => open -= 1,
                b'$' if self.byte(1) == Some(b'{') => {
                    self.parameter()?;
                    continue;
                }
                b'$' if !self
                    .byte(1)
                    .is_some_and(|c| c == b'_' || c.is_ascii_alphanumeric()) =>
                {
                    return self.give_up(start, Context::Arithmetic);
                }
                c if c.is_ascii_alphanumeric() || b"_$ \t+-*/%<>=!&|^~?:,".contains(&c) => {}
                _ => return self.give_up(start, Context::Arithmetic),
            }
            self.at += 1;
        }
        Err(TemplateError::Unclosed {
            what: "'$(('",
            at: start,
        }
        .into())
    }

    /// `` `…` ``. Shells agree on its end as long as it is in no quote that starts inside.
    pub(super) fn backquotes(&mut self, direct: bool, quoted: bool) -> Result<(), Stop> {
        let start = self.at;
        let mut quote: Option<u8> = None;
        self.at += 1;
        while let Some(c) = self.byte(0) {
            match c {
                b'{' if self.looking_at("{{") => return Err(self.refuse(Context::Backquotes).into()),
                b'`' if quote.is_some() => return Err(Stop::Untracked(start)),
                b'`' => {
                    self.at += 1;
                    return Ok(());
                }
                // A backslash or a double quote is read in another way when it is in double quotes as well.
                b'\\' | b'"' if direct || quoted => return self.give_up_in_backquotes(start),
                b'\\' => self.at += 1,
                b'\'' | b'"' if quote == Some(c) => quote = None,
                b'\'' | b'"' if quote.is_none() => quote = Some(c),
                _ => {}
            }
            self.skip_char();
        }
        Err(TemplateError::Unclosed {
            what: "backquote",
            at: start,
        }
        .into())
    }

    fn give_up_in_backquotes(&mut self, start: usize) -> Result<(), Stop> {
        let end = self.text[self.at..]
            .find('`')
            .map_or(self.text.len(), |length| self.at + length);
        self.refuse_all_until(end, Context::Backquotes)?;
        Err(Stop::Untracked(start))
    }
}
