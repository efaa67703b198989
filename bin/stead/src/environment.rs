//! The variables of this process, as the command reads them.

use crate::config::KEYS;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// How all our variables begin.
const PREFIX: &str = "STEAD_";

/// Variables that have no key in a file: what a place sets for its commands, what the library reads, and what
/// builds and tests read.
const OTHERS: [&str; 6] = [
    "STEAD_INSTANCE",
    "STEAD_DATA_DIR",
    "STEAD_SKIP_LOG",
    "STEAD_BENCH_BINARY",
    "STEAD_SUPERVISOR_BINARY",
    "STEAD_WRITE_GENERATION",
];

/// The same for whole families.
const FAMILIES: [&str; 3] = ["STEAD_SECRET_", "STEAD_TEST_", "STEAD_CONFORMANCE_"];

/// Variables with their values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// That of this process.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// The value of a variable. An empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let value = self.0.get(OsStr::new(name))?;
        (!value.is_empty()).then_some(value)
    }

    /// One sentence for each variable that looks like ours and that nothing reads.
    pub fn unknown(&self) -> Vec<String> {
        let ours = self.0.iter().filter(|(_, value)| !value.is_empty());
        ours.map(|(name, _)| name.to_string_lossy())
            .filter(|name| name.starts_with(PREFIX) && !is_known(name))
            .map(|name| format!("{name} is set, but nothing reads it; {}", suggestion(&name)))
            .collect()
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables.into_iter();
        Self(
            variables
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

fn is_known(name: &str) -> bool {
    KEYS.iter().any(|(_, variable)| *variable == name)
        || OTHERS.contains(&name)
        || FAMILIES.iter().any(|family| name.starts_with(family))
}

/// The closest variable, or all of them.
fn suggestion(unknown: &str) -> String {
    let distance = |variable: &str| strsim::damerau_levenshtein(unknown, variable);
    let limit = 1 + unknown[PREFIX.len()..].chars().count() / 4;
    let variables = KEYS.iter().map(|(_, variable)| *variable);
    match variables.clone().min_by_key(|variable| distance(variable)) {
        Some(closest) if distance(closest) <= limit => format!("did you mean {closest}?"),
        _ => format!("there is {}", variables.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_variable_that_nothing_reads_is_told_with_the_nearest() {
        let told = |name: &str| Environment::from_iter([(name, "x")]).unknown().concat();
        assert_eq!(
            told("STEAD_IMGE"),
            "STEAD_IMGE is set, but nothing reads it; did you mean STEAD_IMAGE?"
        );
        assert!(told("STEAD_SOMETHING_ELSE").contains("there is STEAD_PROVIDER, "));
        for known in [
            "STEAD_IMAGE",
            "STEAD_SECRET_GHCR",
            "STEAD_INSTANCE",
            "STEAD_TEST_LONG",
            "STEAD_SKIP_LOG",
            "HOME",
        ] {
            assert_eq!(told(known), "", "{known}");
        }
        assert!(
            Environment::from_iter([("STEAD_IMGE", "")]).unknown().is_empty(),
            "empty is not set"
        );
    }

    /// Names of variables in the strings of a source, tests excepted.
    fn named(source: &str) -> Vec<String> {
        let code = source.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let name = |rest: &str| {
            let end = rest.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
            format!("{PREFIX}{}", &rest[..end.unwrap_or(rest.len())])
        };
        code.split("\"STEAD_").skip(1).map(name).collect()
    }

    fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs")
                && !path.to_string_lossy().ends_with("tests.rs")
            {
                found.push(path);
            }
        }
    }

    #[test]
    fn each_variable_that_the_program_or_its_library_reads_is_known() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        for packages in ["bin", "crates"] {
            for package in std::fs::read_dir(root.join(packages)).unwrap() {
                let source = package.unwrap().path().join("src");
                if source.is_dir() {
                    sources(&source, &mut files);
                }
            }
        }
        let mut seen = 0;
        for path in files {
            let this = path.ends_with("environment.rs");
            for name in named(&std::fs::read_to_string(&path).unwrap()) {
                assert!(this || is_known(&name), "{name} in {}", path.display());
                seen += 1;
            }
        }
        assert!(seen > KEYS.len(), "the search finds what there is");
    }
}
