//! Directories as tar archives. An upload is read as a whole and judged before anything is written.

use crate::link::files::LinkFiles;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use stead_provider::Files;
use stead_types::{FileEntry, FileKind, FilesError};
use stead_wire::MAX_FILE_CHUNK;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// Entries of one archive, as spec 03 section 3 has it.
const MAX_ENTRIES: usize = 1_000_000;

/// Deepest directory that is packed.
const MAX_DEPTH: usize = 1024;

/// Tar pads to blocks of this size.
const BLOCK: u64 = 512;

enum Content {
    Directory,
    /// Where its bytes are in the spool file.
    File {
        at: u64,
        size: u64,
    },
    Symlink(PathBuf),
}

struct Item {
    path: PathBuf,
    mode: u32,
    mtime: i64,
    content: Content,
}

fn refused(files: &LinkFiles, reason: impl Into<String>) -> FilesError {
    FilesError::Archive {
        instance: files.instance.clone(),
        reason: reason.into(),
    }
}

/// Unpacks an archive below `directory`.
pub async fn upload(
    files: &LinkFiles,
    directory: &Path,
    archive: &mut (dyn AsyncRead + Send + Unpin),
) -> Result<(), FilesError> {
    let spooled = spool(archive)
        .await
        .map_err(|error| refused(files, error.to_string()))?;
    let judged = tokio::task::spawn_blocking(move || judge(spooled)).await;
    let (mut spool, items) = match judged {
        Ok(Ok(judged)) => judged,
        Ok(Err(reason)) => return Err(refused(files, reason)),
        Err(error) => return Err(refused(files, error.to_string())),
    };
    files.make_directory(directory, 0o755).await?;
    // Links come last, so that no entry can be written through one.
    let (links, others): (Vec<_>, Vec<_>) = items
        .into_iter()
        .partition(|item| matches!(item.content, Content::Symlink(_)));
    for item in others.into_iter().chain(links) {
        let path = directory.join(&item.path);
        match item.content {
            Content::Directory => files.make_directory(&path, item.mode).await?,
            Content::Symlink(target) => files.make_symlink(&path, &target).await?,
            Content::File { at, size } => {
                write_file(files, &path, &mut spool, at, size, (item.mode, item.mtime)).await?;
            }
        }
    }
    Ok(())
}

async fn spool(archive: &mut (dyn AsyncRead + Send + Unpin)) -> io::Result<File> {
    let mut file = tokio::fs::File::from_std(tempfile::tempfile()?);
    tokio::io::copy(archive, &mut file).await?;
    file.flush().await?;
    Ok(file.into_std().await)
}

/// Reads all entries and refuses the archive for the first that is not harmless.
fn judge(mut spool: File) -> Result<(File, Vec<Item>), String> {
    spool
        .seek(SeekFrom::Start(0))
        .map_err(|error| error.to_string())?;
    let mut archive = tar::Archive::new(&spool);
    let mut items = Vec::new();
    for entry in archive.entries().map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        if items.len() >= MAX_ENTRIES {
            return Err(format!("more than {MAX_ENTRIES} entries"));
        }
        if let Some(item) = judge_entry(&entry)? {
            items.push(item);
        }
    }
    Ok((spool, items))
}

fn judge_entry(entry: &tar::Entry<'_, &File>) -> Result<Option<Item>, String> {
    let name = entry.path().map_err(|error| error.to_string())?;
    let path = inside(&name).ok_or_else(|| format!("{} leaves the directory", name.display()))?;
    let header = entry.header();
    let content = match header.entry_type() {
        tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => Content::File {
            at: entry.raw_file_position(),
            size: entry.size(),
        },
        tar::EntryType::Directory => Content::Directory,
        tar::EntryType::Symlink => {
            let target = entry.link_name().map_err(|error| error.to_string())?;
            let target = target.ok_or_else(|| format!("the link {} says nothing", path.display()))?;
            let stays = path.parent().is_some_and(|parent| stays_inside(parent, &target));
            if !stays {
                return Err(format!("the link {} leads out of the directory", path.display()));
            }
            Content::Symlink(target.into_owned())
        }
        // What `git archive` writes first; it is no file.
        tar::EntryType::XGlobalHeader => return Ok(None),
        other => {
            return Err(format!(
                "{} is of a kind that is not unpacked: {other:?}",
                path.display()
            ));
        }
    };
    if header.entry_type() == tar::EntryType::GNUSparse {
        return Err(format!(
            "{} is a sparse file, which is not unpacked",
            path.display()
        ));
    }
    if path.as_os_str().is_empty() && !matches!(content, Content::Directory) {
        return Err("an entry without a name".to_owned());
    }
    let mode = header.mode().map_err(|error| error.to_string())? & 0o777;
    let mtime = header
        .mtime()
        .ok()
        .and_then(|t| i64::try_from(t).ok())
        .unwrap_or(0);
    Ok(Some(Item {
        path,
        mode,
        mtime,
        content,
    }))
}

/// The path without `.`; `None` when it is absolute or has a `..`.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

/// Whether a link in `parent` that says `target` stays below the root.
fn stays_inside(parent: &Path, target: &Path) -> bool {
    let mut depth = parent.components().count();
    for component in target.components() {
        match component {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return false,
        }
    }
    true
}

async fn write_file(
    files: &LinkFiles,
    path: &Path,
    spool: &mut File,
    at: u64,
    size: u64,
    (mode, mtime): (u32, i64),
) -> Result<(), FilesError> {
    let handle = files.open_write(path, mode).await?;
    let mut left = size;
    let copied = async {
        spool
            .seek(SeekFrom::Start(at))
            .map_err(|error| refused(files, error.to_string()))?;
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(MAX_FILE_CHUNK);
            let mut part = vec![0; length];
            // A local file without a name, in the page cache: reading it does not wait.
            spool
                .read_exact(&mut part)
                .map_err(|error| refused(files, error.to_string()))?;
            files.write_part(path, handle, &part).await?;
            left -= length as u64;
        }
        Ok(())
    };
    if let Err(error) = copied.await {
        files.close(path, handle).await;
        return Err(error);
    }
    files.commit(path, handle, Some(mtime)).await
}

/// Packs `directory`.
pub async fn download(
    files: &LinkFiles,
    directory: &Path,
    archive: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<(), FilesError> {
    let failed = |error: io::Error| refused(files, error.to_string());
    let mut open = vec![PathBuf::new()];
    while let Some(relative) = open.pop() {
        if relative.components().count() > MAX_DEPTH {
            return Err(refused(files, format!("{} is too deep", relative.display())));
        }
        for entry in files.list(&directory.join(&relative)).await? {
            let name = relative.join(&entry.name);
            match entry.kind {
                FileKind::Directory => {
                    archive
                        .write_all(&header(&name, &entry, 0).map_err(failed)?)
                        .await
                        .map_err(failed)?;
                    open.push(name);
                }
                FileKind::Symlink => {
                    archive
                        .write_all(&header(&name, &entry, 0).map_err(failed)?)
                        .await
                        .map_err(failed)?;
                }
                FileKind::File => pack_file(files, &directory.join(&name), &name, &entry, archive).await?,
                // They have no content that an archive could carry.
                FileKind::Fifo | FileKind::Socket | FileKind::Device => {}
            }
        }
    }
    archive.write_all(&[0; 1024]).await.map_err(failed)?;
    archive.flush().await.map_err(failed)
}

async fn pack_file(
    files: &LinkFiles,
    path: &Path,
    name: &Path,
    entry: &FileEntry,
    archive: &mut (dyn AsyncWrite + Send + Unpin),
) -> Result<(), FilesError> {
    let failed = |error: io::Error| refused(files, error.to_string());
    let (handle, size) = files.open_read(path).await?;
    let copied = async {
        archive
            .write_all(&header(name, entry, size).map_err(failed)?)
            .await
            .map_err(failed)?;
        let mut done = 0;
        while done < size {
            let mut part = files.read_part(path, handle, done).await?;
            // The header has promised `size`: a file that grew is cut, one that shrank is an error.
            part.truncate(usize::try_from(size - done).unwrap_or(usize::MAX));
            if part.is_empty() {
                return Err(refused(
                    files,
                    format!("{} became shorter while it was read", path.display()),
                ));
            }
            archive.write_all(&part).await.map_err(failed)?;
            done += part.len() as u64;
        }
        let padding = usize::try_from((BLOCK - size % BLOCK) % BLOCK).unwrap_or(0);
        archive.write_all(&vec![0; padding]).await.map_err(failed)
    };
    let result = copied.await;
    files.close(path, handle).await;
    result
}

/// The blocks before an entry's content, with those for a long name.
fn header(name: &Path, entry: &FileEntry, size: u64) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(entry.uid.into());
    header.set_gid(entry.gid.into());
    header.set_mtime(u64::try_from(entry.mtime).unwrap_or(0));
    header.set_size(size);
    let mut builder = tar::Builder::new(Vec::new());
    match (&entry.kind, &entry.link_target) {
        (FileKind::Symlink, Some(target)) => {
            header.set_entry_type(tar::EntryType::Symlink);
            builder.append_link(&mut header, name, target)?;
        }
        (FileKind::Directory, _) => {
            header.set_entry_type(tar::EntryType::Directory);
            builder.append_data(&mut header, name, io::empty())?;
        }
        _ => {
            header.set_entry_type(tar::EntryType::Regular);
            builder.append_data(&mut header, name, io::empty())?;
        }
    }
    // Without `finish`, which would write the end of the archive.
    let bytes = builder.get_ref().clone();
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_root_are_inside() {
        assert_eq!(inside(Path::new("./a/./b")), Some("a/b".into()));
        assert_eq!(inside(Path::new("a..b/..c")), Some("a..b/..c".into()));
        for bad in ["/a", "..", "a/../b", "../a"] {
            assert_eq!(inside(Path::new(bad)), None, "{bad}");
        }
    }

    #[test]
    fn a_link_may_climb_only_to_the_root() {
        assert!(stays_inside(Path::new("a/b"), Path::new("../../c")));
        assert!(stays_inside(Path::new(""), Path::new("c")));
        for (parent, target) in [("a", "../../c"), ("", ".."), ("a", "/etc"), ("a", "b/../../../c")] {
            assert!(
                !stays_inside(Path::new(parent), Path::new(target)),
                "{parent} -> {target}"
            );
        }
    }
}
