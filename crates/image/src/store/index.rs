//! The list of what was pulled.

use super::{Store, io_error, read_own, write_atomically};
use crate::digest::Digest;
use crate::error::StoreError;
use crate::platform::Platform;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The generation of the file; another one is not touched.
const FORMAT: u32 = 1;

/// An image as the store lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// As it was pulled, made whole.
    pub reference: String,
    /// Of its manifest; for an image of an archive or engine, which have none, of its configuration.
    pub digest: Digest,
    /// What it runs on.
    pub platform: Platform,
    /// Bytes of its layers' uncompressed archives. Layers that images share are counted for each.
    pub size: u64,
    /// When it was pulled last.
    #[serde(with = "time::serde::rfc3339")]
    pub pulled_at: OffsetDateTime,
    /// The blob that is its configuration.
    pub config: Digest,
    /// Diff ids of its layers, the lowest first.
    pub layers: Vec<Digest>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    format: u32,
    images: Vec<ImageRecord>,
}

impl Store {
    /// What there is, by reference and platform.
    pub fn list(&self) -> Result<Vec<ImageRecord>, StoreError> {
        let path = self.root.join("index.json");
        match std::fs::symlink_metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error("look at", &path)(error)),
            Ok(_) => {}
        }
        let read = serde_json::from_slice::<Index>(&read_own(&path)?);
        match read {
            Ok(index) if index.format == FORMAT => Ok(index.images),
            Ok(index) => {
                let reason = format!("is of generation {}, and this build knows {FORMAT}", index.format);
                Err(StoreError::Damaged { path, reason })
            }
            Err(error) => Err(StoreError::Damaged {
                path,
                reason: format!("cannot be read: {error}"),
            }),
        }
    }

    /// Replaces the list by what a function makes of it.
    pub(super) fn change_index<T>(
        &self,
        change: impl FnOnce(&mut Vec<ImageRecord>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let _lock = self.lock("index.lock", FlockOperation::LockExclusive)?;
        let mut images = self.list()?;
        let changed = change(&mut images)?;
        let text = |image: &ImageRecord| (image.reference.clone(), image.platform.to_string());
        images.sort_by_key(text);
        let path = self.root.join("index.json");
        let index = Index {
            format: FORMAT,
            images,
        };
        let bytes =
            serde_json::to_vec_pretty(&index).map_err(|error| io_error("write", &path)(error.into()))?;
        write_atomically(&path, &self.staging(), &bytes)?;
        Ok(changed)
    }

    /// Lists an image, in place of what had its reference and platform.
    pub(crate) fn record(&self, image: ImageRecord) -> Result<(), StoreError> {
        self.change_index(|images| {
            images.retain(|other| (&other.reference, &other.platform) != (&image.reference, &image.platform));
            images.push(image);
            Ok(())
        })
    }
}
