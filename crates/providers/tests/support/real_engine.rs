//! The engine of this machine, or the word that a test is skipped without it.

use stead_providers::docker::engine::{Deadlines, Engine};
use stead_types::Availability;

pub use stead_testkit::skip;

/// The engine of this machine. `None` after the skip was said aloud; with `STEAD_TEST_NO_SKIP=1` that is a failure.
pub async fn engine_or_skip(test: &str) -> Option<Engine> {
    let engine = Engine::new(None, Deadlines::default());
    match engine.probe().await {
        Availability::Available => Some(engine),
        Availability::Unavailable(missing) => {
            skip(test, &missing.reason);
            None
        }
    }
}
