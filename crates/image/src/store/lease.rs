//! Who uses layers, so that they are not removed meanwhile.

use super::{Image, Store, io_error};
use crate::digest::Digest;
use crate::error::StoreError;
use crate::platform::Platform;
use crate::reference::Reference;
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Keeps the layers of an image. It ends when it is dropped, or when the last process ends that holds its
/// descriptor; so nothing has to be cleaned up after a process that was killed.
#[derive(Debug)]
pub struct Lease {
    file: File,
    path: PathBuf,
}

impl Lease {
    /// The descriptor that holds it, for the process that keeps a mount: the lease then ends with the last
    /// copy of it.
    pub fn into_descriptor(mut self) -> Result<OwnedFd, StoreError> {
        let copy = self.file.try_clone().map_err(io_error("share", &self.path))?;
        // Its name stays, by which it is found.
        self.path = PathBuf::new();
        Ok(copy.into())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // One that stays is seen to be nobody's by the next prune.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Store {
    /// Finds an image and keeps its layers.
    pub fn lease(&self, reference: &Reference, platform: &Platform) -> Result<(Image, Lease), StoreError> {
        let _content = self.keep_content()?;
        let image = self.find(reference, platform)?;
        let names = image.layers.iter().filter_map(|layer| layer.file_name());
        let text: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        let folder = self.root.join("leases");
        let make = || -> std::io::Result<(File, PathBuf)> {
            let mut file = tempfile::Builder::new().prefix("lease-").tempfile_in(&folder)?;
            rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
            file.write_all(text.join("\n").as_bytes())?;
            Ok(file.keep()?)
        };
        let (file, path) = make().map_err(io_error("write a lease in", &folder))?;
        Ok((image, Lease { file, path }))
    }

    /// The layers that are in use. Leases of nobody are removed; only for who holds the content exclusively.
    pub(super) fn leased(&self) -> Result<Vec<Digest>, StoreError> {
        let folder = self.root.join("leases");
        let mut layers = Vec::new();
        for entry in std::fs::read_dir(&folder).map_err(io_error("list", &folder))? {
            let path = entry.map_err(io_error("list", &folder))?.path();
            let file = match File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error("open", &path)(error)),
            };
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
                Ok(()) => std::fs::remove_file(&path).map_err(io_error("remove", &path))?,
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let text = super::read_own(&path)?;
                    let text = String::from_utf8_lossy(&text);
                    layers.extend(text.lines().filter_map(Digest::from_hex));
                }
                Err(error) => return Err(io_error("lock", &path)(error.into())),
            }
        }
        Ok(layers)
    }
}
