//! From what the probe tells to what holds.

use serde::Serialize;
use stead_types::{Axes, Axis};

/// What came of one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It is possible.
    Reached,
    /// It is not.
    Refused,
    /// It could not be tried.
    Unknown,
}

/// One attempt in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// What it is about.
    pub axis: String,
    /// What was tried.
    pub name: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What was seen.
    pub evidence: String,
}

/// An attempt beside the same one on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// What was tried.
    pub attempt: String,
    /// What came of it in the place.
    pub outcome: Outcome,
    /// What was seen there.
    pub seen: String,
    /// What came of it on the host itself; only `reached` makes the other say something.
    pub control: Outcome,
}

/// What was observed of one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AxisVerdict {
    /// The axis.
    pub axis: Axis,
    /// Whether it holds; `None` when no attempt says anything.
    pub held: Option<bool>,
    /// On what that rests.
    pub evidence: Vec<Verdict>,
}

/// Reads the lines of the probe. They come out of a place: a line that is none is left out, and an attempt that is
/// not told is not refused.
pub fn parse(text: &str) -> Vec<Attempt> {
    let line = |line: &str| {
        let mut fields = line.splitn(4, '\t').map(str::to_owned);
        Some(Attempt {
            axis: fields.next()?,
            name: fields.next()?,
            outcome: match fields.next()?.as_str() {
                "reached" => Outcome::Reached,
                "refused" => Outcome::Refused,
                _ => Outcome::Unknown,
            },
            evidence: fields.next()?.chars().take(200).collect(),
        })
    };
    text.lines().filter_map(line).collect()
}

impl AxisVerdict {
    /// Compares the attempts on an axis with those on the host.
    pub fn of(axis: Axis, made: &[Attempt], control: &[Attempt]) -> Self {
        let name = axis.name();
        let of = |attempts: &[Attempt], attempt: &Attempt| {
            let same = |other: &&Attempt| other.axis == attempt.axis && other.name == attempt.name;
            attempts.iter().find(same).cloned()
        };
        // By the control: what a place leaves out has not been refused.
        let evidence: Vec<Verdict> = control
            .iter()
            .filter(|attempt| attempt.axis == name)
            .map(|attempt| {
                let told = of(made, attempt);
                Verdict {
                    attempt: attempt.name.clone(),
                    outcome: told.as_ref().map_or(Outcome::Unknown, |told| told.outcome),
                    seen: told.map(|told| told.evidence).unwrap_or_default(),
                    control: attempt.outcome,
                }
            })
            .collect();
        let valid = || {
            evidence
                .iter()
                .filter(|verdict| verdict.control == Outcome::Reached)
        };
        let held = match () {
            // What was reached is reached, whatever the control says.
            () if evidence.iter().any(|verdict| verdict.outcome == Outcome::Reached) => Some(false),
            () if valid().next().is_none() || valid().any(|verdict| verdict.outcome == Outcome::Unknown) => {
                None
            }
            () => Some(true),
        };
        Self { axis, held, evidence }
    }
}

/// All axes of an observation.
pub fn axes(verdicts: &[AxisVerdict]) -> Axes {
    let mut axes = Axes::UNKNOWN;
    for verdict in verdicts {
        axes.set(verdict.axis, verdict.held);
    }
    axes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(text: &str) -> Vec<Attempt> {
        let lines = text.split(' ').map(|word| {
            let (name, outcome) = word.split_once('=').unwrap();
            format!("network_restricted\t{name}\t{outcome}\tseen\n")
        });
        parse(&lines.collect::<String>())
    }

    fn held(made: &str, control: &str) -> Option<bool> {
        AxisVerdict::of(Axis::NetworkRestricted, &attempts(made), &attempts(control)).held
    }

    #[test]
    fn only_what_has_a_control_can_be_a_wall() {
        assert_eq!(held("a=refused b=refused", "a=reached b=reached"), Some(true));
        assert_eq!(held("a=refused b=refused", "a=reached b=refused"), Some(true));
        assert_eq!(held("a=refused b=refused", "a=refused b=refused"), None);
        assert_eq!(held("a=refused b=reached", "a=reached b=reached"), Some(false));
        assert_eq!(held("a=refused b=reached", "a=reached b=refused"), Some(false));
    }

    #[test]
    fn what_is_not_told_is_not_refused() {
        assert_eq!(held("a=refused b=unknown", "a=reached b=reached"), None);
        assert_eq!(held("a=refused", "a=reached b=reached"), None);
        assert_eq!(held("a=refused c=refused", "a=reached b=unknown"), Some(true));
        assert_eq!(parse("nonsense\n\na\tb\n\u{0}\n"), []);
    }
}
