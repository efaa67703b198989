//! Why an image could not be had, and why the store could not do something.

use crate::digest::Digest;
use crate::unpack::LayerError;
use std::io;
use std::path::PathBuf;
use stead_types::error::{Code, Source};

/// Why the store could not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no folder to keep images in.
    #[error("no folder is known to keep images in")]
    NoFolder,
    /// The folder is not safe to use.
    #[error("{} cannot hold images: {reason}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The system refused.
    #[error("could not {what} {}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The index, or something that it names, is not as it was written.
    #[error("the store of images is damaged: {} {reason}", .path.display())]
    Damaged {
        /// What is.
        path: PathBuf,
        /// How.
        reason: String,
    },
    /// A pull is running, and nothing that it may need can be removed.
    #[error("images are being pulled into {}", .folder.display())]
    Busy {
        /// The store.
        folder: PathBuf,
    },
    /// There is no such image.
    #[error("there is no image {wanted}")]
    Missing {
        /// What was asked for.
        wanted: String,
    },
}

impl Code for StoreError {
    fn code(&self) -> &'static str {
        match self {
            Self::NoFolder | Self::Folder { .. } | Self::Io { .. } => "image_store_failed",
            Self::Damaged { .. } => "image_store_damaged",
            Self::Busy { .. } => "image_store_busy",
            Self::Missing { .. } => "image_missing",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::NoFolder => "Set STEAD_DATA_DIR to a folder of yours.".to_owned(),
            Self::Folder { .. } => "Set STEAD_DATA_DIR to a folder that is yours alone.".to_owned(),
            Self::Io { .. } => {
                "Make room, or make the folder writable; STEAD_DATA_DIR names another one.".to_owned()
            }
            Self::Damaged { path, .. } => format!("Remove {} and pull the images again.", path.display()),
            Self::Busy { .. } => "Try again when the pull is over.".to_owned(),
            Self::Missing { .. } => "`stead image ls` lists what there is.".to_owned(),
        }
    }

    fn retryable(&self) -> bool {
        matches!(self, Self::Busy { .. })
    }
}

/// Why an image could not be pulled. The store is as before; what was transferred is taken up by the next try.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// There is no such image.
    #[error("{place} has no {what}")]
    NotFound {
        /// The registry, folder, file or engine.
        place: String,
        /// What it does not have.
        what: String,
    },
    /// The registry wants other credentials, or does not give the image to these.
    #[error("{registry} refuses {what}: {reason}")]
    Denied {
        /// The registry.
        registry: String,
        /// What was asked for.
        what: String,
        /// What it said.
        reason: String,
    },
    /// The password cannot be looked up.
    #[error("the password {name} is not there: {reason}")]
    Secret {
        /// Its name.
        name: String,
        /// Why not.
        reason: String,
    },
    /// Something would go over a connection that anybody on the way can read and change.
    #[error("{url} is plain HTTP and not of this machine")]
    PlainHttp {
        /// Without query.
        url: String,
    },
    /// The registry or the engine could not be reached, or failed.
    #[error("{place} did not give {what}")]
    Unreachable {
        /// The registry or engine.
        place: String,
        /// What was asked for.
        what: String,
        /// What was seen.
        source: Source,
    },
    /// The image is not there for this platform.
    #[error("{image} is not for {wanted}, but for {offered}")]
    Platform {
        /// The image.
        image: String,
        /// The platform.
        wanted: String,
        /// What there is, with commas.
        offered: String,
    },
    /// What came is not what was asked for.
    #[error("{what} is not what came: {reason}")]
    Mismatch {
        /// What was asked for.
        what: String,
        /// How that was seen.
        reason: String,
    },
    /// A manifest, index or configuration that is none, or is of no image.
    #[error("{image} cannot be used: {reason}")]
    Manifest {
        /// The image.
        image: String,
        /// Why not.
        reason: String,
    },
    /// Over a limit.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// What is.
        what: String,
        /// In bytes.
        limit: u64,
    },
    /// A layer cannot be unpacked.
    #[error("the layer {layer} cannot be unpacked")]
    Layer {
        /// Its diff id.
        layer: Digest,
        /// Why not.
        source: LayerError,
    },
    /// A folder or file that should hold an image cannot be read.
    #[error("could not read {}", .path.display())]
    Local {
        /// The folder or file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The store could not do its part.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The caller has ended it.
    #[error("the pull was cancelled")]
    Cancelled,
}

impl Code for PullError {
    fn code(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "image_not_found",
            Self::Denied { .. } => "image_denied",
            Self::Secret { .. } => "image_secret_missing",
            Self::PlainHttp { .. } => "image_plain_http",
            Self::Unreachable { .. } => "image_unreachable",
            Self::Platform { .. } => "image_platform_missing",
            Self::Mismatch { .. } => "image_mismatch",
            Self::Manifest { .. } => "image_manifest_invalid",
            Self::TooLarge { .. } => "image_too_large",
            Self::Layer { source, .. } => source.code(),
            Self::Local { .. } => "image_source_unreadable",
            Self::Store(error) => error.code(),
            Self::Cancelled => "image_pull_cancelled",
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::NotFound { .. } => "Check the name and the tag.".to_owned(),
            Self::Denied { .. } => {
                "Check the name; for an image that is not public give --username and --password-secret."
                    .to_owned()
            }
            Self::Secret { name, .. } => {
                format!(
                    "Set {} to the password.",
                    stead_types::secret::secret_variable(name)
                )
            }
            Self::PlainHttp { .. } => {
                "Use a registry with TLS, or allow plain HTTP with --plain-http if the network is yours."
                    .to_owned()
            }
            Self::Unreachable { .. } => {
                "Check the network and the name; what was transferred is kept, so try again.".to_owned()
            }
            Self::Platform { .. } => "Name one of these with --platform.".to_owned(),
            Self::Mismatch { .. } => {
                "Try again; if it stays so, do not use this image from there.".to_owned()
            }
            Self::Manifest { .. } => "Name an image that Docker or another engine can run.".to_owned(),
            Self::TooLarge { .. } => "Use a smaller image; a program can set other limits.".to_owned(),
            Self::Layer { source, .. } => source.remedy(),
            Self::Local { .. } => "Check the path, and that you may read it.".to_owned(),
            Self::Store(error) => error.remedy(),
            Self::Cancelled => "Pull it again; what was transferred is kept.".to_owned(),
        }
    }

    fn retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            Self::Store(error) => error.retryable(),
            _ => false,
        }
    }
}
