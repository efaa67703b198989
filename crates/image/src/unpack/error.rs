//! Why a layer is not unpacked.

use crate::digest::Digest;
use std::io;
use stead_types::error::Code;

/// Why a layer is not unpacked. Nothing of it is kept.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// An entry that is not taken.
    #[error("the entry {entry:?} is refused: {reason}")]
    Refused {
        /// Its path, shortened.
        entry: String,
        /// Why.
        reason: &'static str,
    },
    /// It cannot be read, or is no archive.
    #[error("it cannot be read as an archive")]
    Damaged {
        /// What was seen.
        source: io::Error,
    },
    /// Over a limit.
    #[error("{what} are over the limit of {limit}")]
    TooLarge {
        /// What is.
        what: &'static str,
        /// In bytes or entries.
        limit: u64,
    },
    /// The content is not what the image says.
    #[error("its content is {found}")]
    OtherContent {
        /// What came.
        found: Digest,
    },
    /// The system does not write it.
    #[error("the entry {entry:?} could not be written")]
    Write {
        /// Its path, shortened.
        entry: String,
        /// The system's error.
        source: io::Error,
    },
    /// The caller has ended it.
    #[error("it was cancelled")]
    Cancelled,
}

impl Code for LayerError {
    fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } | Self::Damaged { .. } => "image_layer_refused",
            Self::TooLarge { .. } => "image_too_large",
            Self::OtherContent { .. } => "image_mismatch",
            Self::Write { .. } => "image_store_failed",
            Self::Cancelled => "image_pull_cancelled",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Refused { .. } => "Build the image without this entry; docs/errors/image_layer_refused.md has the rules.",
            Self::Damaged { .. } | Self::OtherContent { .. } => {
                "Pull it again; if it stays so, do not use this image from there."
            }
            Self::TooLarge { .. } => "Use a smaller image; a program can set other limits.",
            Self::Write { .. } => {
                "Make room, or set STEAD_DATA_DIR to a folder of a file system with owners, links and user attributes."
            }
            Self::Cancelled => "Pull it again; what was transferred is kept.",
        }
        .to_owned()
    }
}

/// The path of an entry as a text of bounded length.
pub(super) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(&path[..path.len().min(160)]).into_owned()
}
