//! Providers by name.

use crate::Provider;
use crate::placement::PlaceFactory;
use crate::tool::{PROBE_LIMIT, probe_timed_out};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use stead_types::{Availability, Axes, ResolveError};
use tokio::task::JoinSet;

/// The provider that runs on the host. Its name can be taken by no other.
pub const LOCAL: &str = "local";

/// Longest name.
const MAX_NAME: usize = 64;

/// Makes a provider.
pub type Factory = Arc<dyn Fn() -> Arc<dyn Provider> + Send + Sync>;

/// What a caller wants to run on.
#[derive(Clone, Default)]
pub enum Target {
    /// Nothing was asked for.
    #[default]
    None,
    /// A registered name, in any case; blank is nothing.
    Name(String),
    /// This provider.
    Provider(Arc<dyn Provider>),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Name(name) => write!(f, "Name({name:?})"),
            Self::Provider(provider) => write!(f, "Provider({:?})", provider.name()),
        }
    }
}

impl From<&str> for Target {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for Target {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl From<&String> for Target {
    fn from(name: &String) -> Self {
        Self::Name(name.clone())
    }
}

impl From<Arc<dyn Provider>> for Target {
    fn from(provider: Arc<dyn Provider>) -> Self {
        Self::Provider(provider)
    }
}

impl<P: Provider> From<Arc<P>> for Target {
    fn from(provider: Arc<P>) -> Self {
        Self::Provider(provider)
    }
}

impl<T: Into<Target>> From<Option<T>> for Target {
    fn from(target: Option<T>) -> Self {
        target.map_or(Self::None, Into::into)
    }
}

/// One row of [`Registry::describe`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderDescription {
    /// Its name.
    pub name: String,
    /// Whether it can be used here.
    pub availability: Availability,
    /// What was observed of its isolation, see [`Provider::observed_axes`].
    pub axes: Axes,
}

#[derive(Default)]
pub(crate) struct Entries {
    providers: BTreeMap<String, Factory>,
    pub(crate) places: BTreeMap<String, PlaceFactory>,
}

/// Providers and placements by name. Can be shared by tasks and threads.
#[derive(Default)]
pub struct Registry {
    entries: RwLock<Entries>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list()).finish()
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry with the providers of this build, which may include `local`.
    pub fn with_builtins(
        builtins: impl IntoIterator<Item = (impl AsRef<str>, Factory)>,
    ) -> Result<Self, ResolveError> {
        let registry = Self::new();
        registry.add_builtins(builtins)?;
        Ok(registry)
    }

    /// Adds the providers of this build, which may include `local`. A name that is there is left as it
    /// is, so this can be called more than once and after [`Self::register`].
    pub fn add_builtins(
        &self,
        builtins: impl IntoIterator<Item = (impl AsRef<str>, Factory)>,
    ) -> Result<(), ResolveError> {
        for (name, factory) in builtins {
            let name = valid_name(name.as_ref())?;
            self.write().providers.entry(name).or_insert(factory);
        }
        self.register_tool_places();
        Ok(())
    }

    /// Registers a provider under a name, and with it a placement of that name. The name is lower-cased;
    /// it has 1 to 64 letters, digits, `.`, `_` and `-`, and begins with a letter or digit. An earlier
    /// provider of that name is replaced, except `local`, which nothing can stand in for.
    pub fn register(
        &self,
        name: &str,
        factory: impl Fn() -> Arc<dyn Provider> + Send + Sync + 'static,
    ) -> Result<(), ResolveError> {
        let name = replaceable_name(name)?;
        let factory: Factory = Arc::new(factory);
        let mut entries = self.write();
        entries
            .places
            .insert(name.clone(), PlaceFactory::of_provider(Arc::clone(&factory)));
        entries.providers.insert(name, factory);
        Ok(())
    }

    /// Removes a provider and its placement. Whether there was one. `local` cannot be removed.
    pub fn unregister(&self, name: &str) -> Result<bool, ResolveError> {
        let name = replaceable_name(name)?;
        let mut entries = self.write();
        let placed = entries.places.remove(&name).is_some();
        Ok(entries.providers.remove(&name).is_some() || placed)
    }

    /// The registered names, sorted.
    pub fn list(&self) -> Vec<String> {
        self.read().providers.keys().cloned().collect()
    }

    /// All providers, by name, with whether each can be used here. All are asked at once; one that does
    /// not answer within 15 s, or that panics, is unavailable.
    pub async fn describe(&self) -> Vec<ProviderDescription> {
        let factories: Vec<_> = self
            .read()
            .providers
            .iter()
            .map(|(name, factory)| (name.clone(), Arc::clone(factory)))
            .collect();
        let mut rows: BTreeMap<String, Option<(Availability, Axes)>> =
            factories.iter().map(|(name, _)| (name.clone(), None)).collect();
        let mut tasks = JoinSet::new();
        for (name, factory) in factories {
            tasks.spawn(async move {
                let provider = factory();
                let probe = tokio::time::timeout(PROBE_LIMIT, provider.probe()).await;
                let availability = probe.unwrap_or_else(|_| probe_timed_out());
                (name, availability, provider.observed_axes())
            });
        }
        while let Some(done) = tasks.join_next().await {
            if let Ok((name, availability, axes)) = done {
                rows.insert(name, Some((availability, axes)));
            }
        }
        let row = |(name, row): (String, Option<(Availability, Axes)>)| {
            let (availability, axes) = row.unwrap_or_else(|| (probe_panicked(), Axes::UNKNOWN));
            ProviderDescription {
                name,
                availability,
                axes,
            }
        };
        rows.into_iter().map(row).collect()
    }

    /// The provider that is meant: none for nothing or a blank name, a fresh one from the factory for a
    /// name, a provider itself. An unknown name is an error: falling back to another provider could run
    /// on the host what was to be isolated.
    pub fn resolve(&self, target: impl Into<Target>) -> Result<Option<Arc<dyn Provider>>, ResolveError> {
        let name = match target.into() {
            Target::None => return Ok(None),
            Target::Provider(provider) => return Ok(Some(provider)),
            Target::Name(name) => name.trim().to_lowercase(),
        };
        if name.is_empty() {
            return Ok(None);
        }
        let factory = self.read().providers.get(&name).map(Arc::clone);
        // The factory is foreign code: not under the lock.
        factory
            .map(|factory| Some(factory()))
            .ok_or_else(|| self.unknown(name, self.list()))
    }

    pub(crate) fn unknown(&self, name: String, available: Vec<String>) -> ResolveError {
        let close =
            |other: &&String| strsim::damerau_levenshtein(&name, other) <= 1 + name.chars().count() / 4;
        let suggestion = available
            .iter()
            .filter(close)
            .min_by_key(|other| strsim::damerau_levenshtein(&name, other))
            .cloned();
        ResolveError::Unknown {
            name,
            available,
            suggestion,
        }
    }

    /// Makes sure that every provider is a placement too. Registering does this by itself; calling it
    /// again changes nothing.
    pub fn register_tool_places(&self) {
        let mut entries = self.write();
        let Entries { providers, places } = &mut *entries;
        for (name, factory) in providers {
            places
                .entry(name.clone())
                .or_insert_with(|| PlaceFactory::of_provider(Arc::clone(factory)));
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Entries> {
        // Nothing that can panic runs under the lock.
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn probe_panicked() -> Availability {
    Availability::missing(
        "probe_failed",
        "its probe failed without an answer",
        "Report this to whoever wrote the provider; its log may say more.",
    )
}

fn bad_name(name: &str, reason: impl Into<String>) -> ResolveError {
    ResolveError::BadName {
        name: name.to_owned(),
        reason: reason.into(),
    }
}

fn valid_name(name: &str) -> Result<String, ResolveError> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(bad_name(name, format!("it must have 1 to {MAX_NAME} characters")));
    }
    if !name
        .bytes()
        .all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
    {
        return Err(bad_name(
            name,
            "it may have letters, digits, '.', '_' and '-' only",
        ));
    }
    if !name.as_bytes()[0].is_ascii_alphanumeric() {
        return Err(bad_name(name, "it must begin with a letter or digit"));
    }
    Ok(name.to_ascii_lowercase())
}

pub(crate) fn replaceable_name(name: &str) -> Result<String, ResolveError> {
    let name = valid_name(name)?;
    if name == LOCAL {
        return Err(bad_name(&name, "it always means this host without isolation"));
    }
    Ok(name)
}

/// The registry of this process. Who embeds single crates adds the built-ins with
/// [`Registry::add_builtins`].
pub fn global() -> &'static Registry {
    static GLOBAL: LazyLock<Registry> = LazyLock::new(Registry::new);
    &GLOBAL
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
