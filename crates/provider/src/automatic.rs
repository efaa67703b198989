//! Choosing a provider when none is named: offers are looked at one after the other, and [`select`] decides on what
//! was seen.
//!
//! Looking costs something, so it ends with the first that holds all that is asked: those behind it could not change
//! the choice.

use crate::Provider;
use crate::selection::{Candidate, Choice, Isolation, Request, SelectError, ordered, select};
use crate::tool::{PROBE_LIMIT, probe_timed_out};
use async_trait::async_trait;
use std::collections::VecDeque;
use std::sync::Arc;
use stead_types::{Availability, Axes, ComputeConfig, ComputeInstance, ProvisionError};

/// Looks at a provider's isolation by trying to break out of one of its places.
#[async_trait]
pub trait Observer: Send + Sync {
    /// What holds in a place with this configuration; else why nobody could look.
    async fn observe(&self, provider: &dyn Provider, config: &ComputeConfig) -> Result<Axes, String>;
}

/// A provider that could be used, and the configuration that its instance would have.
#[derive(Clone)]
pub struct Offer {
    /// The provider.
    pub provider: Arc<dyn Provider>,
    /// What the instance is to be.
    pub config: ComputeConfig,
}

/// The offer that was chosen.
#[derive(Clone)]
pub struct Chosen {
    /// The offer.
    pub offer: Offer,
    /// Why this one.
    pub choice: Choice,
}

impl Chosen {
    /// Brings the instance up. Its metadata say under `selection` what was passed over and whether this one lacks
    /// an axis that was asked for.
    pub async fn provision(&self) -> Result<ComputeInstance, ProvisionError> {
        let mut instance = self.offer.provider.provision(self.offer.config.clone()).await?;
        let passed_over: serde_json::Map<String, serde_json::Value> = self
            .choice
            .passed_over
            .iter()
            .map(|(name, why)| (name.clone(), why.to_string().into()))
            .collect();
        let selection = serde_json::json!({"fallback": self.choice.fallback, "passed_over": passed_over});
        instance.metadata.insert("selection".to_owned(), selection);
        Ok(instance)
    }
}

/// Chooses among the offers. Each is asked whether it can honour its configuration and whether it can be used, and
/// is observed when nobody has looked before. The one that is chosen is asked again right before it is given; when
/// it cannot be used then, the next is looked at.
pub async fn choose(
    request: &Request,
    offers: Vec<Offer>,
    observer: &dyn Observer,
) -> Result<Chosen, SelectError> {
    let names: Vec<&str> = offers.iter().map(|offer| offer.provider.name()).collect();
    let mut unseen: VecDeque<Offer> = ordered(request, &names)
        .into_iter()
        .map(|at| offers[at].clone())
        .collect();
    let (mut seen, mut looked, mut failed) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let selected = select(request, &seen, &failed);
        let is_final = match &selected {
            Ok(choice) => !choice.fallback || request.isolation == Isolation::None || unseen.is_empty(),
            Err(SelectError::Contradiction) => true,
            Err(SelectError::NoneEligible { .. }) => unseen.is_empty(),
        };
        if is_final {
            let choice = selected?;
            let offer: &Offer = position(&seen, &choice.name)
                .and_then(|at| looked.get(at))
                .ok_or_else(|| SelectError::NoneEligible {
                    passed_over: choice.passed_over.clone(),
                })?;
            match probe(&*offer.provider).await {
                Availability::Available => {
                    record(&choice);
                    return Ok(Chosen {
                        offer: offer.clone(),
                        choice,
                    });
                }
                Availability::Unavailable(missing) => failed.push((choice.name, missing.reason)),
            }
        } else if let Some(offer) = unseen.pop_front() {
            seen.push(look(request, &offer, observer).await);
            looked.push(offer);
        }
    }
}

fn position(seen: &[Candidate], name: &str) -> Option<usize> {
    seen.iter().position(|candidate| candidate.name == name)
}

/// What can be seen of an offer. What already excludes it ends the looking.
async fn look(request: &Request, offer: &Offer, observer: &dyn Observer) -> Candidate {
    let provider = &*offer.provider;
    let mut candidate = Candidate {
        name: provider.name().to_owned(),
        refuses: provider.check(&offer.config).err().map(|error| error.to_string()),
        missing: None,
        axes: Axes::UNKNOWN,
    };
    if candidate.refuses.is_some() {
        return candidate;
    }
    if let Availability::Unavailable(missing) = probe(provider).await {
        candidate.missing = Some(missing);
        return candidate;
    }
    candidate.axes = provider.observed_axes();
    let unknown = |axis: &stead_types::Axis| candidate.axes.get(*axis).is_none();
    if request.isolation != Isolation::None && request.axes.iter().any(unknown) {
        match observer.observe(provider, &offer.config).await {
            Ok(axes) => candidate.axes = axes,
            Err(reason) => {
                tracing::warn!(
                    provider = candidate.name,
                    reason,
                    "its isolation could not be observed"
                );
            }
        }
    }
    candidate
}

async fn probe(provider: &dyn Provider) -> Availability {
    tokio::time::timeout(PROBE_LIMIT, provider.probe())
        .await
        .unwrap_or_else(|_| probe_timed_out())
}

/// The event of a choice.
fn record(choice: &Choice) {
    for (name, why) in &choice.passed_over {
        tracing::debug!(provider = name, reason = %why, "passed over");
    }
    if choice.fallback {
        tracing::warn!(
            provider = choice.name,
            "chosen as a fallback: it is not observed to hold all that was asked for"
        );
    } else {
        tracing::debug!(provider = choice.name, "chosen");
    }
}

#[cfg(test)]
#[path = "automatic_tests.rs"]
mod tests;
