//! Network policy of a place.

use serde::{Deserialize, Serialize};

/// What a place may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "mode", deny_unknown_fields)]
pub enum NetworkPolicy {
    /// Its own loopback only.
    None,
    /// `host[:port]` or `*.suffix[:port]`, through the egress proxy.
    Allow {
        /// The list.
        domains: Vec<String>,
    },
    /// Everything.
    Full,
}

impl std::fmt::Display for NetworkPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Full => f.write_str("full"),
            Self::Allow { domains } => f.write_str(&domains.join(",")),
        }
    }
}
