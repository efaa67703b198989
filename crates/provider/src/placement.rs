//! Where an agent's tools run: nowhere else, a name, a provider or a place.

use crate::Provider;
use crate::registry::{Factory, Registry, Target, global, replaceable_name};
use crate::tool::ToolPlace;
use std::fmt;
use std::sync::Arc;
use stead_types::ResolveError;

/// Makes a place: of a provider, or as somebody registered it.
#[derive(Clone)]
pub(crate) struct PlaceFactory(Arc<dyn Fn() -> Arc<ToolPlace> + Send + Sync>);

impl PlaceFactory {
    pub(crate) fn of_provider(factory: Factory) -> Self {
        Self(Arc::new(move || Arc::new(ToolPlace::new(factory()))))
    }
}

/// What `tools_run_on` takes.
#[derive(Debug, Clone, Default)]
pub enum RunOn {
    /// Nothing was asked for: tools run as they are.
    #[default]
    Nothing,
    /// A registered placement, in any case; blank is nothing.
    Name(String),
    /// A new place of this provider, without commands yet.
    Provider(ProviderRef),
    /// This place.
    Place(Arc<ToolPlace>),
}

/// A provider; only its name is shown.
#[derive(Clone)]
pub struct ProviderRef(pub Arc<dyn Provider>);

impl fmt::Debug for ProviderRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl RunOn {
    fn is_nothing(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Name(name) => name.trim().is_empty(),
            Self::Provider(_) | Self::Place(_) => false,
        }
    }
}

impl From<Target> for RunOn {
    fn from(target: Target) -> Self {
        match target {
            Target::None => Self::Nothing,
            Target::Name(name) => Self::Name(name),
            Target::Provider(provider) => Self::Provider(ProviderRef(provider)),
        }
    }
}

impl From<&str> for RunOn {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for RunOn {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl From<Arc<dyn Provider>> for RunOn {
    fn from(provider: Arc<dyn Provider>) -> Self {
        Self::Provider(ProviderRef(provider))
    }
}

impl<P: Provider> From<Arc<P>> for RunOn {
    fn from(provider: Arc<P>) -> Self {
        Self::Provider(ProviderRef(provider))
    }
}

impl From<Arc<ToolPlace>> for RunOn {
    fn from(place: Arc<ToolPlace>) -> Self {
        Self::Place(place)
    }
}

impl From<ToolPlace> for RunOn {
    fn from(place: ToolPlace) -> Self {
        Self::Place(Arc::new(place))
    }
}

impl<T: Into<RunOn>> From<Option<T>> for RunOn {
    fn from(target: Option<T>) -> Self {
        target.map_or(Self::Nothing, Into::into)
    }
}

/// Where tools run, under the three names that this setting has. Giving two is an error, also when both
/// say the same; nothing and a blank name do not count as given.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    tools_run_on: RunOn,
    run_on: RunOn,
    backend: RunOn,
}

impl Placement {
    /// Nothing is given.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the setting under its name.
    pub fn tools_run_on(mut self, on: impl Into<RunOn>) -> Self {
        self.tools_run_on = on.into();
        self
    }

    /// Gives the setting under an older name.
    pub fn run_on(mut self, on: impl Into<RunOn>) -> Self {
        self.run_on = on.into();
        self
    }

    /// Gives the setting under an older name.
    pub fn backend(mut self, on: impl Into<RunOn>) -> Self {
        self.backend = on.into();
        self
    }

    /// The one that is given.
    pub fn chosen(self) -> Result<RunOn, ResolveError> {
        let all = [
            ("tools_run_on", self.tools_run_on),
            ("run_on", self.run_on),
            ("backend", self.backend),
        ];
        let mut given = all.into_iter().filter(|(_, on)| !on.is_nothing());
        match (given.next(), given.next()) {
            (None, _) => Ok(RunOn::Nothing),
            (Some((_, on)), None) => Ok(on),
            (Some((first, _)), Some((second, _))) => Err(ResolveError::TwoAxes { first, second }),
        }
    }

    /// The place that is meant, by the process's registry.
    pub fn resolve(self) -> Result<Option<Arc<ToolPlace>>, ResolveError> {
        self.resolve_in(global())
    }

    /// The place that is meant. A name gives a new place each time; nothing gives none.
    pub fn resolve_in(self, registry: &Registry) -> Result<Option<Arc<ToolPlace>>, ResolveError> {
        registry.place(self.chosen()?)
    }
}

impl Registry {
    /// Registers a placement that is more than a provider, such as a place with commands. It replaces an
    /// earlier one of that name, except `local`. The factory is called for each use.
    pub fn register_place(
        &self,
        name: &str,
        factory: impl Fn() -> Arc<ToolPlace> + Send + Sync + 'static,
    ) -> Result<(), ResolveError> {
        let name = replaceable_name(name)?;
        self.write().places.insert(name, PlaceFactory(Arc::new(factory)));
        Ok(())
    }

    /// The names of all placements, sorted.
    pub fn list_places(&self) -> Vec<String> {
        self.read().places.keys().cloned().collect()
    }

    /// The place that is meant; none for nothing or a blank name.
    pub fn place(&self, on: impl Into<RunOn>) -> Result<Option<Arc<ToolPlace>>, ResolveError> {
        let name = match on.into() {
            RunOn::Nothing => return Ok(None),
            RunOn::Place(place) => return Ok(Some(place)),
            RunOn::Provider(ProviderRef(provider)) => return Ok(Some(Arc::new(ToolPlace::new(provider)))),
            RunOn::Name(name) => name.trim().to_lowercase(),
        };
        if name.is_empty() {
            return Ok(None);
        }
        let factory = self.read().places.get(&name).cloned();
        // The factory is foreign code: not under the lock.
        factory
            .map(|factory| Some((factory.0)()))
            .ok_or_else(|| self.unknown(name, self.list_places()))
    }
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
