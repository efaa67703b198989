//! Files of a place, through its supervisor.

use crate::link::Link;
use crate::link::tar;
use async_trait::async_trait;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use stead_provider::Files;
use stead_types::command::InvalidInput;
use stead_types::command::check_nul;
use stead_types::{FileEntry, FileKind, FilesError, InstanceId};
use stead_wire::{FileAnswer, FileRequest, MAX_FILE_CHUNK};
use tokio::io::{AsyncRead, AsyncWrite};

/// Entries of a page of a listing.
const PAGE: u32 = 500;

/// Deepest directory that is removed or packed; a deeper one is an error, not an overflow.
const MAX_DEPTH: usize = 1024;

/// Files of one instance.
pub struct LinkFiles {
    pub(super) link: Link,
    pub(super) instance: InstanceId,
}

/// What can go wrong with one request: the place's own error, or the link's end.
type Answered<T> = Result<T, FilesError>;

impl LinkFiles {
    /// The files behind a link.
    pub fn new(link: Link, instance: InstanceId) -> Self {
        Self { link, instance }
    }

    fn io(&self, path: &Path, source: io::Error) -> FilesError {
        FilesError::Io {
            instance: self.instance.clone(),
            path: path.display().to_string(),
            source,
        }
    }

    fn check(&self, path: &Path) -> Answered<Vec<u8>> {
        let invalid = |source| FilesError::Invalid {
            instance: self.instance.clone(),
            source,
        };
        check_nul("the path", path.as_os_str()).map_err(invalid)?;
        if !path.is_absolute() {
            return Err(invalid(InvalidInput::RelativePath {
                path: path.display().to_string(),
            }));
        }
        Ok(path.as_os_str().as_bytes().to_vec())
    }

    async fn ask(&self, path: &Path, request: FileRequest, body: &[u8]) -> Answered<(FileAnswer, Vec<u8>)> {
        match self.link.file(request, body).await {
            Ok((FileAnswer::Failed { errno }, _)) => Err(self.io(path, io::Error::from_raw_os_error(errno))),
            Ok(answer) => Ok(answer),
            Err(reason) => Err(FilesError::Lost {
                instance: self.instance.clone(),
                reason,
            }),
        }
    }

    fn unexpected(&self) -> FilesError {
        let reason = "its supervisor gave an answer of another kind".to_owned();
        FilesError::Lost {
            instance: self.instance.clone(),
            reason,
        }
    }

    async fn do_it(&self, path: &Path, request: FileRequest, body: &[u8]) -> Answered<()> {
        match self.ask(path, request, body).await? {
            (FileAnswer::Done, _) => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    async fn open(&self, path: &Path, request: FileRequest) -> Answered<(u64, u64)> {
        match self.ask(path, request, &[]).await? {
            (FileAnswer::Opened { handle, size }, _) => Ok((handle, size)),
            _ => Err(self.unexpected()),
        }
    }

    /// Opens a file to read; gives its handle and its length now.
    pub(super) async fn open_read(&self, path: &Path) -> Answered<(u64, u64)> {
        let request = FileRequest::OpenRead {
            path: self.check(path)?,
        };
        self.open(path, request).await
    }

    /// Reads a part; empty is the end.
    pub(super) async fn read_part(&self, path: &Path, handle: u64, offset: u64) -> Answered<Vec<u8>> {
        let length = u32::try_from(MAX_FILE_CHUNK).unwrap_or(u32::MAX);
        match self
            .ask(
                path,
                FileRequest::Read {
                    handle,
                    offset,
                    length,
                },
                &[],
            )
            .await?
        {
            (FileAnswer::Content, content) => Ok(content),
            _ => Err(self.unexpected()),
        }
    }

    /// Gives up a handle; that it could not be given up is no news for the caller.
    pub(super) async fn close(&self, path: &Path, handle: u64) {
        let _ = self.do_it(path, FileRequest::Close { handle }, &[]).await;
    }

    /// Begins to write a file.
    pub(super) async fn open_write(&self, path: &Path, mode: u32) -> Answered<u64> {
        let request = FileRequest::OpenWrite {
            path: self.check(path)?,
            mode,
            create_parents: true,
        };
        Ok(self.open(path, request).await?.0)
    }

    /// Appends a part.
    pub(super) async fn write_part(&self, path: &Path, handle: u64, part: &[u8]) -> Answered<()> {
        self.do_it(path, FileRequest::Write { handle }, part).await
    }

    /// Makes the written file appear.
    pub(super) async fn commit(&self, path: &Path, handle: u64, mtime: Option<i64>) -> Answered<()> {
        self.do_it(path, FileRequest::Commit { handle, mtime }, &[]).await
    }

    /// Makes a directory and those above.
    pub(super) async fn make_directory(&self, path: &Path, mode: u32) -> Answered<()> {
        let request = FileRequest::MakeDirectory {
            path: self.check(path)?,
            mode,
            parents: true,
        };
        self.do_it(path, request, &[]).await
    }

    /// Makes a link.
    pub(super) async fn make_symlink(&self, path: &Path, target: &Path) -> Answered<()> {
        let target = target.as_os_str().as_bytes().to_vec();
        self.do_it(
            path,
            FileRequest::MakeSymlink {
                path: self.check(path)?,
                target,
            },
            &[],
        )
        .await
    }

    async fn page(&self, path: &Path, after: Vec<u8>) -> Answered<Vec<FileEntry>> {
        let request = FileRequest::List {
            path: self.check(path)?,
            after,
            limit: PAGE,
        };
        match self.ask(path, request, &[]).await? {
            (FileAnswer::Entries(entries), _) => Ok(entries.into_iter().map(public).collect()),
            _ => Err(self.unexpected()),
        }
    }

    /// Removes what is left of a tree, deepest first, without following links.
    async fn remove_tree(&self, path: &Path) -> Answered<()> {
        // Directories to look into; one is removed when nothing is left in it.
        let mut open = vec![path.to_owned()];
        while let Some(directory) = open.last().cloned() {
            if open.len() > MAX_DEPTH {
                return Err(self.io(
                    &directory,
                    io::Error::from_raw_os_error(rustix::io::Errno::LOOP.raw_os_error()),
                ));
            }
            let mut deeper = None;
            for entry in self.page(&directory, Vec::new()).await? {
                let at = directory.join(&entry.name);
                if entry.kind == FileKind::Directory {
                    deeper = Some(at);
                    break;
                }
                self.do_it(
                    &at,
                    FileRequest::Remove {
                        path: self.check(&at)?,
                    },
                    &[],
                )
                .await?;
            }
            match deeper {
                Some(deeper) => open.push(deeper),
                None if self.page(&directory, Vec::new()).await?.is_empty() => {
                    self.do_it(
                        &directory,
                        FileRequest::Remove {
                            path: self.check(&directory)?,
                        },
                        &[],
                    )
                    .await?;
                    open.pop();
                }
                // More pages.
                None => {}
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Files for LinkFiles {
    async fn read(&self, path: &Path) -> Result<Vec<u8>, FilesError> {
        let (handle, size) = self.open_read(path).await?;
        let mut content = Vec::with_capacity(usize::try_from(size.min(1 << 26)).unwrap_or(0));
        let result = loop {
            match self.read_part(path, handle, content.len() as u64).await {
                Ok(part) if part.is_empty() => break Ok(content),
                Ok(part) => content.extend_from_slice(&part),
                Err(error) => break Err(error),
            }
        };
        self.close(path, handle).await;
        result
    }

    async fn write(&self, path: &Path, content: &[u8], mode: Option<u32>) -> Result<(), FilesError> {
        let handle = self.open_write(path, mode.unwrap_or(0o644)).await?;
        for part in content.chunks(MAX_FILE_CHUNK) {
            if let Err(error) = self.write_part(path, handle, part).await {
                self.close(path, handle).await;
                return Err(error);
            }
        }
        self.commit(path, handle, None).await
    }

    async fn list(&self, path: &Path) -> Result<Vec<FileEntry>, FilesError> {
        let mut entries: Vec<FileEntry> = Vec::new();
        loop {
            let after = entries
                .last()
                .map(|entry| entry.name.as_bytes().to_vec())
                .unwrap_or_default();
            let page = self.page(path, after).await?;
            let last = page.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
            entries.extend(page);
            if last {
                return Ok(entries);
            }
        }
    }

    async fn stat(&self, path: &Path) -> Result<FileEntry, FilesError> {
        let request = FileRequest::Stat {
            path: self.check(path)?,
            follow: false,
        };
        match self.ask(path, request, &[]).await? {
            (FileAnswer::Entry(entry), _) => Ok(public(entry)),
            _ => Err(self.unexpected()),
        }
    }

    async fn remove(&self, path: &Path) -> Result<(), FilesError> {
        match self.stat(path).await?.kind {
            FileKind::Directory => self.remove_tree(path).await,
            _ => {
                self.do_it(
                    path,
                    FileRequest::Remove {
                        path: self.check(path)?,
                    },
                    &[],
                )
                .await
            }
        }
    }

    async fn upload_tar(
        &self,
        directory: &Path,
        archive: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<(), FilesError> {
        self.check(directory)?;
        tar::upload(self, directory, archive).await
    }

    async fn download_tar(
        &self,
        directory: &Path,
        archive: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<(), FilesError> {
        self.check(directory)?;
        tar::download(self, directory, archive).await
    }
}

fn public(entry: stead_wire::FileEntry) -> FileEntry {
    let kind = match entry.kind {
        stead_wire::FileKind::File => FileKind::File,
        stead_wire::FileKind::Directory => FileKind::Directory,
        stead_wire::FileKind::Symlink => FileKind::Symlink,
        stead_wire::FileKind::Fifo => FileKind::Fifo,
        stead_wire::FileKind::Socket => FileKind::Socket,
        stead_wire::FileKind::Device => FileKind::Device,
    };
    FileEntry {
        name: OsString::from_vec(entry.name),
        kind,
        size: entry.size,
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        mtime: entry.mtime,
        link_target: entry
            .link_target
            .map(|target| PathBuf::from(OsString::from_vec(target))),
    }
}
