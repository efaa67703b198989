//! Images of an OCI layout: a folder with `index.json` and blobs.

use super::{Documents, Found, Layer, Opened, Source, find_in};
use crate::digest::Digest;
use crate::error::PullError;
use crate::limits::Limits;
use crate::manifest::{Descriptor, Listed};
use crate::platform::Platform;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// An image of a layout.
pub(crate) struct Layout {
    pub path: PathBuf,
    pub tag: Option<String>,
}

/// Opens a file of somebody else's: one that is no file, such as a FIFO, would keep us waiting.
pub(crate) fn open_file(path: &Path) -> Result<File, PullError> {
    let failed = |source: std::io::Error| PullError::Local {
        path: path.to_owned(),
        source,
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| failed(error.into()))?;
    let file = File::from(file);
    match file.metadata().map_err(failed)?.is_file() {
        true => Ok(file),
        false => Err(failed(std::io::Error::other("it is no file"))),
    }
}

impl Layout {
    fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.path.join("blobs/sha256").join(digest.hex())
    }

    fn small(&self, path: &Path, limit: u64) -> Result<Vec<u8>, PullError> {
        let mut bytes = Vec::new();
        let mut reader = open_file(path)?.take(limit.saturating_add(1));
        reader
            .read_to_end(&mut bytes)
            .map_err(|source| PullError::Local {
                path: path.to_owned(),
                source,
            })?;
        match bytes.len() as u64 > limit {
            true => Err(PullError::TooLarge {
                what: path.display().to_string(),
                limit,
            }),
            false => Ok(bytes),
        }
    }
}

impl Documents for Layout {
    fn image(&self) -> String {
        match &self.tag {
            Some(tag) => format!("{tag} in {}", self.path.display()),
            None => self.path.display().to_string(),
        }
    }

    fn top(&self, limits: &Limits) -> Result<Vec<u8>, PullError> {
        self.small(&self.path.join("index.json"), limits.manifest_bytes)
    }

    /// Of several the one with the tag; without a tag the only one, or whichever fits the platform.
    fn named<'a>(&self, listed: &'a [Listed]) -> Result<Option<&'a Listed>, PullError> {
        let not_found = |what: String| PullError::NotFound {
            place: self.path.display().to_string(),
            what,
        };
        let Some(tag) = &self.tag else {
            let mut names: Vec<&str> = listed.iter().filter_map(|one| one.name.as_deref()).collect();
            names.dedup();
            return match listed {
                [] => Err(not_found("image".to_owned())),
                [one] => Ok(Some(one)),
                _ if names.len() > 1 => Err(not_found(format!(
                    "single image; name one of {}",
                    names[..names.len().min(20)].join(", ")
                ))),
                _ => Ok(None),
            };
        };
        let mut named = listed.iter().filter(|one| one.name.as_deref() == Some(tag));
        match (named.next(), named.next()) {
            (Some(one), None) => Ok(Some(one)),
            (None, _) => Err(not_found(format!("image {tag}"))),
            (Some(_), Some(_)) => Err(not_found(format!("single image {tag}"))),
        }
    }

    fn manifest(&self, descriptor: &Descriptor) -> Result<Vec<u8>, PullError> {
        self.small(&self.blob_path(&descriptor.digest), descriptor.size)
    }

    fn blob(&self, descriptor: &Descriptor) -> Result<Vec<u8>, PullError> {
        self.manifest(descriptor)
    }
}

impl Source for Layout {
    fn find(&self, wanted: &Platform, limits: &Limits) -> Result<Found, PullError> {
        find_in(self, wanted, limits)
    }

    fn open(&self, layer: &Layer, from: u64) -> Result<Opened, PullError> {
        let path = layer
            .digest
            .map(|digest| self.blob_path(&digest))
            .unwrap_or_default();
        let mut file = open_file(&path)?;
        file.seek(SeekFrom::Start(from))
            .map_err(|source| PullError::Local { path, source })?;
        Ok(Opened {
            from,
            reader: Box::new(file),
        })
    }

    fn is_remote(&self) -> bool {
        false
    }
}
