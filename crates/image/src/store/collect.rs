//! Removing images, and what no image needs.

use super::{ImageRecord, Store, io_error};
use crate::digest::Digest;
use crate::error::StoreError;
use rustix::fs::FlockOperation;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::DirEntry;
use std::path::Path;

/// Fewer digits of a digest name no image.
const MIN_DIGITS: usize = 12;

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removed {
    /// Images that are not listed any more.
    pub images: Vec<ImageRecord>,
    /// Layers by diff id.
    pub layers: Vec<Digest>,
    /// Bytes of those layers' uncompressed archives, and of transfers that were broken off.
    pub bytes: u64,
    /// A pull or a mount is running, so that content was left for the next prune.
    pub deferred: bool,
}

impl Store {
    /// Removes images by their reference, or by their digest or the first 12 or more of its digits, and then
    /// what nothing needs any more.
    pub fn remove(&self, wanted: &str) -> Result<Removed, StoreError> {
        let digits = wanted.strip_prefix("sha256:").unwrap_or(wanted);
        let is_short = digits.len() >= MIN_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let named = |image: &ImageRecord| {
            image.reference == wanted || is_short && image.digest.hex().starts_with(digits)
        };
        let images = self.change_index(|images| {
            let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(images).into_iter().partition(named);
            let several: HashSet<Digest> = gone.iter().map(|image| image.digest).collect();
            if gone.is_empty() || is_short && several.len() > 1 {
                let wanted = wanted.chars().take(200).collect();
                return Err(StoreError::Missing { wanted });
            }
            *images = kept;
            Ok(gone)
        })?;
        match self.prune() {
            Ok(removed) => Ok(Removed { images, ..removed }),
            Err(StoreError::Busy { .. }) => Ok(Removed {
                images,
                deferred: true,
                ..Removed::default()
            }),
            Err(error) => Err(error),
        }
    }

    /// Removes what no image and no lease needs, and what broken transfers and killed processes have left.
    pub fn prune(&self) -> Result<Removed, StoreError> {
        let _content = self.lock("content.lock", FlockOperation::NonBlockingLockExclusive)?;
        let images = self.list()?;
        let leased = self.leased()?;
        let layers: HashSet<Digest> = images
            .iter()
            .flat_map(|image| &image.layers)
            .chain(&leased)
            .copied()
            .collect();
        let blobs: HashSet<Digest> = images
            .iter()
            .flat_map(|image| [image.digest, image.config])
            .collect();
        let mut removed = Removed::default();
        self.each("layers/sha256", |entry| {
            self.sweep_layer(entry, &layers, &mut removed)
        })?;
        self.each("blobs/sha256", |entry| match digest_of(&entry.file_name()) {
            Some(digest) if blobs.contains(&digest) => Ok(()),
            _ => remove(&entry.path()),
        })?;
        self.each("partial", |entry| {
            removed.bytes += entry.metadata().map_or(0, |found| found.len());
            remove(&entry.path())
        })?;
        self.each("staging", |entry| remove(&entry.path()))?;
        Ok(removed)
    }

    fn sweep_layer(
        &self,
        entry: &DirEntry,
        needed: &HashSet<Digest>,
        removed: &mut Removed,
    ) -> Result<(), StoreError> {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let digest = path.file_stem().and_then(digest_of);
        match digest {
            Some(digest) if needed.contains(&digest) => Ok(()),
            Some(digest) if is_folder => {
                removed.bytes += self
                    .layer_facts(&digest)
                    .ok()
                    .flatten()
                    .map_or(0, |facts| facts.bytes);
                removed.layers.push(digest);
                // Out of sight at once: nobody may find half of it.
                let aside = self.staging().join(digest.hex());
                std::fs::rename(&path, &aside).map_err(io_error("put aside", &path))?;
                remove(&self.facts_path(&digest))?;
                remove(&aside)
            }
            // The description of a layer goes with it, or is of one that was never finished.
            Some(digest) if self.layer(&digest).is_dir() => Ok(()),
            _ => remove(&path),
        }
    }

    fn each(
        &self,
        part: &str,
        mut act: impl FnMut(&DirEntry) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let folder = self.root.join(part);
        for entry in std::fs::read_dir(&folder).map_err(io_error("list", &folder))? {
            act(&entry.map_err(io_error("list", &folder))?)?;
        }
        Ok(())
    }
}

fn digest_of(name: &OsStr) -> Option<Digest> {
    Digest::from_hex(name.to_str()?)
}

/// Whatever it is. Links are removed and not followed.
fn remove(path: &Path) -> Result<(), StoreError> {
    let done = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error("remove", path)(error)),
        _ => Ok(()),
    }
}
