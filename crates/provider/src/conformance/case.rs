//! One case and what comes of it.

use super::subject::Subject;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What a case returns.
pub type Outcome = Result<Verdict, Failure>;

/// A case at work.
pub type CaseFuture<'s> = Pin<Box<dyn Future<Output = Outcome> + Send + 's>>;

/// How long a case may take before it counts as hanging, unless it says otherwise.
const LIMIT: Duration = Duration::from_secs(90);

/// One case of the kit.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What holds when it passes; unique in the kit.
    pub name: &'static str,
    /// The section of the contract it belongs to: `2` the provider's methods, `3` outcomes, `4` the tree,
    /// `9.1` to `9.16` what systems of this kind got wrong.
    pub section: &'static str,
    /// Whether it needs a shell in the place. Without one it is skipped.
    pub needs_shell: bool,
    /// After so long it hangs, which is a failure.
    pub limit: Duration,
    /// Whether it mostly waits, and judges only what is in a directory of its own: such neighbours run at once.
    pub waits: bool,
    /// Runs it.
    pub run: for<'s> fn(&'s Subject) -> CaseFuture<'s>,
}

impl Case {
    pub(super) const fn new(
        section: &'static str,
        name: &'static str,
        run: for<'s> fn(&'s Subject) -> CaseFuture<'s>,
    ) -> Self {
        Self {
            name,
            section,
            needs_shell: true,
            limit: LIMIT,
            waits: false,
            run,
        }
    }

    pub(super) const fn without_shell(mut self) -> Self {
        self.needs_shell = false;
        self
    }

    pub(super) const fn waits(mut self) -> Self {
        self.waits = true;
        self
    }

    pub(super) const fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }
}

/// A case that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Passed,
    /// It cannot be judged here, and why.
    Skipped(String),
}

impl Verdict {
    pub(super) fn skipped(reason: impl Into<String>) -> Outcome {
        Ok(Self::Skipped(reason.into()))
    }
}

/// Why a case failed, for a person to read.
///
/// It is no [`std::error::Error`] itself, so that `?` makes one of any error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// The same with what was being done in front.
    pub(super) fn during(self, what: &str) -> Self {
        Self(format!("{what}: {}", self.0))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(&format!(": {cause}"));
            source = cause.source();
        }
        Self(message)
    }
}

/// Returns a [`Failure`] unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err($crate::conformance::Failure::new(format!($($message)+)));
        }
    };
}
pub(super) use ensure;

/// A [`Case`] of an `async fn(&Subject) -> Outcome`.
macro_rules! case {
    ($section:expr, $name:expr, $function:path) => {
        $crate::conformance::Case::new($section, $name, |subject| Box::pin($function(subject)))
    };
}
pub(super) use case;
