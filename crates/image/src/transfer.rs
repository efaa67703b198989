//! The transfer of one layer into a file that stays when it breaks off.

use crate::digest::Digest;
use crate::error::{PullError, StoreError};
use crate::source::http::Patience;
use crate::source::{Layer, Source};
use crate::store::io_error;
use rustix::fs::{FlockOperation, Mode, OFlags};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Tries of one transfer. Each goes on where the one before broke off.
const TRIES: u32 = 8;
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The file of a transfer, which nobody else has while we do.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    path: PathBuf,
}

impl Partial {
    /// Opens it, and waits for whoever has it.
    pub fn lock(path: &Path) -> Result<Self, StoreError> {
        let failed = |error: rustix::io::Errno| io_error("open", path)(error.into());
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?);
            rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))
                .map_err(failed)?;
            let ours = file.metadata().map_err(io_error("look at", path))?.ino();
            // Whoever had it may have removed it, and then it is nobody's.
            if std::fs::symlink_metadata(path).is_ok_and(|found| found.ino() == ours) {
                return Ok(Self {
                    file,
                    path: path.to_owned(),
                });
            }
        }
    }

    /// Removes it.
    pub fn remove(self) -> Result<(), StoreError> {
        std::fs::remove_file(&self.path).map_err(io_error("remove", &self.path))
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> StoreError {
        io_error(what, &self.path)
    }

    fn truncate(&self) -> Result<(), StoreError> {
        self.file.set_len(0).map_err(self.failed("empty"))
    }
}

/// One transfer.
pub(crate) struct Transfer<'a> {
    pub source: &'a dyn Source,
    pub layer: &'a Layer,
    pub digest: Digest,
    pub patience: Patience,
    /// Told of bytes so far and in all.
    pub tell: &'a dyn Fn(u64, u64) -> Result<(), PullError>,
    /// Told why another try is made.
    pub retry: &'a dyn Fn(String) -> Result<(), PullError>,
}

/// Why one try did not get to the end.
enum Broken {
    /// The next may.
    Again(String, PullError),
    /// No other will.
    Failed(PullError),
}

impl From<PullError> for Broken {
    fn from(error: PullError) -> Self {
        match &error {
            PullError::Unreachable { source, .. } => Self::Again(source.to_string(), error),
            _ => Self::Failed(error),
        }
    }
}

impl From<StoreError> for Broken {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

/// What is in the file.
struct Have {
    hasher: Sha256,
    bytes: u64,
}

impl Transfer<'_> {
    /// Transfers what is missing, and gives the file from its start when all of it is right.
    pub fn run<'p>(&self, partial: &'p Partial) -> Result<&'p File, PullError> {
        let mut have = self.take_up(partial)?;
        let mut taken_up = have.bytes > 0;
        let mut pause = self.patience.pause;
        for left in (0..TRIES).rev() {
            match self.go_on(partial, &mut have) {
                Ok(()) => {}
                Err(Broken::Again(reason, _)) if left > 0 => {
                    (self.retry)(reason)?;
                    self.wait(pause, &have)?;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    continue;
                }
                Err(Broken::Again(_, error) | Broken::Failed(error)) => return Err(error),
            }
            let found = Digest::finish(have.hasher.clone());
            if found == self.digest {
                (&partial.file)
                    .seek(SeekFrom::Start(0))
                    .map_err(partial.failed("read"))?;
                return Ok(&partial.file);
            }
            partial.truncate()?;
            if !std::mem::take(&mut taken_up) {
                let reason = format!("its digest is {found}");
                return Err(PullError::Mismatch {
                    what: format!("the layer {}", self.digest),
                    reason,
                });
            }
            // What an earlier pull has left may be the part that is wrong.
            have = Have {
                hasher: Sha256::new(),
                bytes: 0,
            };
        }
        let reason = format!(
            "it ends again and again after {} of {} bytes",
            have.bytes, self.layer.size
        );
        Err(PullError::Mismatch {
            what: format!("the layer {}", self.digest),
            reason,
        })
    }

    /// Pauses, but not beyond a wish to end.
    fn wait(&self, pause: Duration, have: &Have) -> Result<(), PullError> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            (self.tell)(have.bytes, self.layer.size)?;
            std::thread::sleep(Duration::from_millis(50).min(pause));
        }
        Ok(())
    }

    /// Reads what is there already.
    fn take_up(&self, partial: &Partial) -> Result<Have, PullError> {
        let mut have = Have {
            hasher: Sha256::new(),
            bytes: 0,
        };
        if partial.file.metadata().map_err(partial.failed("look at"))?.len() > self.layer.size {
            partial.truncate()?;
        }
        (&partial.file)
            .seek(SeekFrom::Start(0))
            .map_err(partial.failed("read"))?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = (&partial.file)
                .read(&mut buffer)
                .map_err(partial.failed("read"))?;
            if count == 0 {
                return Ok(have);
            }
            have.hasher.update(&buffer[..count]);
            have.bytes += count as u64;
            (self.tell)(have.bytes, self.layer.size)?;
        }
    }

    /// One try, to the end or until it breaks off.
    fn go_on(&self, partial: &Partial, have: &mut Have) -> Result<(), Broken> {
        let total = self.layer.size;
        if have.bytes == total {
            return Ok(());
        }
        let opened = self.source.open(self.layer, have.bytes)?;
        if opened.from != have.bytes {
            partial.truncate()?;
            *have = Have {
                hasher: Sha256::new(),
                bytes: 0,
            };
        }
        (&partial.file)
            .seek(SeekFrom::Start(have.bytes))
            .map_err(partial.failed("write"))?;
        self.copy(opened.reader, partial, have)?;
        match have.bytes == total {
            true => Ok(()),
            false => Err(self.broken("it broke off")),
        }
    }

    /// Appends what comes, and says when it is too much or too slow.
    fn copy(&self, reader: impl Read, partial: &Partial, have: &mut Have) -> Result<(), Broken> {
        let total = self.layer.size;
        // One byte more than there may be, to see it.
        let mut reader = reader.take((total - have.bytes).saturating_add(1));
        let mut pace = Pace::new(self.patience.window);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.broken(&error.to_string())),
            };
            if count == 0 {
                return Ok(());
            }
            if have.bytes + count as u64 > total {
                partial.truncate()?;
                let reason = format!("it is longer than its {total} bytes");
                return Err(PullError::Mismatch {
                    what: format!("the layer {}", self.digest),
                    reason,
                }
                .into());
            }
            (&partial.file)
                .write_all(&buffer[..count])
                .map_err(partial.failed("write"))?;
            have.hasher.update(&buffer[..count]);
            have.bytes += count as u64;
            (self.tell)(have.bytes, total)?;
            if pace.is_too_slow(count as u64) {
                return Err(self.broken("it is too slow"));
            }
        }
    }

    fn broken(&self, reason: &str) -> Broken {
        let error = PullError::Unreachable {
            place: "the registry".to_owned(),
            what: format!("the layer {}", self.digest),
            source: reason.into(),
        };
        Broken::Again(reason.to_owned(), error)
    }
}

/// Whether a transfer moves at all: a byte now and then is no progress.
struct Pace {
    window: Duration,
    since: Instant,
    bytes: u64,
}

impl Pace {
    fn new(window: Duration) -> Self {
        Self {
            window,
            since: Instant::now(),
            bytes: 0,
        }
    }

    fn is_too_slow(&mut self, count: u64) -> bool {
        self.bytes += count;
        let past = self.since.elapsed();
        if past < self.window {
            return false;
        }
        let least = u128::from(Patience::FLOOR) * past.as_millis() / 1000;
        let too_slow = u128::from(self.bytes) < least;
        (self.since, self.bytes) = (Instant::now(), 0);
        too_slow
    }
}
