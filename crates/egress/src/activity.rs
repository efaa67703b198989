//! When something last moved on a connection.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Shared by both directions of a connection, since either of them alone may be silent for long.
pub(crate) struct Activity {
    start: Instant,
    last: AtomicU64,
}

impl Activity {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            last: AtomicU64::new(0),
        }
    }

    /// Bytes moved.
    pub(crate) fn touch(&self) {
        let passed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(passed, Ordering::Relaxed);
    }

    /// Returns when nothing moved for that long.
    pub(crate) async fn ceased(&self, limit: Duration) {
        loop {
            let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
            let end = self.start + last + limit;
            if Instant::now() >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}
