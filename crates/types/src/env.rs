//! An ordered map of environment variables.

use crate::command::{InvalidInput, check_nul};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Environment variables in the order in which they were first set. Values reach the program verbatim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvMap(Vec<(OsString, OsString)>);

impl EnvMap {
    /// Sets a variable; one that exists keeps its position.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        let (name, value) = (name.into(), value.into());
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, slot)) => *slot = value,
            None => self.0.push((name, value)),
        }
    }

    /// The value of a variable.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        let name = name.as_ref();
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_os_str())
    }

    /// All variables in order.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets all of `other` on top.
    pub fn merge(&mut self, other: &EnvMap) {
        for (name, value) in &other.0 {
            self.set(name.clone(), value.clone());
        }
    }

    /// Refuses names and values that no program can get.
    pub fn check(&self) -> Result<(), InvalidInput> {
        for (name, value) in &self.0 {
            let shown = name.to_string_lossy();
            check_nul(&format!("the environment name {shown:?}"), name)?;
            if name.is_empty() || name.as_bytes().contains(&b'=') {
                return Err(InvalidInput::EnvName {
                    name: shown.into_owned(),
                });
            }
            check_nul(&format!("the value of {shown}"), value)?;
        }
        Ok(())
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for EnvMap {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut map = Self::default();
        for (name, value) in pairs {
            map.set(name, value);
        }
        map
    }
}

// JSON has no bytes: names and values that are not UTF-8 cannot be written there and are an error.
impl Serialize for EnvMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::{Error, SerializeMap};
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            let text = |part: &OsStr| {
                part.to_str()
                    .map(str::to_owned)
                    .ok_or_else(|| S::Error::custom("not valid UTF-8"))
            };
            map.serialize_entry(&text(name)?, &text(value)?)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for EnvMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct EnvVisitor;
        impl<'de> Visitor<'de> for EnvVisitor {
            type Value = EnvMap;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of names to values, both strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<EnvMap, A::Error> {
                let mut env = EnvMap::default();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    if env.get(&name).is_some() {
                        return Err(serde::de::Error::custom(format!("{name} is set twice")));
                    }
                    env.set(name, value);
                }
                Ok(env)
            }
        }
        deserializer.deserialize_map(EnvVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_a_later_value_wins() {
        let mut env: EnvMap = [("B", "1"), ("A", "2")].into_iter().collect();
        env.merge(&[("C", "3"), ("B", "4")].into_iter().collect());
        let pairs: Vec<_> = env
            .iter()
            .map(|(n, v)| (n.to_str().unwrap(), v.to_str().unwrap()))
            .collect();
        assert_eq!(pairs, [("B", "4"), ("A", "2"), ("C", "3")]);
    }

    #[test]
    fn names_and_values_that_no_program_can_get_are_refused() {
        let check = |name: &str, value: &str| [(name, value)].into_iter().collect::<EnvMap>().check();
        assert_eq!(check("A", "a b\nc \"d\" $HOME"), Ok(()));
        assert_eq!(check("A", ""), Ok(()));
        assert!(matches!(check("A=B", ""), Err(InvalidInput::EnvName { .. })));
        assert!(matches!(check("", ""), Err(InvalidInput::EnvName { .. })));
        assert!(matches!(check("A\0", ""), Err(InvalidInput::Nul { .. })));
        assert!(matches!(check("A", "\0"), Err(InvalidInput::Nul { .. })));
    }

    #[test]
    fn a_name_given_twice_in_json_is_an_error() {
        assert!(serde_json::from_str::<EnvMap>(r#"{"A":"1","B":"2"}"#).is_ok());
        assert!(serde_json::from_str::<EnvMap>(r#"{"A":"1","A":"2"}"#).is_err());
    }
}
