//! What is told of a pull while it runs.

use crate::digest::Digest;
use std::ops::ControlFlow;

/// One sign of progress of a pull.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PullEvent {
    /// The image was found.
    Resolved {
        /// As in [`crate::ImageRecord::digest`].
        digest: Digest,
        /// How many layers it has.
        layers: usize,
        /// Bytes to transfer, less whatever is there already; of a local source, bytes to read.
        bytes: u64,
    },
    /// A layer is there already.
    Present {
        /// Its diff id.
        layer: Digest,
    },
    /// A layer is being transferred or, from a local source, read.
    Transferring {
        /// Its diff id.
        layer: Digest,
        /// Bytes so far, with those of an earlier pull.
        done: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A transfer broke off and is taken up again.
    Retrying {
        /// The layer's diff id.
        layer: Digest,
        /// What happened.
        reason: String,
    },
    /// A layer is being unpacked.
    Unpacking {
        /// Its diff id.
        layer: Digest,
    },
    /// A layer is there.
    Unpacked {
        /// Its diff id.
        layer: Digest,
        /// Bytes of its uncompressed archive.
        bytes: u64,
        /// Device nodes of it that were left out.
        devices: u64,
    },
}

/// Who is told. Called from several threads, and often; whoever breaks ends the pull.
pub type OnEvent<'a> = &'a (dyn Fn(PullEvent) -> ControlFlow<()> + Sync);
