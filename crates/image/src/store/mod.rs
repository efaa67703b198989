//! The store of images: a folder of one user.
//!
//! ```text
//! images/
//!   index.json             what there is; replaced as a whole
//!   blobs/sha256/HEX       manifests and configurations
//!   layers/sha256/HEX/     unpacked layers by diff id, each a lower directory for overlayfs
//!   layers/sha256/HEX.json what is known of the layer
//!   partial/HEX            blobs of layers that are being transferred, or were
//!   leases/ID              which layers somebody uses
//!   staging/               what is being made; only renamed from here
//!   content.lock           shared by who adds or leases, exclusive by who removes
//!   index.lock             for who replaces the index
//! ```
//!
//! What has its final name is complete, because it got that name last. Whoever is killed leaves something in
//! `staging` or `partial` at most, and holds no lock any more.

mod collect;
mod index;
mod lease;

pub use collect::Removed;
pub use index::ImageRecord;
pub use lease::Lease;

use crate::digest::Digest;
use crate::error::StoreError;
use crate::manifest::{self, ImageConfig};
use crate::platform::Platform;
use crate::reference::Reference;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A small file of ours that is larger is none of ours.
const MAX_OWN_FILE: u64 = 32 << 20;

/// Images and layers of one user. Any number of processes may have it open.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// An image that can be used: its layers are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// As it was pulled.
    pub reference: String,
    /// Of its manifest; for an image of an archive or engine, which have none, of its configuration.
    pub digest: Digest,
    /// What it runs on.
    pub platform: Platform,
    /// How it wants to be started.
    pub config: ImageConfig,
    /// Its layers as folders, the top one first: the order of overlayfs's `lowerdir`, to be mounted with `userxattr`.
    pub layers: Vec<PathBuf>,
}

/// What is known of an unpacked layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerFacts {
    pub bytes: u64,
    pub entries: u64,
    pub devices: u64,
}

/// An error of the system about a path.
pub(crate) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { what, path, source }
}

impl Store {
    /// Opens the store in a data folder, and makes what is missing, for this user alone.
    pub fn open(data: &Path) -> Result<Self, StoreError> {
        let root = data.join("images");
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        for part in ["blobs/sha256", "layers/sha256", "partial", "leases", "staging"] {
            let folder = root.join(part);
            builder.create(&folder).map_err(io_error("make", &folder))?;
        }
        let found = std::fs::symlink_metadata(&root).map_err(io_error("look at", &root))?;
        let us = rustix::process::geteuid().as_raw();
        if !found.is_dir() || found.uid() != us || found.mode() & 0o077 != 0 {
            let reason = "it is not a folder that belongs to this user and is open to nobody else".to_owned();
            return Err(StoreError::Folder { folder: root, reason });
        }
        Ok(Self { root })
    }

    /// Opens the store of this user, in [`data_folder`].
    pub fn open_default() -> Result<Self, StoreError> {
        let data = data_folder(|name| std::env::var_os(name)).ok_or(StoreError::NoFolder)?;
        Self::open(&data)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn partial(&self, digest: &Digest) -> PathBuf {
        self.root.join("partial").join(digest.hex())
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.root.join("staging")
    }

    fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hex())
    }

    /// The folder of a layer, whether it is there or not.
    pub(crate) fn layer(&self, diff_id: &Digest) -> PathBuf {
        self.root.join("layers/sha256").join(diff_id.hex())
    }

    fn facts_path(&self, diff_id: &Digest) -> PathBuf {
        self.layer(diff_id).with_extension("json")
    }

    /// What is known of a layer; `None` where it is not there.
    pub(crate) fn layer_facts(&self, diff_id: &Digest) -> Result<Option<LayerFacts>, StoreError> {
        if !self.layer(diff_id).is_dir() {
            return Ok(None);
        }
        let path = self.facts_path(diff_id);
        let bytes = read_own(&path)?;
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| StoreError::Damaged {
                path,
                reason: format!("cannot be read: {error}"),
            })
    }

    /// Puts a layer where it belongs. One that is there already is the same.
    pub(crate) fn add_layer(
        &self,
        diff_id: &Digest,
        made: &Path,
        facts: LayerFacts,
    ) -> Result<(), StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(made, flags, Mode::empty());
        let synced = folder.and_then(rustix::fs::syncfs);
        synced.map_err(|error| io_error("write out", made)(error.into()))?;
        let facts = serde_json::to_vec(&facts).map_err(|error| io_error("describe", made)(error.into()))?;
        write_atomically(&self.facts_path(diff_id), &self.staging(), &facts)?;
        let target = self.layer(diff_id);
        match std::fs::rename(made, &target) {
            Ok(()) => sync_folder(target.parent().unwrap_or(&self.root)),
            Err(_) if target.is_dir() => Ok(()),
            Err(error) => Err(io_error("put in place", &target)(error)),
        }
    }

    /// Puts a manifest or configuration where it belongs.
    pub(crate) fn add_blob(&self, bytes: &[u8]) -> Result<Digest, StoreError> {
        let digest = Digest::of(bytes);
        write_atomically(&self.blob(&digest), &self.staging(), bytes)?;
        Ok(digest)
    }

    fn read_blob(&self, digest: &Digest) -> Result<Vec<u8>, StoreError> {
        let path = self.blob(digest);
        let bytes = read_own(&path)?;
        match Digest::of(&bytes) == *digest {
            true => Ok(bytes),
            false => Err(StoreError::Damaged {
                path,
                reason: "has other content than its name says".to_owned(),
            }),
        }
    }

    /// The image that was pulled under this reference for this platform. Who goes on to use its layers
    /// takes [`Self::lease`] instead, which keeps them.
    pub fn find(&self, reference: &Reference, platform: &Platform) -> Result<Image, StoreError> {
        let wanted = reference.to_string();
        let records = self.list()?;
        let fits = records.iter().filter(|record| record.reference == wanted);
        let best = fits.filter_map(|record| Some((platform.fit(&record.platform)?, record)));
        match best.max_by_key(|(fit, _)| *fit) {
            Some((_, record)) => self.image(record),
            None => Err(StoreError::Missing {
                wanted: format!("{wanted} for {platform}"),
            }),
        }
    }

    fn image(&self, record: &ImageRecord) -> Result<Image, StoreError> {
        let config = manifest::read_config(&self.read_blob(&record.config)?).map_err(|reason| {
            StoreError::Damaged {
                path: self.blob(&record.config),
                reason,
            }
        })?;
        let mut layers = Vec::new();
        for diff_id in record.layers.iter().rev() {
            let folder = self.layer(diff_id);
            if !folder.is_dir() {
                return Err(StoreError::Damaged {
                    path: folder,
                    reason: "is gone".to_owned(),
                });
            }
            let hides_the_rest = hides_all_below(&folder)?;
            // A mount refuses the same folder twice, and the one on top hides the other anyway.
            if !layers.contains(&folder) {
                layers.push(folder);
            }
            if hides_the_rest {
                break;
            }
        }
        Ok(Image {
            reference: record.reference.clone(),
            digest: record.digest,
            platform: record.platform.clone(),
            config: config.runtime,
            layers,
        })
    }

    /// Nothing is removed while this is held, and others may add too.
    pub(crate) fn keep_content(&self) -> Result<File, StoreError> {
        self.lock("content.lock", FlockOperation::LockShared)
    }

    fn lock(&self, name: &str, how: FlockOperation) -> Result<File, StoreError> {
        let path = self.root.join(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR);
        let file = file.map_err(|error| io_error("open", &path)(error.into()))?;
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, how)).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => StoreError::Busy {
                folder: self.root.clone(),
            },
            error => io_error("lock", &path)(error.into()),
        })?;
        Ok(file.into())
    }
}

/// The mark of an opaque folder on the folder of the layer itself, which a mount does not look at.
fn hides_all_below(layer: &Path) -> Result<bool, StoreError> {
    let mut value = [0; 8];
    match rustix::fs::lgetxattr(layer, crate::unpack::OPAQUE, &mut value) {
        Ok(length) => Ok(value[..length] == *b"y"),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP) => Ok(false),
        Err(error) => Err(io_error("look at", layer)(error.into())),
    }
}

/// Where data is kept: `STEAD_DATA_DIR`, else `/var/lib/stead` for root, else `stead` in `XDG_DATA_HOME` or in
/// `~/.local/share`. Relative paths count as none.
pub fn data_folder(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let folder = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if let Some(chosen) = folder("STEAD_DATA_DIR") {
        return Some(chosen);
    }
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/stead".into());
    }
    let home = || folder("HOME").map(|home| home.join(".local/share"));
    Some(folder("XDG_DATA_HOME").or_else(home)?.join("stead"))
}

/// Writes a file beside its place, and puts it there when it is on the disk.
fn write_atomically(path: &Path, staging: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(staging)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(io_error("write", path))?;
    sync_folder(path.parent().unwrap_or(staging))
}

fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(io_error("write out", folder))
}

fn read_own(path: &Path) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_OWN_FILE).read_to_end(&mut bytes));
    match read {
        Ok(length) if (length as u64) < MAX_OWN_FILE => Ok(bytes),
        Ok(_) => Err(StoreError::Damaged {
            path: path.to_owned(),
            reason: "is too large".to_owned(),
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(StoreError::Damaged {
            path: path.to_owned(),
            reason: "is gone".to_owned(),
        }),
        Err(error) => Err(io_error("read", path)(error)),
    }
}
