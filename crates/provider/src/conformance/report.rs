//! What came of a run.

use super::case::{Case, Outcome, Verdict};
use std::time::Duration;

/// One case of one repetition.
#[derive(Debug, Clone)]
pub struct Line {
    /// The case's section.
    pub section: &'static str,
    /// The case's name.
    pub name: &'static str,
    /// Which repetition, from 1.
    pub repetition: usize,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took. For people; nothing is judged by it.
    pub took: Duration,
}

impl Line {
    pub(super) fn new(case: &Case, repetition: usize, outcome: Outcome, took: Duration) -> Self {
        Self {
            section: case.section,
            name: case.name,
            repetition,
            outcome,
            took,
        }
    }
}

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "test {} {}", self.section, self.name)?;
        if self.repetition > 1 {
            write!(f, " (time {})", self.repetition)?;
        }
        match &self.outcome {
            Ok(Verdict::Passed) => write!(f, " ... ok ({:.1} s)", self.took.as_secs_f64()),
            Ok(Verdict::Skipped(reason)) => write!(f, " ... ignored, {reason}"),
            Err(failure) => write!(f, " ... FAILED ({:.1} s): {failure}", self.took.as_secs_f64()),
        }
    }
}

/// What came of all cases. Its `Display` has one line for each.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// One line for each case of each repetition.
    pub lines: Vec<Line>,
}

impl Report {
    /// The cases that failed.
    pub fn failed(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.outcome.is_err())
    }

    /// The cases that could not be judged.
    pub fn skipped(&self) -> impl Iterator<Item = &Line> {
        self.lines
            .iter()
            .filter(|line| matches!(line.outcome, Ok(Verdict::Skipped(_))))
    }

    /// The cases that hold.
    pub fn passed(&self) -> impl Iterator<Item = &Line> {
        self.lines
            .iter()
            .filter(|line| line.outcome == Ok(Verdict::Passed))
    }

    /// Whether at least one case ran and none failed. A filter that matches nothing is no success.
    pub fn is_success(&self) -> bool {
        !self.lines.is_empty() && self.failed().next().is_none()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        let verdict = if self.is_success() { "ok" } else { "FAILED" };
        let (passed, failed) = (self.passed().count(), self.failed().count());
        write!(
            f,
            "conformance result: {verdict}. {passed} passed; {failed} failed; "
        )?;
        writeln!(f, "{} ignored", self.skipped().count())?;
        self.failed().try_for_each(|line| writeln!(f, "    {line}"))
    }
}
