//! What a registry says when it wants to know who asks: the `WWW-Authenticate` header.

/// How a registry wants to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// With name and password.
    Basic,
    /// With a token from somewhere.
    Bearer {
        /// Where.
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

/// Longer ones say nothing that we need.
const MAX_LENGTH: usize = 4096;

/// Reads a header; a token is preferred, because then the registry does not see the password.
pub(crate) fn read(header: &str) -> Option<Challenge> {
    if header.len() > MAX_LENGTH {
        return None;
    }
    let all = challenges(header);
    let find = |scheme: &str| all.iter().find(|(name, _)| name.eq_ignore_ascii_case(scheme));
    if let Some((_, parameters)) = find("bearer") {
        let get = |wanted: &str| {
            let named = parameters
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            named.map(|(_, value)| value.clone())
        };
        if let Some(realm) = get("realm") {
            return Some(Challenge::Bearer {
                realm,
                service: get("service"),
                scope: get("scope"),
            });
        }
    }
    find("basic").map(|_| Challenge::Basic)
}

type Parameters = Vec<(String, String)>;

/// A scheme, and then its parameters with commas between; another scheme begins where no `=` follows a word.
fn challenges(header: &str) -> Vec<(String, Parameters)> {
    let mut all: Vec<(String, Parameters)> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find(|c: char| !is_token(c)).unwrap_or(rest.len());
        if end == 0 {
            return all;
        }
        let (word, after) = rest.split_at(end);
        match after.trim_start().strip_prefix('=') {
            Some(value) => {
                let (value, after) = value_of(value.trim_start());
                match all.last_mut() {
                    Some((_, parameters)) => parameters.push((word.to_owned(), value)),
                    // A parameter of no scheme.
                    None => return all,
                }
                rest = after;
            }
            None => {
                all.push((word.to_owned(), Vec::new()));
                rest = after;
            }
        }
    }
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c)
}

fn value_of(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(characters.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Option<Challenge> {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Some(Challenge::Bearer {
            realm: realm.to_owned(),
            service: own(service),
            scope: own(scope),
        })
    }

    #[test]
    fn headers_are_read() {
        let hub = r#"Bearer realm="https://auth.x/token",service="r.x",scope="repository:a/b:pull,push""#;
        assert_eq!(
            read(hub),
            bearer(
                "https://auth.x/token",
                Some("r.x"),
                Some("repository:a/b:pull,push")
            )
        );
        assert_eq!(
            read(r#"Basic realm="x", bearer REALM = y"#),
            bearer("y", None, None)
        );
        assert_eq!(read(r#"BASIC realm="a \"b\" Bearer""#), Some(Challenge::Basic));
        assert_eq!(read(r#"Bearer service="x", Basic"#), Some(Challenge::Basic));
        assert_eq!(read("Bearer realm=\"x"), bearer("x", None, None));
        let long = "a".repeat(5000);
        for nothing in ["", "Negotiate", "realm=\"x\"", "\"", "=", "Bearer", &long] {
            assert_eq!(read(nothing), None, "{nothing:.20}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_header_is_read_or_not(header in ".{0,200}", schemes in "(Bearer|Basic|,| |=|\"|realm){0,20}") {
            let _ = read(&header);
            let _ = read(&schemes);
        }
    }
}
