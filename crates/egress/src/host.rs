//! Names of hosts, and how a request may write them.

use std::fmt;

/// The longest name of a host, in bytes (RFC 1035 section 2.3.4, without the root's empty label).
const MAX_NAME: usize = 253;
/// The longest label of a name, in bytes (RFC 1035 section 2.3.4).
const MAX_LABEL: usize = 63;

/// The name of a host: ASCII, lower case, at least two labels, no trailing dot, and nothing that any program
/// reads as an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host(String);

/// What is wrong with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HostError {
    /// There is none.
    #[error("the name is empty")]
    Empty,
    /// More than 253 bytes.
    #[error("the name has more than {MAX_NAME} bytes")]
    TooLong,
    /// An address, in whatever form: `[::1]`, `127.0.0.1`, `0x7f.1`, `2130706433`.
    #[error("this is an address and not a name")]
    IpLiteral,
    /// It ends with a dot.
    #[error("the name ends with a dot")]
    TrailingDot,
    /// Only one label, such as `localhost`.
    #[error("the name has only one label")]
    SingleLabel,
    /// Not ASCII: a request has to write it with `xn--`.
    #[error("the name is not ASCII")]
    NotAscii,
    /// A label is empty, has more than 63 bytes, begins or ends with `-`, or has another sign than letters,
    /// digits, `-` and `_`.
    #[error("a label of the name is malformed")]
    Label,
}

impl Host {
    /// Reads a name as it stands in a request. Upper case becomes lower case, since names of domains have no case.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let name = labels(text)?;
        if !name.contains('.') {
            return Err(HostError::SingleLabel);
        }
        Ok(Self(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rules of [`Host::parse`] but for the number of labels. The name in lower case.
pub(crate) fn labels(text: &str) -> Result<String, HostError> {
    if text.is_empty() {
        return Err(HostError::Empty);
    }
    if text.contains([':', '[', ']']) {
        return Err(HostError::IpLiteral);
    }
    if !text.is_ascii() {
        return Err(HostError::NotAscii);
    }
    let dotless = text.strip_suffix('.').unwrap_or(text);
    if ends_in_a_number(dotless) {
        return Err(HostError::IpLiteral);
    }
    if dotless.len() < text.len() {
        return Err(HostError::TrailingDot);
    }
    if text.len() > MAX_NAME {
        return Err(HostError::TooLong);
    }
    if text.split('.').all(is_label) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err(HostError::Label)
    }
}

/// Whether a program may read this as an IPv4 address: the rule of the WHATWG URL standard, which covers every
/// form of `inet_aton` and more, because no top-level domain is a number.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_label(label: &str) -> bool {
    let signs = label
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    (1..=MAX_LABEL).contains(&label.len()) && signs && !label.starts_with('-') && !label.ends_with('-')
}

/// A port as a request writes it: digits alone, 1 to 65535.
pub(crate) fn port(text: &str) -> Option<u16> {
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits
        .then(|| text.parse().ok())
        .flatten()
        .filter(|port| *port != 0)
}

/// `host[:port]` without judging the host: an address in brackets keeps them.
pub(crate) fn split_authority(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_read_and_lowered() {
        for (text, name) in [
            ("example.org", "example.org"),
            ("EXAMPLE.Org", "example.org"),
            ("a_b.xn--mnchen-3ya.example", "a_b.xn--mnchen-3ya.example"),
            ("0x7f.example", "0x7f.example"),
            ("1.2.3.4.example", "1.2.3.4.example"),
        ] {
            assert_eq!(Host::parse(text).unwrap().as_str(), name);
        }
    }

    #[test]
    fn addresses_are_seen_in_all_their_forms() {
        for text in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "017700000001",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "0x7f000001",
            "0X7F000001",
            "127.0.0.0x1",
            "127.0.0.0x",
            "127.0.0.1.",
            "999.999.999.999",
            "example.123",
            "[::1]",
            "::1",
            "::ffff:127.0.0.1",
            "fe80::1%eth0",
        ] {
            assert_eq!(Host::parse(text), Err(HostError::IpLiteral), "{text}");
        }
    }

    #[test]
    fn each_mistake_has_its_name() {
        let long = "a.".repeat(126) + "example";
        let label = "a".repeat(64) + ".example";
        for (text, error) in [
            ("", HostError::Empty),
            (long.as_str(), HostError::TooLong),
            ("example.org.", HostError::TrailingDot),
            ("localhost", HostError::SingleLabel),
            ("münchen.example", HostError::NotAscii),
            (label.as_str(), HostError::Label),
            ("a..example", HostError::Label),
            (".example.org", HostError::Label),
            ("example.org..", HostError::TrailingDot),
            ("-a.example", HostError::Label),
            ("a-.example", HostError::Label),
            ("user@example.org", HostError::Label),
            ("a b.example", HostError::Label),
            ("a%2eexample.org", HostError::Label),
            ("a\\b.example", HostError::Label),
            ("a\0.example", HostError::Label),
        ] {
            assert_eq!(Host::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn ports_are_digits_alone() {
        assert_eq!(port("443"), Some(443));
        assert_eq!(port("65535"), Some(65535));
        for bad in ["", "0", "65536", "+80", " 80", "8 0", "0x50", "000080"] {
            assert_eq!(port(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_is_no_address_and_stays_itself(text in "[ -~]{0,40}|([0-9a-fxX]{1,6}\\.){0,4}[0-9a-fxX]{1,10}") {
            if let Ok(host) = Host::parse(&text) {
                prop_assert!(host.as_str().parse::<std::net::IpAddr>().is_err());
                prop_assert_eq!(Host::parse(host.as_str()), Ok(host.clone()));
                prop_assert!(host.as_str().bytes().all(|byte| !byte.is_ascii_uppercase() && byte.is_ascii_graphic()));
            }
        }

        #[test]
        fn every_ipv4_address_is_refused_however_it_is_written(address: u32, form in 0..5u8) {
            let [a, b, c, d] = address.to_be_bytes();
            let text = match form {
                0 => format!("{a}.{b}.{c}.{d}"),
                1 => format!("{address}"),
                2 => format!("{address:#x}"),
                3 => format!("0{address:o}"),
                _ => format!("{a:#x}.0{b:o}.{}", u16::from_be_bytes([c, d])),
            };
            prop_assert_eq!(Host::parse(&text), Err(HostError::IpLiteral));
        }

        #[test]
        fn every_ipv6_address_is_refused(address: u128) {
            let address = std::net::Ipv6Addr::from(address);
            prop_assert_eq!(Host::parse(&address.to_string()), Err(HostError::IpLiteral));
            prop_assert_eq!(Host::parse(&format!("[{address}]")), Err(HostError::IpLiteral));
        }
    }
}
