//! The engine of this machine, or the word that a test is skipped without it.

use stead_providers::docker::engine::{Deadlines, Engine};
use stead_types::Availability;

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

/// Says that a test is skipped, on the output and in the file that `STEAD_SKIP_LOG` names.
pub fn skip(test: &str, reason: &str) {
    use std::io::Write;
    assert!(
        std::env::var_os("STEAD_TEST_NO_SKIP").is_none_or(|set| set != "1"),
        "{test} cannot run: {reason}"
    );
    let line = format!("SKIPPED {test}: {reason}\n");
    print!("{line}");
    if let Some(log) = std::env::var_os("STEAD_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(log)
            .unwrap();
        log.write_all(line.as_bytes()).unwrap();
    }
}
