//! Counts what a layer unpacks to while it is read, and stops it at the limits.

use super::error::LayerError;
use crate::digest::{Digest, Hashing};
use crate::limits::{Limits, RATIO_FLOOR};
use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What all layers of an image may unpack to together.
#[derive(Debug)]
pub struct Budget {
    left: AtomicU64,
    limit: u64,
}

impl Budget {
    /// For one image.
    pub fn new(limits: &Limits) -> Self {
        Self {
            left: AtomicU64::new(limits.unpacked_bytes),
            limit: limits.unpacked_bytes,
        }
    }

    /// Takes so many bytes, or says that there are not so many.
    pub(super) fn take(&self, bytes: u64) -> Result<(), LayerError> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(bytes)
            });
        taken.map(drop).map_err(|_| LayerError::TooLarge {
            what: "the bytes of all layers",
            limit: self.limit,
        })
    }
}

/// Counts the bytes of a reader where somebody else can see it.
pub(super) struct Counted<R> {
    inner: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: Read> Counted<R> {
    pub fn new(inner: R, bytes: Rc<Cell<u64>>) -> Self {
        Self { inner, bytes }
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}

/// What reader and unpacker tell each other.
#[derive(Default)]
pub(super) struct Gauge {
    /// Bytes that may still come before the next entry is complete; `None` while content is read.
    header_left: Cell<Option<u64>>,
    /// Which limit was met: the archive reader would make any error its own.
    tripped: RefCell<Option<LayerError>>,
}

impl Gauge {
    /// From now on headers are read.
    pub fn expect_header(&self, limits: &Limits) {
        self.header_left.set(Some(limits.header_bytes));
    }

    /// From now on content is read.
    pub fn expect_content(&self) {
        self.header_left.set(None);
    }

    /// The limit that was met, else that the archive is damaged.
    pub fn error(&self, source: io::Error) -> LayerError {
        self.tripped.take().unwrap_or(LayerError::Damaged { source })
    }
}

/// The content of a layer, hashed and bounded.
pub(super) struct Metered<'a, R> {
    inner: Hashing<R>,
    packed: Rc<Cell<u64>>,
    gauge: Rc<Gauge>,
    limits: &'a Limits,
    budget: &'a Budget,
    cancelled: &'a (dyn Fn() -> bool + 'a),
}

impl<'a, R: Read> Metered<'a, R> {
    pub fn new(
        inner: R,
        packed: Rc<Cell<u64>>,
        gauge: Rc<Gauge>,
        limits: &'a Limits,
        budget: &'a Budget,
        cancelled: &'a (dyn Fn() -> bool + 'a),
    ) -> Self {
        let inner = Hashing::new(inner);
        Self {
            inner,
            packed,
            gauge,
            limits,
            budget,
            cancelled,
        }
    }

    pub fn digest(&self) -> Digest {
        self.inner.digest()
    }

    pub fn count(&self) -> u64 {
        self.inner.count()
    }

    fn judge(&self, count: u64) -> Result<(), LayerError> {
        if (self.cancelled)() {
            return Err(LayerError::Cancelled);
        }
        self.budget.take(count)?;
        let (unpacked, packed) = (self.inner.count(), self.packed.get());
        if unpacked > RATIO_FLOOR && unpacked > packed.saturating_mul(self.limits.ratio) {
            let limit = packed.saturating_mul(self.limits.ratio);
            return Err(LayerError::TooLarge {
                what: "the bytes of a layer, against those transferred,",
                limit,
            });
        }
        Ok(())
    }

    fn trip(&self, error: LayerError) -> io::Error {
        *self.gauge.tripped.borrow_mut() = Some(error);
        io::Error::other("a limit was met")
    }
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut wanted = buffer.len();
        if let Some(left) = self.gauge.header_left.get() {
            if left == 0 && wanted > 0 {
                let limit = self.limits.header_bytes;
                return Err(self.trip(LayerError::TooLarge {
                    what: "the headers of an entry",
                    limit,
                }));
            }
            wanted = wanted.min(usize::try_from(left).unwrap_or(usize::MAX));
        }
        let count = self.inner.read(&mut buffer[..wanted])?;
        if let Some(left) = self.gauge.header_left.get() {
            self.gauge.header_left.set(Some(left - count as u64));
        }
        self.judge(count as u64).map_err(|error| self.trip(error))?;
        Ok(count)
    }
}
