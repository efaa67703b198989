//! Names of images. A name goes into the path of a request, so it is read before it is used.

use super::plan::unsupported;
use stead_types::ProvisionError;

/// Longer names are no engine's.
const MAX_LENGTH: usize = 512;

/// The name of an image: `[host[:port]/]path[:tag][@digest]`, or an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRef {
    name: String,
    tag: Option<String>,
    digest: Option<String>,
}

impl std::fmt::Display for ImageRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}

impl ImageRef {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, ProvisionError> {
        let bad = || {
            let shown: String = text.chars().take(80).collect();
            unsupported("image", &format!("{shown:?} is not the name of an image"))
        };
        if text.len() > MAX_LENGTH {
            return Err(bad());
        }
        if is_digest(text) {
            return Ok(Self {
                name: text.to_owned(),
                tag: None,
                digest: None,
            });
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        // Only behind the last slash: before it a colon belongs to a port.
        let path = rest.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match rest[path..].split_once(':') {
            Some((last, tag)) => (&rest[..path + last.len()], Some(tag)),
            None => (rest, None),
        };
        if !is_name(name) || tag.is_some_and(|tag| !is_tag(tag)) || digest.is_some_and(|d| !is_digest(d)) {
            return Err(bad());
        }
        Ok(Self {
            name: name.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        })
    }

    /// What a pull asks for: the name, and the tag or digest. Without one an engine would fetch every tag.
    pub fn pull_parts(&self) -> (&str, &str) {
        let part = self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest");
        (&self.name, part)
    }

    /// Whether this names content by its id alone, which no registry can be asked for.
    pub fn is_id(&self) -> bool {
        is_digest(&self.name)
    }

    /// The registry that has it, as credentials name it.
    pub fn registry(&self) -> &str {
        match self.name.split_once('/') {
            Some((host, _)) if is_host(host) => host,
            _ => "https://index.docker.io/v1/",
        }
    }
}

fn is_host(text: &str) -> bool {
    text == "localhost" || text.contains(['.', ':'])
}

fn is_name(name: &str) -> bool {
    let (host, path) = match name.split_once('/') {
        Some((host, path)) if is_host(host) => (Some(host), path),
        _ => (None, name),
    };
    let host_letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let host_fits = host.is_none_or(|host| {
        let (host, port) = host.split_once(':').unwrap_or((host, "1"));
        !host.is_empty()
            && !host.contains("..")
            && host.chars().all(host_letters)
            && port.parse::<u16>().is_ok()
    });
    host_fits && path.split('/').all(is_part)
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

fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, hex)| {
        matches!((algorithm, hex.len()), ("sha256", 64) | ("sha512", 128))
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, String, String) {
        let image = ImageRef::parse(text).unwrap();
        assert_eq!(image.to_string(), text);
        let (name, part) = image.pull_parts();
        (name.to_owned(), part.to_owned(), image.registry().to_owned())
    }

    #[test]
    fn names_are_read() {
        let hub = "https://index.docker.io/v1/";
        let of = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        let digest = format!("sha256:{}", "a".repeat(64));
        assert_eq!(parts("python"), of("python", "latest", hub));
        assert_eq!(parts("python:3.11-slim"), of("python", "3.11-slim", hub));
        assert_eq!(parts("a/b_c"), of("a/b_c", "latest", hub));
        assert_eq!(
            parts("127.0.0.1:5000/a/b:1"),
            of("127.0.0.1:5000/a/b", "1", "127.0.0.1:5000")
        );
        assert_eq!(parts("localhost/a"), of("localhost/a", "latest", "localhost"));
        assert_eq!(parts(&format!("a:1@{digest}")), of("a", &digest, hub));
        assert!(ImageRef::parse(&digest).unwrap().is_id());
    }

    #[test]
    fn a_name_that_would_lead_to_another_request_is_refused() {
        let long = "a".repeat(600);
        for bad in [
            "",
            "/",
            "a/",
            "/a",
            "a//b",
            "..",
            "a/../../containers/x",
            "a?b=c",
            "a#b",
            "a%2fb",
            "a b",
            "A",
            "a:",
            "a:-1",
            "a@sha256:12",
            "a:b:c",
            "h:99999/a",
            ":5000/a",
            "a\n",
            "é",
            &long,
        ] {
            assert!(ImageRef::parse(bad).is_err(), "{bad:?}");
        }
    }
}
