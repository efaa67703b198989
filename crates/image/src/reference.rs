//! Where an image is: the text that a user writes, read before anything is done with it.

use crate::digest::Digest;
use std::path::PathBuf;
use stead_types::error::Code;

/// Longer names are no registry's.
const MAX_NAME: usize = 512;
/// Longer paths cannot be opened.
const MAX_PATH: usize = 4095;

/// Where an image is.
///
/// | text | is |
/// | --- | --- |
/// | `[HOST[:PORT]/]PATH[:TAG][@DIGEST]` | an image of a registry; without a host Docker Hub's, without tag and digest `latest` |
/// | `oci:PATH[:TAG]` | an OCI layout folder; without a tag it has to hold one image only |
/// | `docker-archive:PATH[:NAME]` | what `docker save` wrote; without a name it has to hold one image only |
/// | `docker-daemon:NAME` | an image of the local engine |
///
/// A path ends at its first colon.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reference {
    /// In a registry.
    Registry(RegistryName),
    /// In an OCI layout folder.
    Layout {
        /// The folder.
        path: PathBuf,
        /// `org.opencontainers.image.ref.name` of the image.
        tag: Option<String>,
    },
    /// In a tar file that `docker save` wrote.
    Archive {
        /// The file.
        path: PathBuf,
        /// One of its names.
        name: Option<String>,
    },
    /// In the local engine.
    Daemon {
        /// As the engine knows it: a name or an id.
        name: String,
    },
}

/// The name of an image in a registry, made whole.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RegistryName {
    /// `host` or `host:port`.
    pub host: String,
    /// The path, with the `library/` that Docker Hub's own images have.
    pub repository: String,
    /// The tag; `latest` when neither tag nor digest were given.
    pub tag: Option<String>,
    /// The manifest that it has to be, whatever the tag means now.
    pub digest: Option<Digest>,
}

/// Why a text names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} names no image: {reason}")]
pub struct ReferenceError {
    given: String,
    reason: &'static str,
}

impl Code for ReferenceError {
    fn code(&self) -> &'static str {
        "image_reference_invalid"
    }

    fn remedy(&self) -> String {
        "Write NAME[:TAG][@sha256:…], oci:PATH[:TAG], docker-archive:PATH[:NAME] or docker-daemon:NAME."
            .to_owned()
    }
}

impl std::str::FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let read = match text.split_once(':') {
            Some(("oci", rest)) => {
                path_and_name(rest).and_then(|(path, tag)| match tag.as_deref().is_none_or(is_ref_name) {
                    true => Ok(Self::Layout { path, tag }),
                    false => Err("the tag has letters that no tag has"),
                })
            }
            Some(("docker-archive", rest)) => path_and_name(rest).and_then(|(path, name)| {
                match name.as_deref().is_none_or(is_engine_name) {
                    true => Ok(Self::Archive { path, name }),
                    false => Err("the name behind the path is no image's"),
                }
            }),
            Some(("docker-daemon", rest)) if is_engine_name(rest) => Ok(Self::Daemon {
                name: rest.to_owned(),
            }),
            Some(("docker-daemon", _)) => Err("no engine has such a name"),
            _ => registry(text).map(Self::Registry),
        };
        read.map_err(|reason| ReferenceError {
            given: text.chars().take(120).collect(),
            reason,
        })
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (kind, path, name) = match self {
            Self::Registry(name) => return name.fmt(f),
            Self::Layout { path, tag } => ("oci", path, tag),
            Self::Archive { path, name } => ("docker-archive", path, name),
            Self::Daemon { name } => return write!(f, "docker-daemon:{name}"),
        };
        write!(f, "{kind}:{}", path.display())?;
        name.iter().try_for_each(|name| write!(f, ":{name}"))
    }
}

impl std::fmt::Display for RegistryName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.host, self.repository)?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

impl Reference {
    /// The same with a path that does not depend on the working directory, so that it means the same in the
    /// index of the store.
    pub fn absolute(self) -> std::io::Result<Self> {
        Ok(match self {
            Self::Layout { path, tag } => Self::Layout {
                path: std::path::absolute(path)?,
                tag,
            },
            Self::Archive { path, name } => Self::Archive {
                path: std::path::absolute(path)?,
                name,
            },
            other => other,
        })
    }
}

fn path_and_name(text: &str) -> Result<(PathBuf, Option<String>), &'static str> {
    let (path, name) = match text.split_once(':') {
        Some((path, name)) => (path, Some(name.to_owned())),
        None => (text, None),
    };
    if path.is_empty() || path.len() > MAX_PATH || path.contains(char::is_control) {
        return Err("the path is missing, too long, or has control characters");
    }
    Ok((path.into(), name))
}

fn registry(text: &str) -> Result<RegistryName, &'static str> {
    if text.len() > MAX_NAME {
        return Err("it is longer than 512 bytes");
    }
    let (rest, digest) = match text.split_once('@') {
        Some((rest, digest)) => (
            rest,
            Some(
                digest
                    .parse()
                    .map_err(|_| "its digest is not sha256: and 64 digits")?,
            ),
        ),
        None => (text, None),
    };
    // Only behind the last slash: before it a colon belongs to a port.
    let last = rest.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match rest[last..].split_once(':') {
        Some((part, tag)) => (&rest[..last + part.len()], Some(tag.to_owned())),
        None => (rest, None),
    };
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if host == "localhost" || host.contains(['.', ':']) => (host, path),
        _ => ("docker.io", name),
    };
    if !is_host(host) {
        return Err("the host of its registry is none");
    }
    if !path.split('/').all(is_part) {
        return Err("its path has to be lower-case letters and digits, with single separators between them");
    }
    if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
        return Err("its tag has letters that no tag has");
    }
    let is_hub = matches!(host, "docker.io" | "index.docker.io");
    Ok(RegistryName {
        host: if is_hub {
            "docker.io".to_owned()
        } else {
            host.to_owned()
        },
        repository: if is_hub && !path.contains('/') {
            format!("library/{path}")
        } else {
            path.to_owned()
        },
        tag: tag.or_else(|| digest.is_none().then(|| "latest".to_owned())),
        digest,
    })
}

fn is_host(host: &str) -> bool {
    let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => match address.parse::<std::net::Ipv6Addr>() {
            Ok(_) => ("v6", port.strip_prefix(':').or(port.is_empty().then_some("1"))),
            Err(_) => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, Some("1")),
        },
    };
    let is_port = |port: &str| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    !name.is_empty()
        && !name.contains("..")
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(letters)
        && port.is_some_and(is_port)
}

/// Lower-case letters and digits, with single dots, dashes and underscores between them.
fn is_part(part: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    part.starts_with(plain)
        && part.ends_with(plain)
        && !part.contains("..")
        && part.chars().all(|c| plain(c) || matches!(c, '.' | '-' | '_'))
}

fn is_tag(tag: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|c| word(c) || matches!(c, '.' | '-'))
}

/// What a layout may call an image: tags, and whole names.
fn is_ref_name(name: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || "-._:@/+".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME && name.chars().all(letter)
}

/// What an engine may call an image: a name or an id. It goes into the path of a request.
fn is_engine_name(name: &str) -> bool {
    let is_id = (12..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_id || name.parse::<Digest>().is_ok() || registry(name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> String {
        text.parse::<Reference>().unwrap().to_string()
    }

    #[test]
    fn names_are_made_whole() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, whole) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("a/b:1", "docker.io/a/b:1"),
            ("index.docker.io/a", "docker.io/library/a:latest"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest"),
            ("[::1]:5000/a", "[::1]:5000/a:latest"),
            ("localhost/a", "localhost/a:latest"),
            ("oci:/x", "oci:/x"),
            ("oci:/x:1", "oci:/x:1"),
            ("docker-archive:x.tar", "docker-archive:x.tar"),
            ("docker-archive:x.tar:a/b:1", "docker-archive:x.tar:a/b:1"),
            ("docker-daemon:busybox:1", "docker-daemon:busybox:1"),
        ] {
            assert_eq!(read(text), whole);
            assert_eq!(read(whole), whole, "and stay so");
        }
        assert_eq!(
            read(&format!("a@{digest}")),
            format!("docker.io/library/a@{digest}")
        );
        assert_eq!(
            read(&format!("a:1@{digest}")),
            format!("docker.io/library/a:1@{digest}")
        );
        assert_eq!(
            read(&format!("docker-daemon:{digest}")),
            format!("docker-daemon:{digest}")
        );
    }

    #[test]
    fn what_would_lead_elsewhere_is_refused() {
        let long = "a".repeat(600);
        for bad in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            "..",
            "a/../b",
            "a?b",
            "a#b",
            "a%2fb",
            "a b",
            "A",
            "a:",
            "a:-1",
            "a:b:c",
            "a@sha256:12",
            "h:99999/a",
            "h:0/a",
            "h:+1/a",
            ":5000/a",
            "u@h.x/a",
            "[::g]/a",
            "-h.x/a",
            "a\n",
            "\u{e9}",
            "oci:",
            "oci::x",
            "oci:x:",
            "oci:x:a b",
            "docker-archive:",
            "docker-archive:x:A",
            "docker-daemon:",
            "docker-daemon:a/../b",
            "docker-daemon:a?x=1",
            &long,
        ] {
            let error = bad.parse::<Reference>().unwrap_err();
            assert_eq!(error.code(), "image_reference_invalid", "{bad:?}");
        }
    }
}
