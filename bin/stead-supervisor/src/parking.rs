//! Parking: before the memory of the place is saved, nothing of the host may be held, and so the socket is closed; it
//! is made again as soon as the place goes on. The place's host says so by a file beside the socket: while that is
//! there we are parked. SIGUSR1 asks to look.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks for the file.
const LOOK: Duration = Duration::from_millis(20);

/// Whether we are parked, and where the file is.
#[derive(Debug)]
pub struct Parking {
    file: PathBuf,
    next_look: Option<Instant>,
}

impl Parking {
    /// Not parked. `socket` is what the supervisor listens on.
    pub fn new(socket: &Path) -> Self {
        Self {
            file: socket.with_file_name("parked"),
            next_look: None,
        }
    }

    /// Whether the host wants us parked.
    pub fn is_wanted(&self) -> bool {
        self.file.exists()
    }

    /// From now on we are parked.
    pub fn begin(&mut self) {
        self.next_look = Some(Instant::now() + LOOK);
    }

    /// When to look next.
    pub fn wake_at(&self) -> Option<Instant> {
        self.next_look
    }

    /// Whether it is over, which is told once.
    pub fn is_over(&mut self) -> bool {
        let due = self.next_look.is_some_and(|at| at <= Instant::now());
        if due {
            self.next_look = self.is_wanted().then(|| Instant::now() + LOOK);
        }
        due && self.next_look.is_none()
    }
}
