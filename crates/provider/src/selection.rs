//! Which provider is taken when none is named: a pure function of what was asked and what was seen.
//!
//! A candidate is judged by what was observed of it on this machine. Its name, what it supports and what it says of
//! itself are no evidence. `local` is no candidate but by explicit consent, and then the last.

use std::collections::BTreeSet;
use stead_types::error::Code;
use stead_types::{Axes, Axis, Missing, NetworkPolicy};

/// The one provider that runs on the host itself.
const LOCAL: &str = "local";

/// The built-in ones that isolate, the cheapest to start first.
pub const BUILT_IN_ORDER: [&str; 3] = ["native", "gvisor", "docker"];

/// How much the isolation that is asked for matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Every asked axis must have been observed to hold.
    #[default]
    Required,
    /// First what holds on every asked axis, then the first that can be used, which is recorded.
    Preferred,
    /// The order alone decides.
    None,
}

/// What is asked of a choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How much the axes matter.
    pub isolation: Isolation,
    /// The axes.
    pub axes: BTreeSet<Axis>,
    /// Names in the order in which they are to be looked at; the built-in order comes after them.
    pub order: Vec<String>,
    /// Whether this host without isolation may be taken when nothing else can be. Not with
    /// [`Isolation::Required`].
    pub unsafe_fallback: bool,
}

impl Request {
    /// The usual one for a network policy: all axes, but for the network's when the network is to be reached.
    pub fn automatic(network: Option<&NetworkPolicy>) -> Self {
        let full = matches!(network, Some(NetworkPolicy::Full));
        let axes = Axis::ALL
            .into_iter()
            .filter(|axis| !(full && *axis == Axis::NetworkRestricted));
        Self {
            isolation: Isolation::Required,
            axes: axes.collect(),
            order: Vec::new(),
            unsafe_fallback: false,
        }
    }
}

/// What was seen of a provider.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Why it cannot honour what is asked of the place, if so.
    pub refuses: Option<String>,
    /// Why it cannot be used, if so.
    pub missing: Option<Missing>,
    /// What was observed of its places.
    pub axes: Axes,
}

/// Why a candidate was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassedOver {
    /// It cannot be used here.
    Unavailable {
        /// Stable code.
        code: &'static str,
        /// Why.
        reason: String,
        /// What to do.
        remedy: String,
    },
    /// These asked axes were not observed to hold.
    Isolation(Vec<Axis>),
    /// It cannot honour what is asked of the place.
    Refuses(String),
    /// It was taken and then failed.
    Failed(String),
}

impl std::fmt::Display for PassedOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unavailable { code, reason, remedy } => {
                write!(f, "{}. {remedy} [{code}]", reason.trim_end_matches('.'))
            }
            Self::Isolation(axes) => {
                let names: Vec<&str> = axes.iter().map(|axis| axis.name()).collect();
                write!(f, "not observed to hold: {}", names.join(", "))
            }
            Self::Refuses(reason) | Self::Failed(reason) => f.write_str(reason),
        }
    }
}

/// What was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The provider.
    pub name: String,
    /// Whether it lacks an asked axis: to be recorded and told.
    pub fallback: bool,
    /// Who was looked at before, and why not.
    pub passed_over: Vec<(String, PassedOver)>,
}

/// Why nothing was chosen. Nothing was run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// No candidate is eligible.
    #[error("no provider can be used that isolates as asked, and nothing was run on this host: {}", list(.passed_over))]
    NoneEligible {
        /// Each candidate and why it was passed over.
        passed_over: Vec<(String, PassedOver)>,
    },
    /// A request that contradicts itself.
    #[error("isolation is required and unsafe_fallback is set: one of the two is not meant")]
    Contradiction,
}

fn list(passed_over: &[(String, PassedOver)]) -> String {
    let each = passed_over.iter().map(|(name, why)| format!("{name}: {why}"));
    let each = each.collect::<Vec<_>>().join("; ");
    if each.is_empty() {
        "there is no candidate".to_owned()
    } else {
        each
    }
}

impl Code for SelectError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoneEligible { .. } => "no_isolating_provider",
            Self::Contradiction => "selection_contradiction",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::NoneEligible { .. } => {
                "Make one available, or name the provider `local` to run on this host without isolation."
            }
            Self::Contradiction => "Leave out unsafe_fallback, or make the isolation preferred.",
        }
        .to_owned()
    }
}

/// Chooses among the candidates. `failed` are those that were chosen before and then could not be used.
pub fn select(
    request: &Request,
    candidates: &[Candidate],
    failed: &[(String, String)],
) -> Result<Choice, SelectError> {
    if request.isolation == Isolation::Required && request.unsafe_fallback {
        return Err(SelectError::Contradiction);
    }
    let names: Vec<&str> = candidates
        .iter()
        .map(|candidate| candidate.name.as_str())
        .collect();
    let judged: Vec<(&Candidate, Option<PassedOver>)> = ordered(request, &names)
        .into_iter()
        .map(|at| (&candidates[at], judge(request, &candidates[at], failed)))
        .collect();
    let usable = |why: &Option<PassedOver>| matches!(why, None | Some(PassedOver::Isolation(_)));
    let full = judged.iter().position(|(_, why)| why.is_none());
    let any = judged.iter().position(|(_, why)| usable(why));
    let chosen = match request.isolation {
        Isolation::Required => full,
        Isolation::Preferred => full.or(any),
        Isolation::None => any,
    };
    // Everybody who was not taken is told, also those behind the one who was: they were judged too.
    let passed = |taken: Option<usize>| {
        let others = judged.iter().enumerate().filter(|(at, _)| Some(*at) != taken);
        let told = others.filter_map(|(_, (candidate, why))| Some((candidate.name.clone(), why.clone()?)));
        told.collect::<Vec<_>>()
    };
    match chosen {
        Some(at) => Ok(Choice {
            name: judged[at].0.name.clone(),
            fallback: judged[at].1.is_some(),
            passed_over: passed(Some(at)),
        }),
        None => Err(SelectError::NoneEligible {
            passed_over: passed(None),
        }),
    }
}

/// The places in `names` of those that are candidates, in the order in which they are looked at: `local` at most as
/// the last and by consent.
pub fn ordered(request: &Request, names: &[&str]) -> Vec<usize> {
    let rank = |name: &str| {
        let given = request.order.iter().position(|other| other == name);
        let built_in = BUILT_IN_ORDER.iter().position(|other| *other == name);
        match (given, built_in) {
            (Some(at), _) => (0, at),
            (None, Some(at)) => (1, at),
            (None, None) => (2, 0),
        }
    };
    let all = || 0..names.len();
    let mut ordered: Vec<usize> = all().filter(|at| names[*at] != LOCAL).collect();
    ordered.sort_by_key(|at| rank(names[*at]));
    if request.unsafe_fallback && request.isolation != Isolation::Required {
        ordered.extend(all().filter(|at| names[*at] == LOCAL));
    }
    ordered
}

fn judge(request: &Request, candidate: &Candidate, failed: &[(String, String)]) -> Option<PassedOver> {
    if let Some((_, reason)) = failed.iter().find(|(name, _)| *name == candidate.name) {
        return Some(PassedOver::Failed(reason.clone()));
    }
    if let Some(reason) = &candidate.refuses {
        return Some(PassedOver::Refuses(reason.clone()));
    }
    if let Some(missing) = &candidate.missing {
        return Some(PassedOver::Unavailable {
            code: missing.code,
            reason: missing.reason.clone(),
            remedy: missing.remedy.clone(),
        });
    }
    let lacking: Vec<Axis> = request
        .axes
        .iter()
        .copied()
        .filter(|axis| !candidate.axes.holds(*axis))
        .collect();
    (!lacking.is_empty()).then_some(PassedOver::Isolation(lacking))
}

#[cfg(test)]
#[path = "selection_tests.rs"]
mod tests;
