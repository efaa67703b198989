//! The built-in providers in the registry.

use std::sync::{Arc, Once};
use stead_provider::registry::Factory;
use stead_provider::{Provider, Registry, Target};
use stead_types::ResolveError;

/// The registry of this process, with the built-in providers in it.
pub fn registry() -> &'static Registry {
    static FILLED: Once = Once::new();
    let registry = stead_provider::registry::global();
    FILLED.call_once(|| {
        let added = registry.add_builtins(builtins());
        debug_assert!(added.is_ok(), "the names of the built-ins are good");
    });
    registry
}

/// Resolves a target in [`registry`]: nothing or blank is `None`, an unknown name an error that lists what
/// exists, a provider is itself.
pub fn resolve(target: impl Into<Target>) -> Result<Option<Arc<dyn Provider>>, ResolveError> {
    registry().resolve(target)
}

fn builtins() -> Vec<(&'static str, Factory)> {
    vec![
        #[cfg(feature = "local")]
        (
            "local",
            Arc::new(|| Arc::new(stead_providers::local::LocalProvider::new())),
        ),
        #[cfg(feature = "native")]
        (
            "native",
            Arc::new(|| Arc::new(stead_providers::native::NativeProvider::new())),
        ),
        #[cfg(feature = "docker")]
        (
            "docker",
            Arc::new(|| Arc::new(stead_providers::docker::DockerProvider::new())),
        ),
    ]
}
