//! From the options of `stead run` to a provider and a configuration.

use crate::args::Run;
use crate::config::Config;
use crate::failure::Failure;
use serde_json::Value;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;
use stead::automatic::{Chosen, Offer};
use stead::selection::{Choice, Request};
use stead::size::{parse_duration, parse_size};
use stead::{CommandLine, ComputeConfig, EnvMap, Mount, NetworkPolicy, Provider, Resources, Stdin, Timeout};

fn usage(error: impl std::fmt::Display, remedy: &str) -> Failure {
    Failure::usage(error.to_string(), remedy)
}

/// What a run takes place in: a provider and the configurations of the instance and of the command.
pub struct Placed {
    /// The provider, with the configuration of the instance.
    pub chosen: Chosen,
    /// The configuration of the command.
    pub command: ComputeConfig,
}

/// Chooses the provider. `auto` fails closed: nothing that was asked to be isolated runs on this host.
pub async fn place(run: &Run, config: &Config) -> Result<Placed, Failure> {
    let name = run
        .provider
        .as_deref()
        .or(config.get("provider"))
        .unwrap_or("auto");
    if name.trim().eq_ignore_ascii_case("auto") {
        return automatic(run, config).await;
    }
    let Some(provider) = stead::resolve(name)? else {
        return Err(Failure::usage(
            "no provider is named",
            "Give --provider a name; `stead providers` lists them.",
        ));
    };
    let (offer, command) = offer(run, config, provider, true)?;
    let choice = Choice {
        name: offer.provider.name().to_owned(),
        fallback: false,
        passed_over: Vec::new(),
    };
    Ok(Placed {
        chosen: Chosen { offer, choice },
        command,
    })
}

/// The cheapest that is seen to isolate. This host is never among the offers.
async fn automatic(run: &Run, config: &Config) -> Result<Placed, Failure> {
    let (mut offers, mut commands) = (Vec::new(), Vec::new());
    for name in stead::registry().list() {
        if name == stead::LOCAL {
            continue;
        }
        if let Some(provider) = stead::resolve(&name)? {
            let (offer, command) = offer(run, config, provider, false)?;
            offers.push(offer);
            commands.push((name, command));
        }
    }
    let request = request(offers.first().map(|offer| &offer.config));
    let chosen = stead::automatic::choose(&request, offers, &stead::doctor::OnDemand::default()).await?;
    let command = commands.into_iter().find(|(name, _)| *name == chosen.choice.name);
    Ok(Placed {
        command: command.map(|(_, command)| command).unwrap_or_default(),
        chosen,
    })
}

fn request(config: Option<&ComputeConfig>) -> Request {
    let network = config.and_then(|config| config.network.as_ref());
    // An engine's own word for a network is one that is to be reached.
    let mode = config.and_then(|config| config.options.get("network_mode"));
    match mode {
        Some(mode) if mode != "none" => Request::automatic(Some(&NetworkPolicy::Full)),
        _ => Request::automatic(network),
    }
}

fn offer(
    run: &Run,
    config: &Config,
    provider: Arc<dyn Provider>,
    named: bool,
) -> Result<(Offer, ComputeConfig), Failure> {
    let (instance, command) = configuration(run, config, &*provider, named)?;
    let offer = Offer {
        provider: with_progress(provider),
        config: instance,
    };
    Ok((offer, command))
}

/// The same provider, which tells of a pull where somebody watches.
fn with_progress(provider: Arc<dyn Provider>) -> Arc<dyn Provider> {
    if provider.name() != "docker" || !crate::terminal::is_watched() {
        return provider;
    }
    let seen = std::sync::Mutex::new(std::collections::HashMap::new());
    Arc::new(stead::DockerProvider::new().progress(Arc::new(move |progress| {
        let mut seen = seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // One line for each step of each layer; the counts in between would scroll everything away.
        let last = seen.insert(progress.layer.clone(), progress.status.clone());
        if last.as_ref() != Some(&progress.status) {
            eprintln!("{}: {}", progress.layer, progress.status);
        }
    })))
}

/// The command, checked: what no place can execute needs no place.
pub fn command(run: &Run) -> Result<CommandLine, Failure> {
    let command = match &run.shell {
        Some(text) => CommandLine::Shell(text.clone()),
        None => CommandLine::Argv(run.argv.clone()),
    };
    match command.check() {
        Ok(()) => Ok(command),
        Err(error) => Err(usage(error, "Correct the command; nothing was started.")),
    }
}

/// The configuration of the instance, and that of the command. `named`: the provider was asked for by its name.
fn configuration(
    run: &Run,
    config: &Config,
    provider: &dyn Provider,
    named: bool,
) -> Result<(ComputeConfig, ComputeConfig), Failure> {
    // Defaults of files and environment are for places that can honour them; what a flag says is passed
    // on, and a provider that cannot honour it refuses.
    let on_host = provider.inherits_host_env();
    let default = |key: &str| config.get(key).filter(|_| !on_host);
    let mut instance = ComputeConfig::new();
    // `gvisor` has no images: one that a file names for every project is not meant for who asks for it by name.
    let has_images = !(named && provider.name() == "gvisor");
    let default_image = default("image").filter(|_| has_images);
    instance.image = run.image.clone().or_else(|| default_image.map(str::to_owned));
    instance.workdir = match &run.workdir {
        // On this host a relative path means what it means here.
        Some(workdir) if on_host => {
            let remedy = "Give --workdir a directory of this host.";
            Some(std::path::absolute(workdir).map_err(|error| usage(error, remedy))?)
        }
        given => given.clone(),
    };
    instance.user = run.user.clone();
    instance.resources = resources(run, &default)?;
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
    // An engine's own word for the network stands for ours, unless both are said.
    let decided = on_host || instance.options.contains_key("network_mode");
    instance.network = network(run.network.as_deref().or(default("network")), decided)?;
    let mut command = ComputeConfig::new();
    command.env = env(&run.env)?;
    command.timeout = timeout(run.timeout.as_deref().or(config.get("timeout")))?;
    command.tty = run.tty.then(crate::terminal::size);
    command.stdin = (run.stdin || run.tty).then_some(Stdin::Stream);
    for config in [&instance, &command] {
        config
            .check()
            .map_err(|error| usage(error, "Correct the value; nothing was started."))?;
    }
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

/// Without a word a place has no network, unless that is decided elsewhere: this host has the one it has.
fn network(given: Option<&str>, decided: bool) -> Result<Option<NetworkPolicy>, Failure> {
    match given {
        None if decided => Ok(None),
        None => Ok(Some(NetworkPolicy::None)),
        Some(text) => match text.parse() {
            Ok(policy) => Ok(Some(policy)),
            Err(error) => Err(usage(error, "Write --network none, full, or a list of domains.")),
        },
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
            None if bytes.is_empty() => return Err(usage("a variable has no name", "Write -e NAME=VALUE.")),
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
    if !host.exists() {
        let message = format!("there is nothing at {} that could be mounted", host.display());
        return Err(usage(message, "Give --mount a file or directory of this host."));
    }
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
        assert_eq!(mount("/usr"), Some(("/usr".into(), "/usr".into(), false)));
        assert_eq!(mount("/usr:/b:ro"), Some(("/usr".into(), "/b".into(), true)));
        for bad in [
            "",
            ":/b",
            "/usr:b",
            "/usr:/b:x",
            "/usr:/b:ro:z",
            "/no/such/thing:/b",
        ] {
            assert_eq!(mount(bad), None, "{bad}");
        }
    }

    #[test]
    fn no_word_about_the_network_is_none_where_that_can_be() {
        assert_eq!(network(None, false), Ok(Some(NetworkPolicy::None)));
        assert_eq!(network(None, true), Ok(None));
        assert_eq!(network(Some("none"), true), Ok(Some(NetworkPolicy::None)));
        for typing_error in ["None", "host", "", "a,,b", "no spaces"] {
            assert!(network(Some(typing_error), false).is_err(), "{typing_error}");
        }
    }
}
