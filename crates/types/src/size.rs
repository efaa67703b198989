//! Sizes and durations as people write them.

use std::time::Duration;

/// What was wrong with a written size or duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not a {kind}; write {example}")]
pub struct Unreadable {
    given: String,
    kind: &'static str,
    example: &'static str,
}

/// Reads a size: a whole number of bytes, or with `KiB`, `MiB` or `GiB` (`k`, `m`, `g` are the same, as
/// container tools have them). Overflow is an error.
pub fn parse_size(text: &str) -> Result<u64, Unreadable> {
    let bad = || Unreadable {
        given: text.to_owned(),
        kind: "size",
        example: "512MiB or 2GiB",
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().map_err(|_| bad())?;
    let unit = match &text[digits..] {
        "" | "B" => 1,
        "KiB" | "k" | "K" => 1 << 10,
        "MiB" | "m" | "M" => 1 << 20,
        "GiB" | "g" | "G" => 1 << 30,
        _ => return Err(bad()),
    };
    number.checked_mul(unit).ok_or_else(bad)
}

/// Reads a duration: a whole or decimal number with `ms`, `s`, `m`, `h` or `d`; without a unit it is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, Unreadable> {
    let bad = || Unreadable {
        given: text.to_owned(),
        kind: "duration",
        example: "500ms, 30s or 5m",
    };
    let split = text
        .bytes()
        .take_while(|b| b.is_ascii_digit() || *b == b'.')
        .count();
    let number: f64 = text[..split].parse().map_err(|_| bad())?;
    let unit = match &text[split..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return Err(bad()),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert_eq!(parse_size("2g"), Ok(2 << 30));
        assert_eq!(parse_size("17"), Ok(17));
        for bad in ["", "MiB", "1.5GiB", "-1", "1 GiB", "1GB", "99999999999GiB"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "-1s", "1w", "1.2.3s", "1e400s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
