//! The line that tells how far a pull is.

use crate::output::size;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use stead::image::{Digest, PullEvent};

/// Faster than this nobody reads.
const PAUSE: Duration = Duration::from_millis(100);

/// How far a pull is.
#[derive(Debug, Default)]
pub struct Progress {
    layers: usize,
    finished: usize,
    bytes: u64,
    transferred: HashMap<Digest, u64>,
    told: Option<Instant>,
}

impl Progress {
    /// Takes an event in, and gives the line when it is time for one.
    pub fn line_after(&mut self, event: &PullEvent) -> Option<String> {
        self.take(event);
        let now = Instant::now();
        let is_due = self.told.is_none_or(|told| now.duration_since(told) >= PAUSE);
        is_due.then(|| {
            self.told = Some(now);
            self.line()
        })
    }

    fn take(&mut self, event: &PullEvent) {
        match event {
            PullEvent::Resolved { layers, bytes, .. } => (self.layers, self.bytes) = (*layers, *bytes),
            PullEvent::Transferring { layer, done, .. } => {
                self.transferred.insert(*layer, *done);
            }
            PullEvent::Present { .. } | PullEvent::Unpacked { .. } => self.finished += 1,
            _ => {}
        }
    }

    fn line(&self) -> String {
        let transferred: u64 = self.transferred.values().sum();
        let (finished, layers) = (self.finished, self.layers);
        format!(
            "{finished} of {layers} layers, {} of {}",
            size(transferred),
            size(self.bytes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_adds_up_what_all_layers_have() {
        let (digest, layer) = (Digest::of(b"image"), Digest::of(b"layer"));
        let mut progress = Progress::default();
        let resolved = PullEvent::Resolved {
            digest,
            layers: 3,
            bytes: 3 << 20,
        };
        assert_eq!(
            progress.line_after(&resolved).unwrap(),
            "0 of 3 layers, 0 B of 3.0 MiB"
        );
        progress.take(&PullEvent::Present { layer: digest });
        for done in [1 << 20, 3 << 19] {
            progress.take(&PullEvent::Transferring {
                layer,
                done,
                total: 2 << 20,
            });
        }
        progress.take(&PullEvent::Transferring {
            layer: digest,
            done: 100,
            total: 100,
        });
        progress.take(&PullEvent::Unpacked {
            layer,
            bytes: 9,
            devices: 0,
        });
        assert_eq!(progress.line(), "2 of 3 layers, 1.5 MiB of 3.0 MiB");
    }
}
