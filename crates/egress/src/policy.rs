//! Which hosts and ports a place may reach: the list as it was written becomes rules, and a pure function decides.

use crate::event::Reason;
use crate::host::{self, Host, HostError};
use std::collections::BTreeSet;
use std::fmt;
use stead_types::error::Code;

/// The most entries of a list (specification of sandboxes, section 1).
pub const MAX_DOMAINS: usize = 256;

/// The ports of an entry that names none: HTTPS and HTTP.
pub const DEFAULT_PORTS: [u16; 2] = [443, 80];

/// The longest entry that is looked at, in bytes. A name of 253 bytes may be longer before it is ASCII.
const MAX_ENTRY: usize = 1024;

/// What a place may reach, read from the list of its network policy.
///
/// An entry is `host[:port]` or `*.suffix[:port]`. The wildcard stands for one label or more, and not for none:
/// `*.example.org` is not `example.org`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    rules: BTreeSet<Rule>,
}

/// One entry with one port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    name: String,
    below: bool,
    port: u16,
}

/// Why a list is no policy. The whole list is refused.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// No entry, or more than [`MAX_DOMAINS`].
    #[error("the list has {count} domains and may have 1 to {MAX_DOMAINS}")]
    Count {
        /// How many it has.
        count: usize,
    },
    /// The name of an entry breaks a rule.
    #[error("the domain {entry:?} cannot be allowed")]
    Name {
        /// The entry, cut off where it is long.
        entry: String,
        /// Which rule.
        source: HostError,
    },
    /// The name of an entry has no form in ASCII.
    #[error("the domain {entry:?} is no international domain name")]
    International {
        /// The entry, cut off where it is long.
        entry: String,
    },
    /// A `*` that is not `*.` at the front.
    #[error("the domain {entry:?} has a * elsewhere than as its first label")]
    Wildcard {
        /// The entry, cut off where it is long.
        entry: String,
    },
    /// The port of an entry is no number from 1 to 65535.
    #[error("the port of the domain {entry:?} is not one of 1 to 65535")]
    Port {
        /// The entry, cut off where it is long.
        entry: String,
    },
}

impl Code for PolicyError {
    fn code(&self) -> &'static str {
        match self {
            Self::Count { .. }
            | Self::Name { .. }
            | Self::International { .. }
            | Self::Wildcard { .. }
            | Self::Port { .. } => "egress_domain_invalid",
        }
    }

    fn remedy(&self) -> String {
        "Write names such as example.org, *.example.org or example.org:8443; no addresses, no schemes, no paths."
            .to_owned()
    }
}

impl Policy {
    /// Reads the list. International names become ASCII, upper case becomes lower case, and what is there twice
    /// is there once.
    ///
    /// # Errors
    /// The first entry that breaks a rule; then nothing is allowed.
    pub fn parse<I>(domains: I) -> Result<Self, PolicyError>
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        let mut rules = BTreeSet::new();
        let mut count = 0;
        for domain in domains {
            count += 1;
            if count <= MAX_DOMAINS {
                rules.extend(read(domain.as_ref())?);
            }
        }
        match count {
            1..=MAX_DOMAINS => Ok(Self { rules }),
            count => Err(PolicyError::Count { count }),
        }
    }

    /// Whether a place may reach this name on this port. The name is taken as the place wrote it, and comes back
    /// as it is judged, resolved and compared from then on.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub fn decide(&self, host: &str, port: u16) -> Result<Host, Reason> {
        let host = Host::parse(host).map_err(Reason::from)?;
        let mut matching = self.rules.iter().filter(|rule| rule.matches(&host)).peekable();
        if matching.peek().is_none() {
            return Err(Reason::HostNotAllowed);
        }
        if matching.any(|rule| rule.port == port) {
            Ok(host)
        } else {
            Err(Reason::PortNotAllowed)
        }
    }
}

impl fmt::Display for Policy {
    /// The list in its normal form: sorted, lower case, each entry with its port.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, rule) in self.rules.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let star = if rule.below { "*." } else { "" };
            write!(f, "{comma}{star}{}:{}", rule.name, rule.port)?;
        }
        Ok(())
    }
}

impl Rule {
    fn matches(&self, host: &Host) -> bool {
        let name = host.as_str();
        if !self.below {
            return name == self.name;
        }
        // What is left has to end at the border of a label. It is more than the dot: no label is empty.
        name.strip_suffix(self.name.as_str())
            .is_some_and(|rest| rest.ends_with('.'))
    }
}

/// One entry, as one rule for each of its ports.
fn read(entry: &str) -> Result<Vec<Rule>, PolicyError> {
    let shown = || entry.chars().take(80).collect::<String>();
    let name = |source| PolicyError::Name {
        entry: shown(),
        source,
    };
    if entry.len() > MAX_ENTRY {
        return Err(name(HostError::TooLong));
    }
    if entry.contains(['[', ']']) || entry.matches(':').count() > 1 {
        return Err(name(HostError::IpLiteral));
    }
    let (pattern, ports) = match host::split_authority(entry) {
        (pattern, None) => (pattern, DEFAULT_PORTS.to_vec()),
        (pattern, Some(port)) => match host::port(port) {
            Some(port) => (pattern, vec![port]),
            None => return Err(PolicyError::Port { entry: shown() }),
        },
    };
    let (text, below) = match pattern.strip_prefix("*.") {
        Some(suffix) => (suffix, true),
        None => (pattern, false),
    };
    if text.contains('*') {
        return Err(PolicyError::Wildcard { entry: shown() });
    }
    if text.is_ascii() {
        // What is wrong with it can be said more exactly than by the rules of international names.
        host::labels(text).map_err(name)?;
    }
    let ascii = idna::domain_to_ascii_cow(text.as_bytes(), idna::AsciiDenyList::URL)
        .map_err(|_| PolicyError::International { entry: shown() })?;
    let ascii = host::labels(&ascii).map_err(name)?;
    if !below && !ascii.contains('.') {
        return Err(name(HostError::SingleLabel));
    }
    Ok(ports
        .into_iter()
        .map(|port| Rule {
            name: ascii.clone(),
            below,
            port,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn policy(domains: &[&str]) -> Policy {
        Policy::parse(domains).unwrap()
    }

    #[test]
    fn the_list_is_brought_into_its_normal_form() {
        let list = policy(&[
            "EXAMPLE.org",
            "example.org:443",
            "*.B.example:8443",
            "bücher.example:1",
        ]);
        assert_eq!(
            list.to_string(),
            "*.b.example:8443,example.org:80,example.org:443,xn--bcher-kva.example:1"
        );
    }

    #[test]
    fn hosts_and_ports_are_decided() {
        let list = policy(&["example.org", "*.wild.example", "*.test", "odd.example:8443"]);
        for (host, port) in [
            ("example.org", 443),
            ("Example.ORG", 80),
            ("a.wild.example", 443),
            ("a.b.c.wild.example", 80),
            ("any.test", 443),
            ("odd.example", 8443),
        ] {
            assert_eq!(
                list.decide(host, port).unwrap().as_str(),
                host.to_ascii_lowercase()
            );
        }
        for (host, port, reason) in [
            ("example.com", 443, Reason::HostNotAllowed),
            ("a.example.org", 443, Reason::HostNotAllowed),
            ("wild.example", 443, Reason::HostNotAllowed),
            ("evilwild.example", 443, Reason::HostNotAllowed),
            ("example.org.evil.example", 443, Reason::HostNotAllowed),
            ("example.org", 22, Reason::PortNotAllowed),
            ("odd.example", 443, Reason::PortNotAllowed),
            ("93.184.216.34", 443, Reason::IpLiteral),
            ("example.org.", 443, Reason::HostInvalid(HostError::TrailingDot)),
            ("x@example.org", 443, Reason::HostInvalid(HostError::Label)),
        ] {
            assert_eq!(list.decide(host, port), Err(reason), "{host}:{port}");
        }
    }

    #[test]
    fn what_is_no_entry_is_refused_whole() {
        let texts = [
            "",
            "*",
            "*.",
            "*.*.example",
            "a.*.example",
            "*a.example",
            "host",
            "127.0.0.1",
            "127.0.0.1:80",
            "*.0x7f",
            "[::1]:443",
            "::1",
            "https://example.org",
            "example.org/path",
            "user@example.org",
            "example.org:0",
            "example.org:65536",
            "example.org:",
            "example.org:+1",
            "a:b:c",
            "example.org.",
            "a..example",
            " example.org",
            "xn--a.example",
            "127。0。0。1",
            "１２７.0.0.1",
        ];
        let mut report = String::new();
        for text in texts {
            let error = Policy::parse(["example.org", text]).unwrap_err();
            let source = std::error::Error::source(&error).map(ToString::to_string);
            report += &format!("{error}: {}\n", source.unwrap_or_default());
        }
        insta::assert_snapshot!(report);
    }

    #[test]
    fn lists_have_one_to_256_entries() {
        assert!(matches!(
            Policy::parse([""; 0]),
            Err(PolicyError::Count { count: 0 })
        ));
        let many: Vec<String> = (0..257).map(|n| format!("h{n}.example")).collect();
        assert!(Policy::parse(&many[..256]).is_ok());
        assert!(matches!(
            Policy::parse(&many),
            Err(PolicyError::Count { count: 257 })
        ));
    }

    proptest! {
        #[test]
        fn no_entry_panics_and_the_normal_form_is_a_fixed_point(entry in "\\PC{0,60}|(\\*\\.)?[a-zA-Z0-9_.-]{1,30}(:[0-9]{0,6})?") {
            if let Ok(list) = Policy::parse([&entry]) {
                let normal = list.to_string();
                prop_assert!(normal.is_ascii());
                prop_assert_eq!(Policy::parse(normal.split(',')).unwrap(), list);
            }
        }

        #[test]
        fn a_name_is_allowed_exactly_when_it_is_the_entry_or_below_the_wildcard(
            entry in "[a-c]{1,2}(\\.[a-c]{1,2}){1,2}", host in "[a-c]{1,2}(\\.[a-c]{1,2}){1,4}", below: bool, port in 442..445u16,
        ) {
            let text = if below { format!("*.{entry}:443") } else { format!("{entry}:443") };
            let labels = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
            let (of_entry, of_host) = (labels(&entry), labels(&host));
            let named = if below {
                of_host.len() > of_entry.len() && of_host.ends_with(&of_entry)
            } else {
                of_host == of_entry
            };
            let expected = match (named, port == 443) {
                (true, true) => Ok(()),
                (true, false) => Err(Reason::PortNotAllowed),
                (false, _) => Err(Reason::HostNotAllowed),
            };
            prop_assert_eq!(policy(&[&text]).decide(&host, port).map(|_| ()), expected);
        }
    }
}
