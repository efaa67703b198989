//! Here-documents: announced on one line, written on the next ones.

use super::scan::{Scan, Stop};
use super::template::{Context, TemplateError};

/// An announced here-document.
pub(super) struct HereDoc {
    /// Where its `<<` is.
    pub(super) at: usize,
    delimiter: String,
    /// `<<-`: leading tabs do not count.
    strip_tabs: bool,
    /// A quoted delimiter: the text is taken as it is.
    verbatim: bool,
}

impl Scan<'_> {
    /// Reads `<<`, an optional `-` and the delimiter.
    pub(super) fn announce(&mut self, nested: bool) -> Result<HereDoc, Stop> {
        let at = self.at;
        if nested {
            return Err(Stop::Untracked(at));
        }
        self.at += 2;
        let strip_tabs = self.byte(0) == Some(b'-');
        self.at += usize::from(strip_tabs);
        while matches!(self.byte(0), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        if self.looking_at("{{") {
            return Err(self.refuse(Context::HereDocument).into());
        }
        let quote = self.byte(0).filter(|c| matches!(c, b'\'' | b'"' | b'\\'));
        let Some(delimiter) = self.delimiter(quote) else {
            return Err(self.back_to(at));
        };
        Ok(HereDoc {
            at,
            delimiter,
            strip_tabs,
            verbatim: quote.is_some(),
        })
    }

    /// The delimiter, when it is a plain word or a plain word in quotes.
    fn delimiter(&mut self, quote: Option<u8>) -> Option<String> {
        self.at += usize::from(quote.is_some());
        let plain = |c: &u8| c.is_ascii_alphanumeric() || b"_-.".contains(c);
        let length = self.text.as_bytes()[self.at..]
            .iter()
            .take_while(|c| plain(c))
            .count();
        let delimiter = self.text[self.at..self.at + length].to_owned();
        self.at += length;
        if let Some(close @ (b'\'' | b'"')) = quote {
            if self.byte(0) != Some(close) {
                return None;
            }
            self.at += 1;
        }
        let ends = self.byte(0).is_none_or(|c| b" \t\n;&|<>)".contains(&c));
        (!delimiter.is_empty() && ends).then_some(delimiter)
    }

    fn back_to(&mut self, at: usize) -> Stop {
        self.at = at;
        Stop::Untracked(at)
    }

    /// Reads the text of all that the line before announced.
    pub(super) fn bodies(&mut self, pending: Vec<HereDoc>) -> Result<(), Stop> {
        pending.iter().try_for_each(|doc| self.body(doc))
    }

    fn body(&mut self, doc: &HereDoc) -> Result<(), Stop> {
        while self.at < self.text.len() {
            let start = self.at;
            let end = self.text[start..]
                .find('\n')
                .map_or(self.text.len(), |length| start + length);
            let line = &self.text[start..end];
            let shown = if doc.strip_tabs {
                line.trim_start_matches('\t')
            } else {
                line
            };
            if shown == doc.delimiter {
                self.at = end + usize::from(end < self.text.len());
                return Ok(());
            }
            self.refuse_all_until(end, Context::HereDocument)?;
            // Some shells look for the delimiter in an expansion that spans lines, some do not.
            if !doc.verbatim && (line.contains(['`', '\\']) || line.contains("$(") || line.contains("${")) {
                self.at = start;
                return Err(Stop::Untracked(start));
            }
            self.at = end + usize::from(end < self.text.len());
        }
        Err(TemplateError::Unclosed {
            what: "here-document",
            at: doc.at,
        }
        .into())
    }
}
