//! What an image runs on.

use serde::{Deserialize, Serialize};

/// A system and a machine, as images name them: `linux/amd64`, `linux/arm/v7`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Platform {
    /// The system: `linux`.
    pub os: String,
    /// The machine in Go's words: `amd64`, `arm64`.
    pub architecture: String,
    /// Which one of them, where there are several: `v7`.
    pub variant: Option<String>,
}

/// A text is no platform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is not os/architecture or os/architecture/variant, such as linux/amd64")]
pub struct NoPlatform {
    given: String,
}

impl Platform {
    /// Linux on the machine that this was built for: places of this host run nothing else.
    pub fn of_this_host() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", None),
            "x86" => ("386", None),
            "aarch64" => ("arm64", None),
            "arm" => ("arm", Some("v7".to_owned())),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", None),
            other => (other, None),
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant,
        }
    }

    /// How well what is offered fits, the greater the better; `None` where it does not run.
    pub(crate) fn fit(&self, offered: &Self) -> Option<u8> {
        if self.os != offered.os || self.architecture != offered.architecture {
            return None;
        }
        match (&self.variant, &offered.variant) {
            (wanted, offered) if wanted == offered => Some(3),
            // arm64 has one variant, and not everybody writes it.
            (None, Some(v)) | (Some(v), None) if self.architecture == "arm64" && v == "v8" => Some(2),
            // Who does not say which one takes any.
            (None, Some(_)) => Some(1),
            _ => None,
        }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant
            .iter()
            .try_for_each(|variant| write!(f, "/{variant}"))
    }
}

impl std::str::FromStr for Platform {
    type Err = NoPlatform;

    fn from_str(text: &str) -> Result<Self, NoPlatform> {
        let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let parts: Vec<&str> = text.split('/').collect();
        let sound = parts
            .iter()
            .all(|part| !part.is_empty() && part.len() <= 32 && part.chars().all(word));
        match parts[..] {
            [os, architecture, ref variant @ ..] if sound && variant.len() <= 1 => Ok(Self {
                os: os.to_owned(),
                architecture: architecture.to_owned(),
                variant: variant.first().map(|variant| (*variant).to_owned()),
            }),
            _ => Err(NoPlatform {
                given: text.chars().take(80).collect(),
            }),
        }
    }
}

impl TryFrom<String> for Platform {
    type Error = NoPlatform;

    fn try_from(text: String) -> Result<Self, NoPlatform> {
        text.parse()
    }
}

impl From<Platform> for String {
    fn from(platform: Platform) -> Self {
        platform.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(wanted: &str, offered: &str) -> Option<u8> {
        wanted.parse::<Platform>().unwrap().fit(&offered.parse().unwrap())
    }

    #[test]
    fn platforms_are_read() {
        for good in ["linux/amd64", "linux/arm/v7"] {
            assert_eq!(good.parse::<Platform>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "linux",
            "linux/",
            "/amd64",
            "linux/arm/v7/x",
            "linux/a b",
            "linux/\u{e9}",
        ] {
            assert!(bad.parse::<Platform>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_exact_one_is_better_than_any() {
        assert!(fit("linux/arm64", "linux/arm64") > fit("linux/arm64", "linux/arm64/v8"));
        assert!(fit("linux/arm64/v8", "linux/arm64") > fit("linux/amd64", "linux/amd64/v3"));
        assert_eq!(fit("linux/arm/v7", "linux/arm/v6"), None);
        assert_eq!(fit("linux/arm/v7", "linux/arm"), None);
        assert_eq!(fit("linux/amd64", "windows/amd64"), None);
        assert_eq!(fit("linux/amd64", "linux/arm64"), None);
    }
}
