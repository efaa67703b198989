//! From the options of `stead run` to a provider and a configuration.

use crate::args::Run;
use crate::config::Config;
use crate::failure::Failure;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use stead::size::{parse_duration, parse_size};
use stead::{
    Availability, CommandLine, ComputeConfig, EnvMap, Mount, NetworkPolicy, Provider, Resources, Stdin,
    Timeout,
};

/// What `auto` tries, in this order. This host is never among them.
const AUTO: [&str; 1] = ["docker"];

fn usage(error: impl std::fmt::Display, remedy: &str) -> Failure {
    Failure::usage(error.to_string(), remedy)
}

/// Chooses the provider. `auto` fails closed: nothing that was asked to be isolated runs on this host.
pub async fn provider(run: &Run, config: &Config) -> Result<Arc<dyn Provider>, Failure> {
    let name = run
        .provider
        .as_deref()
        .or(config.get("provider"))
        .unwrap_or("auto");
    if !name.trim().eq_ignore_ascii_case("auto") {
        return match stead::resolve(name)? {
            Some(provider) => Ok(provider),
            None => Err(Failure::usage(
                "no provider is named",
                "Give --provider a name; `stead providers` lists them.",
            )),
        };
    }
    let mut reasons = Vec::new();
    for candidate in AUTO {
        let Ok(Some(provider)) = stead::resolve(candidate) else {
            continue;
        };
        match provider.probe().await {
            Availability::Available => return Ok(provider),
            Availability::Unavailable(missing) => {
                reasons.push(format!(
                    "{candidate}: {}. {}",
                    missing.reason.trim_end_matches('.'),
                    missing.remedy
                ));
            }
        }
    }
    let message = format!(
        "no provider that isolates can be used here, and nothing was run on this host: {}",
        reasons.join("; ")
    );
    let remedy = "Make one available, or say --provider local to run on this host without isolation.";
    Err(Failure::new("no_isolating_provider", message, remedy))
}

/// The command.
pub fn command(run: &Run) -> CommandLine {
    match &run.shell {
        Some(text) => CommandLine::Shell(text.clone()),
        None => CommandLine::Argv(run.argv.clone()),
    }
}

/// The configuration of the instance, and that of the command.
pub fn configuration(
    run: &Run,
    config: &Config,
    provider: &dyn Provider,
) -> Result<(ComputeConfig, ComputeConfig), Failure> {
    // Defaults of files and environment are for places that can honour them; what a flag says is passed
    // on, and a provider that cannot honour it refuses.
    let on_host = provider.inherits_host_env();
    let default = |key: &str| config.get(key).filter(|_| !on_host);
    let mut instance = ComputeConfig::new();
    instance.image = run.image.clone().or_else(|| default("image").map(str::to_owned));
    instance.workdir = run.workdir.clone();
    instance.user = run.user.clone();
    instance.resources = resources(run, &default)?;
    instance.network = network(run.network.as_deref().or(default("network")), on_host);
    instance.mounts = run
        .mounts
        .iter()
        .map(|mount| parse_mount(mount))
        .collect::<Result<_, _>>()?;
    for option in &run.options {
        let (name, value) = option
            .split_once('=')
            .ok_or_else(|| usage(format!("{option:?} is no NAME=JSON"), "Write --option NAME=JSON."))?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        instance.options.insert(name.to_owned(), value);
    }
    let mut command = ComputeConfig::new();
    command.env = env(&run.env)?;
    command.timeout = timeout(run.timeout.as_deref().or(config.get("timeout")))?;
    command.tty = run.tty.then(crate::terminal::size);
    command.stdin = (run.stdin || run.tty).then_some(Stdin::Stream);
    Ok((instance, command))
}

fn resources<'a>(run: &Run, default: &impl Fn(&str) -> Option<&'a str>) -> Result<Resources, Failure> {
    let number = |key: &str| format!("Write {key} as a number.");
    let cpu = match default("cpu") {
        Some(text) if run.cpu.is_none() => Some(text.parse().map_err(|error| usage(error, &number("cpu")))?),
        _ => run.cpu,
    };
    let pids = match default("pids") {
        Some(text) if run.pids.is_none() => {
            Some(text.parse().map_err(|error| usage(error, &number("pids")))?)
        }
        _ => run.pids,
    };
    let memory = run
        .memory
        .as_deref()
        .or(default("memory"))
        .map(parse_size)
        .transpose();
    let memory = memory.map_err(|error| usage(error, "Correct --memory."))?;
    Ok(Resources {
        cpu,
        memory,
        pids,
        disk: None,
    })
}

/// Without a word a place has no network; this host has the one it has.
fn network(given: Option<&str>, on_host: bool) -> Option<NetworkPolicy> {
    match given {
        None if on_host => None,
        None | Some("none") => Some(NetworkPolicy::None),
        Some("full") => Some(NetworkPolicy::Full),
        Some(list) => Some(NetworkPolicy::Allow {
            domains: list.split(',').map(|domain| domain.trim().to_owned()).collect(),
        }),
    }
}

fn timeout(given: Option<&str>) -> Result<Option<Timeout>, Failure> {
    match given {
        None => Ok(None),
        Some("never") => Ok(Some(Timeout::Never)),
        Some(text) => match parse_duration(text) {
            Ok(after) => Ok(Some(Timeout::After(after))),
            Err(error) => Err(usage(error, "Correct --timeout, or say never.")),
        },
    }
}

/// `NAME=VALUE`, or `NAME` for the value of this environment; one that is not set there is left out.
fn env(given: &[OsString]) -> Result<EnvMap, Failure> {
    let mut env = EnvMap::default();
    for entry in given {
        let bytes = entry.as_bytes();
        match bytes.iter().position(|byte| *byte == b'=') {
            Some(at) => env.set(
                OsString::from_vec(bytes[..at].to_vec()),
                OsString::from_vec(bytes[at + 1..].to_vec()),
            ),
            None => {
                if let Some(value) = std::env::var_os(entry) {
                    env.set(entry.clone(), value);
                }
            }
        }
    }
    env.check()
        .map_err(|error| usage(error, "Write -e NAME=VALUE."))?;
    Ok(env)
}

fn parse_mount(given: &str) -> Result<Mount, Failure> {
    let bad = || {
        usage(
            format!("{given:?} is no HOST[:PLACE[:ro]]"),
            "Write --mount HOST:PLACE or HOST:PLACE:ro, with an absolute PLACE.",
        )
    };
    let mut parts = given.split(':');
    let host = parts.next().filter(|host| !host.is_empty()).ok_or_else(bad)?;
    let host = std::path::absolute(host).map_err(|_| bad())?;
    let (place, mode) = (parts.next(), parts.next());
    let read_only = match mode {
        None | Some("rw") => false,
        Some("ro") => true,
        Some(_) => return Err(bad()),
    };
    let place = place.map_or_else(|| host.clone(), PathBuf::from);
    if parts.next().is_some() || !place.is_absolute() {
        return Err(bad());
    }
    Ok(Mount {
        host,
        place,
        read_only,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts() {
        let mount = |text| {
            parse_mount(text).ok().map(|m| {
                (
                    m.host.display().to_string(),
                    m.place.display().to_string(),
                    m.read_only,
                )
            })
        };
        assert_eq!(mount("/a"), Some(("/a".into(), "/a".into(), false)));
        assert_eq!(mount("/a:/b:ro"), Some(("/a".into(), "/b".into(), true)));
        for bad in ["", ":/b", "/a:b", "/a:/b:x", "/a:/b:ro:z"] {
            assert_eq!(mount(bad), None, "{bad}");
        }
    }

    #[test]
    fn no_word_about_the_network_is_none_where_that_can_be() {
        assert_eq!(network(None, false), Some(NetworkPolicy::None));
        assert_eq!(network(None, true), None);
        assert_eq!(network(Some("none"), true), Some(NetworkPolicy::None));
    }
}
