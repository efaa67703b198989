//! Files of an instance.

use async_trait::async_trait;
use std::path::Path;
use stead_types::{FileEntry, FilesError};
use tokio::io::{AsyncRead, AsyncWrite};

/// Reads and writes files of one instance, byte exact. Paths are absolute in the place.
#[async_trait]
pub trait Files: Send + Sync {
    /// The content of a regular file.
    async fn read(&self, path: &Path) -> Result<Vec<u8>, FilesError>;

    /// Makes `content` the content of a file: a reader sees the old or the new, never half. Missing
    /// directories above are made. `mode` defaults to 0644.
    async fn write(&self, path: &Path, content: &[u8], mode: Option<u32>) -> Result<(), FilesError>;

    /// The entries of a directory, by name in byte order.
    async fn list(&self, path: &Path) -> Result<Vec<FileEntry>, FilesError>;

    /// What is at a path; a link itself is described, not what it points to.
    async fn stat(&self, path: &Path) -> Result<FileEntry, FilesError>;

    /// Removes a file, a link, or a directory with all in it, following no link. Nothing there is an error.
    async fn remove(&self, path: &Path) -> Result<(), FilesError>;

    /// Unpacks a tar archive below a directory, which is made if it is missing. An archive with an
    /// absolute name, `..`, a link that leads out, or a device is refused before anything is written.
    async fn upload_tar(
        &self,
        directory: &Path,
        archive: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<(), FilesError>;

    /// Packs a directory: regular files, directories and symbolic links; names are relative to it.
    async fn download_tar(
        &self,
        directory: &Path,
        archive: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<(), FilesError>;
}
