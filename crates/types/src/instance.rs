//! A live place that a provider brought up.

use crate::axes::Axes;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// Names one instance. The providers of this build make a UUIDv7 with a prefix that no shell and no
/// engine needs to quote.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct InstanceId(String);

impl InstanceId {
    /// A new id, greater than those made before it on this host.
    pub fn generate() -> Self {
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// Takes an id that somebody else made. Whether it names anything is for the provider to say.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is an id that [`Self::generate`] can have made, so that it is safe as a file name.
    pub fn is_generated(&self) -> bool {
        uuid::Uuid::try_parse(&self.0).is_ok_and(|parsed| parsed.to_string() == self.0)
    }
}

impl std::fmt::Display for InstanceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where an instance is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceStatus {
    /// It is being brought up.
    Starting,
    /// Commands run.
    Running,
    /// It ended.
    Stopped,
    /// Its removal failed or its state is not known; `shutdown` tries again.
    Error,
}

/// A live place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComputeInstance {
    /// Its id.
    pub id: InstanceId,
    /// Name of the provider that brought it up.
    pub provider: String,
    /// Where it is in its life.
    pub status: InstanceStatus,
    /// When it was provisioned.
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// What was observed of its isolation.
    pub isolation: Axes,
    /// What else the provider says of it.
    #[serde(default)]
    pub metadata: serde_json::Map<String, serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_recognised_and_nothing_else_is() {
        let (a, b) = (InstanceId::generate(), InstanceId::generate());
        assert!(a.is_generated());
        assert!(a < b);
        for other in ["", "..", "a/b", "x", &a.as_str().to_uppercase()] {
            assert!(!InstanceId::new(other).is_generated(), "{other}");
        }
    }
}
