//! Single values of the configuration: which are usable, and what holds when nobody says one.

use super::state_dir;
use crate::environment::Environment;
use serde_json::Value;
use std::path::Path;
use std::str::FromStr;
use stead::config::DEFAULT_TIMEOUT;
use stead::size::{parse_duration, parse_size};
use stead::{ComputeConfig, NetworkPolicy, Resources, Timeout};
use tracing_subscriber::filter::{EnvFilter, LevelFilter};

/// The filter of the log when nobody says one, or one that cannot be read.
pub const DEFAULT_LOG: &str = "warn";

/// The image, memory and processes of the providers that have such defaults; a test compares them.
const DEFAULT_IMAGE: &str = "python:3.11-slim";
const DEFAULT_MEMORY: &str = "2GiB";
const DEFAULT_PIDS: u64 = 512;

/// Why the value of a key cannot be used.
pub fn check(key: &str, text: &str) -> Result<(), String> {
    let checked = |config: ComputeConfig| config.check().map_err(|error| error.to_string());
    let limits = |resources: Resources| {
        checked(ComputeConfig {
            resources,
            ..ComputeConfig::new()
        })
    };
    match key {
        "provider" => provider(text),
        "image" | "state_dir" if text.trim().is_empty() => Err("it is empty".to_owned()),
        "network" => match NetworkPolicy::from_str(text) {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        "timeout" => match timeout(text)? {
            Timeout::After(after) => checked(ComputeConfig::new().timeout(after)),
            Timeout::Never => Ok(()),
        },
        "cpu" => limits(Resources {
            cpu: Some(text.parse().map_err(|_| "write a number, such as 0.5")?),
            ..Resources::default()
        }),
        "memory" => limits(Resources {
            memory: Some(parse_size(text).map_err(|error| error.to_string())?),
            ..Resources::default()
        }),
        "pids" => limits(Resources {
            pids: Some(text.parse().map_err(|_| "write a whole number")?),
            ..Resources::default()
        }),
        _ => Ok(()),
    }
}

fn provider(text: &str) -> Result<(), String> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(());
    }
    match stead::resolve(text) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err("write auto, or the name of a provider".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn timeout(text: &str) -> Result<Timeout, String> {
    match text {
        "never" => Ok(Timeout::Never),
        text => match parse_duration(text) {
            Ok(after) => Ok(Timeout::After(after)),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Why the filter of the log cannot be used. A word alone has to be a level or one of our own modules: the
/// filter takes any other for the name of a module and then hides all warnings, also for a mistyped level.
pub fn check_log(text: &str) -> Result<(), String> {
    EnvFilter::try_new(text).map_err(|error| error.to_string())?;
    // The fields of a span may have commas.
    if text.contains('[') {
        return Ok(());
    }
    let unclear = text.split(',').map(str::trim).find(|word| {
        let ours = word.starts_with("stead");
        !word.is_empty() && !word.contains('=') && !ours && word.parse::<LevelFilter>().is_err()
    });
    match unclear {
        Some(word) => Err(format!(
            "{word} is no level; write error, warn, info, debug, trace or off, or {word}=debug for a module"
        )),
        None => Ok(()),
    }
}

/// A checked value as JSON: numbers are numbers.
pub fn json(key: &str, text: &str) -> Value {
    let number = match key {
        "cpu" | "pids" => text.parse::<u64>().ok().map(Value::from).or_else(|| {
            let cpu = text.parse::<f64>().ok()?;
            Some(Value::from(cpu))
        }),
        _ => None,
    };
    number.unwrap_or_else(|| text.into())
}

/// What holds for `stead run` when nobody says a value. `null`: there is none, and [`absent`] says what that means.
pub fn default(key: &str, provider: &str, environment: &Environment, here: &Path) -> Value {
    let on_host = provider == "local";
    match key {
        "provider" => "auto".into(),
        // Elsewhere the programs are this host's.
        "image" if provider == "docker" => DEFAULT_IMAGE.into(),
        "network" if !on_host => NetworkPolicy::None.to_string().into(),
        "timeout" => format!("{}s", DEFAULT_TIMEOUT.as_secs()).into(),
        "memory" if !on_host => DEFAULT_MEMORY.into(),
        "pids" if !on_host => DEFAULT_PIDS.into(),
        "state_dir" => state_dir(environment, here).display().to_string().into(),
        "log" => DEFAULT_LOG.into(),
        _ => Value::Null,
    }
}

/// How a table tells that there is no value.
pub fn absent(key: &str) -> &'static str {
    match key {
        "cpu" | "memory" | "pids" => "no limit",
        "network" => "as this host",
        _ => "none",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_as_the_command_reads_them() {
        for (key, good) in [
            ("provider", "auto"),
            ("provider", "Local"),
            ("image", "x"),
            ("network", "full"),
            ("timeout", "never"),
            ("timeout", "5m"),
            ("cpu", "0.5"),
            ("memory", "512MiB"),
            ("pids", "5"),
        ] {
            assert_eq!(check(key, good), Ok(()), "{key} = {good}");
        }
        for (key, bad) in [
            ("provider", "dokcer"),
            ("provider", " "),
            ("image", ""),
            ("network", "None"),
            ("timeout", "bogus"),
            ("timeout", "0"),
            ("cpu", "NaN"),
            ("cpu", "two"),
            ("memory", "1"),
            ("memory", "2GB"),
            ("pids", "abc"),
            ("pids", "0"),
            ("pids", "1.5"),
        ] {
            assert!(check(key, bad).is_err(), "{key} = {bad}");
        }
    }

    #[test]
    fn a_word_alone_in_the_filter_of_the_log_is_a_level() {
        for good in [
            "warn",
            "INFO",
            "off",
            "stead_providers=debug",
            "info,hyper=off",
            "stead",
            "[a{b=1}]=info,warn",
        ] {
            assert_eq!(check_log(good), Ok(()), "{good}");
        }
        for bad in ["wran", "verbose", "a=b=c", "info,hyper", "stead=loud"] {
            assert!(check_log(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_providers() {
        let docker = include_str!("../../../../crates/providers/src/docker/plan.rs");
        let native = include_str!("../../../../crates/providers/src/hosted/groups.rs");
        for (source, line) in [
            (docker, format!("DEFAULT_IMAGE: &str = {DEFAULT_IMAGE:?};")),
            (docker, "DEFAULT_MEMORY: u64 = 2 << 30;".to_owned()),
            (docker, format!("DEFAULT_PIDS: u64 = {DEFAULT_PIDS};")),
            (native, "MEMORY: u64 = 2 << 30;".to_owned()),
            (native, format!("PIDS: u64 = {DEFAULT_PIDS};")),
        ] {
            assert!(source.contains(&line), "{line}");
        }
        assert_eq!(parse_size(DEFAULT_MEMORY), Ok(2 << 30));
    }
}
