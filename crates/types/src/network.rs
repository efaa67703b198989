//! Network policy of a place.

use crate::command::InvalidInput;
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

impl std::str::FromStr for NetworkPolicy {
    type Err = InvalidInput;

    /// Reads `none`, `full`, or domains with commas between them.
    fn from_str(text: &str) -> Result<Self, InvalidInput> {
        match text.trim() {
            "none" => Ok(Self::None),
            "full" => Ok(Self::Full),
            list => {
                let domains: Vec<String> = list.split(',').map(|domain| domain.trim().to_owned()).collect();
                let policy = Self::Allow { domains };
                policy.check()?;
                Ok(policy)
            }
        }
    }
}

impl NetworkPolicy {
    /// Refuses what names no domain.
    pub fn check(&self) -> Result<(), InvalidInput> {
        let Self::Allow { domains } = self else {
            return Ok(());
        };
        match domains.iter().find(|domain| !is_domain(domain)) {
            None => Ok(()),
            Some(domain) => Err(InvalidInput::OutOfRange {
                what: format!("the network {domain:?}"),
                reason: "none, full, or domains like example.org, *.example.org or example.org:8443"
                    .to_owned(),
            }),
        }
    }
}

/// `host[:port]` or `*.suffix[:port]`. A name of one label is more likely a typing error for one of the words.
fn is_domain(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let host = host.strip_prefix("*.").unwrap_or(host);
    let label = |label: &str| {
        let inner = label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        (1..=63).contains(&label.len()) && inner && !label.starts_with('-') && !label.ends_with('-')
    };
    let labels = host.split('.').filter(|part| label(part)).count();
    let all = labels == host.split('.').count() && host.len() <= 253;
    all && (labels > 1 || text.starts_with("*."))
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_lists_are_read() {
        assert_eq!("none".parse(), Ok(NetworkPolicy::None));
        assert_eq!("full".parse(), Ok(NetworkPolicy::Full));
        let domains = ["example.org", "*.b.example", "127.0.0.1:80"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(
            "example.org, *.b.example,127.0.0.1:80".parse(),
            Ok(NetworkPolicy::Allow { domains })
        );
    }

    #[test]
    fn what_names_no_domain_is_refused() {
        for bad in [
            "",
            "None",
            "host",
            "a.b,,c.d",
            "a b.c",
            "-a.b",
            "a.b:0",
            "a.b:99999",
            "a.b:",
            "*",
            "https://a.b",
            "a..b",
        ] {
            assert!(bad.parse::<NetworkPolicy>().is_err(), "{bad}");
        }
    }
}
