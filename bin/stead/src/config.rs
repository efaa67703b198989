//! Configuration: `stead.toml` < environment < flags. This module reads text; [`load`] finds the files.

use serde::Deserialize;
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
pub struct ConfigError {
    /// The file or the environment.
    pub origin: String,
    /// What is wrong, with the position where there is one.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.reason)
    }
}

impl std::error::Error for ConfigError {}

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

/// The effective values, as text, each with its origin.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config(BTreeMap<&'static str, (String, Origin)>);

impl Config {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|(value, _)| value.as_str())
    }

    /// Where the value of a key came from.
    pub fn origin(&self, key: &str) -> Option<&Origin> {
        self.0.get(key).map(|(_, origin)| origin)
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
                self.0.insert(key, (value, origin.clone()));
            }
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
        ConfigError {
            origin: origin.to_owned(),
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

/// Finds and reads the files, and then the environment.
pub fn load(
    working_directory: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Config, ConfigError> {
    let mut config = Config::default();
    // The nearest last, so that it wins.
    for path in files(working_directory, &variable).into_iter().rev() {
        match std::fs::read_to_string(&path) {
            Ok(text) => config.add_file(parse(&text, &path.display().to_string())?, &Origin::File(path)),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
                ) => {}
            Err(error) => {
                return Err(ConfigError {
                    origin: path.display().to_string(),
                    reason: error.to_string(),
                });
            }
        }
    }
    for (key, name) in KEYS {
        if let Some(value) = variable(name).filter(|value| !value.is_empty()) {
            config.0.insert(key, (value, Origin::Variable(name)));
        }
    }
    Ok(config)
}

/// The files that may exist: the nearest `stead.toml` upward, the user's, the system's.
fn files(working_directory: &Path, variable: &impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let upward = working_directory
        .ancestors()
        .map(|folder| folder.join("stead.toml"))
        .find(|path| path.is_file());
    let user = variable("XDG_CONFIG_HOME")
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".config")));
    let user = user.map(|folder| folder.join("stead/stead.toml"));
    upward
        .into_iter()
        .chain(user)
        .chain([PathBuf::from("/etc/stead/stead.toml")])
        .collect()
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
        let error = parse("\nprovidr = 'x'", "f").unwrap_err();
        assert!(error.reason.starts_with("line 2, column 1:"), "{error}");
        assert!(error.reason.ends_with("did you mean `provider`?"), "{error}");
        assert!(
            !parse("zzzzzzzzz = 1", "f")
                .unwrap_err()
                .reason
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
            "image = 'a'\nmemory = '1GiB'\nlog = 'x'",
        )
        .unwrap();
        std::fs::write(dir.path().join("work/stead.toml"), "image = 'b'\nmemory = '2GiB'").unwrap();
        let variable = |name: &str| match name {
            "HOME" => Some(home.display().to_string()),
            "STEAD_MEMORY" => Some("3GiB".to_owned()),
            "STEAD_LOG" => Some(String::new()),
            _ => None,
        };
        let config = load(&work, variable).unwrap();
        assert_eq!(
            (config.get("image"), config.get("memory"), config.get("log")),
            (Some("b"), Some("3GiB"), Some("x"))
        );
        assert_eq!(config.origin("memory"), Some(&Origin::Variable("STEAD_MEMORY")));
    }
}
