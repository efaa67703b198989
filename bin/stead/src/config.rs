//! Configuration: `stead.toml` < environment < flags. This module reads text; [`load`] finds the files.

pub mod value;

use crate::environment::Environment;
use crate::failure::{Failure, USAGE};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Keys of the configuration, in the order in which they are shown, with their variable.
pub const KEYS: [(&str, &str); 9] = [
    ("provider", "STEAD_PROVIDER"),
    ("image", "STEAD_IMAGE"),
    ("network", "STEAD_NETWORK"),
    ("timeout", "STEAD_TIMEOUT"),
    ("cpu", "STEAD_CPU"),
    ("memory", "STEAD_MEMORY"),
    ("pids", "STEAD_PIDS"),
    ("state_dir", "STEAD_STATE_DIR"),
    ("log", "STEAD_LOG"),
];

/// What a file says.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Default of `--provider`.
    pub provider: Option<String>,
    /// Default of `--image`.
    pub image: Option<String>,
    /// Default of `--network`.
    pub network: Option<String>,
    /// Default of `--timeout`.
    pub timeout: Option<String>,
    /// Default of `--cpu`.
    pub cpu: Option<f64>,
    /// Default of `--memory`.
    pub memory: Option<String>,
    /// Default of `--pids`.
    pub pids: Option<u64>,
    /// Folder of live instances.
    pub state_dir: Option<String>,
    /// Filter of the log.
    pub log: Option<String>,
}

/// What is wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// A file that cannot be read.
    File {
        /// The file.
        path: String,
        /// What is wrong, with the position where there is one.
        reason: String,
    },
    /// A value that cannot be used.
    Value {
        /// Who says it.
        origin: Origin,
        /// Of what.
        key: &'static str,
        /// As it is written.
        value: String,
        /// What is wrong.
        reason: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, reason } => write!(f, "{path}: {reason}"),
            Self::Value {
                origin: Origin::Variable(name),
                value,
                reason,
                ..
            } => write!(
                f,
                "{name} has the value {value:?}, which cannot be used: {reason}"
            ),
            Self::Value {
                origin: Origin::File(path),
                key,
                value,
                reason,
            } => {
                let path = path.display();
                write!(f, "{path} has {key} = {value:?}, which cannot be used: {reason}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let message = error.to_string();
        let failure = match error {
            ConfigError::File { .. } => Failure::new(
                "config_file_invalid",
                message,
                "Correct the file; `stead config show` reads it again.",
            ),
            ConfigError::Value {
                origin: Origin::Variable(name),
                ..
            } => Failure::new(
                "config_invalid",
                message,
                format!("Correct or unset {name}; nothing was started."),
            ),
            ConfigError::Value { .. } => Failure::new(
                "config_invalid",
                message,
                "Correct the file; nothing was started.",
            ),
        };
        failure.exiting(USAGE)
    }
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// A variable.
    Variable(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => write!(f, "environment {name}"),
        }
    }
}

/// The values that files and the environment give, each checked and with its origin, and what is in effect
/// where they give none.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    given: BTreeMap<&'static str, (String, Origin)>,
    defaults: BTreeMap<&'static str, Value>,
    warnings: Vec<String>,
}

impl Config {
    /// The value of a key, when a file or the environment gives one.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.given.get(key).map(|(value, _)| value.as_str())
    }

    /// Where the value of a key came from; `None` is our own default.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.given.get(key).map(|(_, origin)| origin)
    }

    /// The value in effect; `null` where there is none.
    pub fn effective(&self, key: &str) -> Value {
        match self.get(key) {
            Some(text) => value::json(key, text),
            None => self.defaults.get(key).cloned().unwrap_or_default(),
        }
    }

    /// The same for people.
    pub fn effective_text(&self, key: &str) -> String {
        match self.effective(key) {
            Value::Null => value::absent(key).to_owned(),
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// What is no error, and likely a mistake.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn add_file(&mut self, file: File, origin: &Origin) {
        let values = [
            ("provider", file.provider),
            ("image", file.image),
            ("network", file.network),
            ("timeout", file.timeout),
            ("cpu", file.cpu.map(|cpu| cpu.to_string())),
            ("memory", file.memory),
            ("pids", file.pids.map(|pids| pids.to_string())),
            ("state_dir", file.state_dir),
            ("log", file.log),
        ];
        for (key, value) in values {
            if let Some(value) = value {
                self.given.insert(key, (value, origin.clone()));
            }
        }
    }

    fn add_environment(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        for (key, name) in KEYS {
            let Some(value) = environment.get(name) else {
                continue;
            };
            let origin = Origin::Variable(name);
            let text = value.to_string_lossy().into_owned();
            // A path may be any bytes.
            if value.to_str().is_none() && key != "state_dir" {
                return Err(ConfigError::Value {
                    origin,
                    key,
                    value: text,
                    reason: "it is no UTF-8".to_owned(),
                });
            }
            self.given.insert(key, (text, origin));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (key, (value, origin)) in &self.given {
            value::check(key, value).map_err(|reason| ConfigError::Value {
                origin: origin.clone(),
                key,
                value: value.clone(),
                reason,
            })?;
        }
        Ok(())
    }

    /// Takes out what has no effect, and says so.
    fn leave_out(&mut self) {
        if let Some((text, origin)) = self.given.get("log")
            && let Err(reason) = value::check_log(text)
        {
            let name = match origin {
                Origin::Variable(name) => (*name).to_owned(),
                Origin::File(path) => format!("log in {}", path.display()),
            };
            let warning = format!(
                "{name} has the value {text:?}, which cannot be used: {reason}; the log is as with {}",
                value::DEFAULT_LOG
            );
            self.warnings.push(warning);
            self.given.remove("log");
        }
        // The library reads the variable, and no file.
        if let Some(Origin::File(path)) = self.origin("state_dir") {
            let path = path.display();
            self.warnings.push(format!(
                "state_dir in {path} has no effect yet; set STEAD_STATE_DIR instead"
            ));
            self.given.remove("state_dir");
        }
    }
}

/// Reads the text of a file. `origin` names it in errors.
pub fn parse(text: &str, origin: &str) -> Result<File, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let position = error.span().map(|span| position(text, span.start));
        let at = position
            .map(|(line, column)| format!("line {line}, column {column}: "))
            .unwrap_or_default();
        let reason = format!("{at}{}{}", error.message(), suggestion(error.message()));
        ConfigError::File {
            path: origin.to_owned(),
            reason,
        }
    })
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// The closest key, when the message is about one that does not exist.
fn suggestion(message: &str) -> String {
    let Some(unknown) = message
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split('`').next())
    else {
        return String::new();
    };
    let distance = |key: &str| strsim::damerau_levenshtein(unknown, key);
    let closest = KEYS.iter().map(|(key, _)| *key).min_by_key(|key| distance(key));
    closest
        .filter(|key| distance(key) <= 3)
        .map(|key| format!("; did you mean `{key}`?"))
        .unwrap_or_default()
}

/// Finds and reads the files, and then the environment. What comes back can be used: all values are checked.
pub fn load(working_directory: &Path, environment: &Environment) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    // The nearest last, so that it wins.
    for path in files(working_directory, environment).into_iter().rev() {
        match std::fs::read_to_string(&path) {
            Ok(text) => config.add_file(parse(&text, &path.display().to_string())?, &Origin::File(path)),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => {
                return Err(ConfigError::File {
                    path: path.display().to_string(),
                    reason: error.to_string(),
                });
            }
        }
    }
    config.add_environment(environment)?;
    config.check()?;
    config.leave_out();
    config.warnings.extend(environment.unknown());
    let provider = config.get("provider").unwrap_or("auto").trim().to_lowercase();
    for (key, _) in KEYS {
        let default = value::default(key, &provider, environment, working_directory);
        config.defaults.insert(key, default);
    }
    Ok(config)
}

/// The files that may exist: the nearest `stead.toml` upward, the user's, the system's.
fn files(working_directory: &Path, environment: &Environment) -> Vec<PathBuf> {
    let upward = working_directory
        .ancestors()
        .map(|folder| folder.join("stead.toml"))
        .find(|path| path.is_file());
    let user = environment.get("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| {
        let home = environment.get("HOME")?;
        Some(PathBuf::from(home).join(".config"))
    });
    let user = user.map(|folder| folder.join("stead/stead.toml"));
    upward
        .into_iter()
        .chain(user)
        .chain([PathBuf::from("/etc/stead/stead.toml")])
        .collect()
}

/// The folder of live instances, as the library finds it.
fn state_dir(environment: &Environment, working_directory: &Path) -> PathBuf {
    let own = rustix::process::geteuid();
    let named = environment.get("STEAD_STATE_DIR").map(PathBuf::from);
    let runtime = environment.get("XDG_RUNTIME_DIR");
    let found = named
        .or_else(|| runtime.map(|folder| PathBuf::from(folder).join("stead")))
        .unwrap_or_else(|| match own.is_root() {
            true => PathBuf::from("/run/stead"),
            false => PathBuf::from(format!("/tmp/stead-{}", own.as_raw())),
        });
    working_directory.join(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_is_named_with_its_place_and_the_nearest_key() {
        assert_eq!(
            parse("provider = \"docker\"\npids = 5", "f").unwrap().pids,
            Some(5)
        );
        let error = parse("\nprovidr = 'x'", "f").unwrap_err().to_string();
        assert!(error.starts_with("f: line 2, column 1:"), "{error}");
        assert!(error.ends_with("did you mean `provider`?"), "{error}");
        assert!(
            !parse("zzzzzzzzz = 1", "f")
                .unwrap_err()
                .to_string()
                .contains("did you mean")
        );
        assert!(
            parse("pids = 'many'", "f")
                .unwrap_err()
                .to_string()
                .starts_with("f: line 1")
        );
        assert!(parse("pids = ", "f").is_err());
    }

    #[test]
    fn the_nearest_file_wins_and_the_environment_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let (home, work) = (dir.path().join("home"), dir.path().join("work/deep"));
        std::fs::create_dir_all(home.join(".config/stead")).unwrap();
        std::fs::create_dir_all(&work).unwrap();
        std::fs::write(
            home.join(".config/stead/stead.toml"),
            "image = 'a'\nmemory = '1GiB'\nlog = 'info'",
        )
        .unwrap();
        std::fs::write(dir.path().join("work/stead.toml"), "image = 'b'\nmemory = '2GiB'").unwrap();
        let environment = Environment::from_iter([
            ("HOME", home.as_os_str()),
            ("STEAD_MEMORY", "3GiB".as_ref()),
            ("STEAD_LOG", "".as_ref()),
        ]);
        let config = load(&work, &environment).unwrap();
        assert_eq!(
            (config.get("image"), config.get("memory"), config.get("log")),
            (Some("b"), Some("3GiB"), Some("info"))
        );
        assert_eq!(config.origin("memory"), Some(&Origin::Variable("STEAD_MEMORY")));
        assert!(config.warnings().is_empty());
    }

    #[test]
    fn what_has_no_effect_is_told_and_left_out() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("stead.toml"), "state_dir = '/elsewhere'").unwrap();
        let environment = Environment::from_iter([
            ("HOME", dir.path().as_os_str()),
            ("XDG_RUNTIME_DIR", "/runtime".as_ref()),
            ("STEAD_LOG", "wran".as_ref()),
            ("STEAD_PISD", "5".as_ref()),
        ]);
        let config = load(dir.path(), &environment).unwrap();
        assert_eq!(config.effective("state_dir"), "/runtime/stead");
        assert_eq!(
            (config.get("log"), config.effective("log")),
            (None, "warn".into())
        );
        let warnings = config.warnings().join("\n");
        for part in [
            "STEAD_LOG has the value \"wran\"",
            "no effect yet",
            "did you mean STEAD_PIDS?",
        ] {
            assert!(warnings.contains(part), "{part}: {warnings}");
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_provider_that_is_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let of = |provider: &str| {
            let environment = Environment::from_iter([
                ("HOME", dir.path().as_os_str()),
                ("STEAD_PROVIDER", provider.as_ref()),
            ]);
            let config = load(dir.path(), &environment).unwrap();
            ["image", "network", "pids"].map(|key| config.effective_text(key))
        };
        assert_eq!(of("auto"), ["none", "none", "512"]);
        assert_eq!(of("docker"), ["python:3.11-slim", "none", "512"]);
        assert_eq!(of("native"), ["none", "none", "512"]);
        assert_eq!(of("local"), ["none", "as this host", "no limit"]);
    }
}
