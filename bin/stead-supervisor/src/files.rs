//! Files of the place, for the host. We run inside the place, so every path is resolved by the place's own
//! rules and no link can lead out of it.

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use stead_process::user::User;
use stead_wire::{FileAnswer, FileEntry, FileKind, FileRequest, MAX_FILE_CHUNK};

/// Open handles at once; a host that opens more has lost count.
const MAX_HANDLES: usize = 256;

enum Handle {
    Reading(File),
    Writing {
        file: File,
        temporary: PathBuf,
        path: PathBuf,
    },
}

/// Open handles, and whom new files belong to.
#[derive(Default)]
pub struct Files {
    handles: HashMap<u64, Handle>,
    next: u64,
    owner: Option<(u32, u32)>,
}

fn path_of(bytes: &[u8]) -> io::Result<&Path> {
    let path = Path::new(OsStr::from_bytes(bytes));
    if !path.is_absolute() || bytes.contains(&0) {
        return Err(Errno::INVAL.into());
    }
    Ok(path)
}

impl Files {
    /// New files and directories belong to `user`.
    pub fn new(user: Option<&User>) -> Self {
        Self {
            owner: user.map(|user| (user.identity.uid, user.identity.gid)),
            ..Self::default()
        }
    }

    /// Does what is asked; the second part is the body of the answer.
    pub fn answer(&mut self, request: FileRequest, body: &[u8]) -> (FileAnswer, Vec<u8>) {
        match self.perform(request, body) {
            Ok(answer) => answer,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
                (FileAnswer::Failed { errno }, Vec::new())
            }
        }
    }

    fn perform(&mut self, request: FileRequest, body: &[u8]) -> io::Result<(FileAnswer, Vec<u8>)> {
        let answer = match request {
            FileRequest::Stat { path, follow } => FileAnswer::Entry(stat(path_of(&path)?, follow)?),
            FileRequest::List { path, after, limit } => {
                FileAnswer::Entries(list(path_of(&path)?, &after, limit)?)
            }
            FileRequest::OpenRead { path } => self.open_read(path_of(&path)?)?,
            FileRequest::Read {
                handle,
                offset,
                length,
            } => {
                return Ok((FileAnswer::Content, self.read(handle, offset, length)?));
            }
            FileRequest::OpenWrite {
                path,
                mode,
                create_parents,
            } => self.open_write(path_of(&path)?, mode, create_parents)?,
            FileRequest::Write { handle } => self.write(handle, body)?,
            FileRequest::Commit { handle, mtime } => self.commit(handle, mtime)?,
            FileRequest::Close { handle } => {
                self.close(handle);
                FileAnswer::Done
            }
            FileRequest::MakeDirectory { path, mode, parents } => {
                self.make_directory(path_of(&path)?, mode, parents)?;
                FileAnswer::Done
            }
            FileRequest::MakeSymlink { path, target } => self.make_symlink(path_of(&path)?, &target)?,
            FileRequest::Remove { path } => remove(path_of(&path)?)?,
        };
        Ok((answer, Vec::new()))
    }

    fn keep(&mut self, handle: Handle) -> io::Result<u64> {
        if self.handles.len() >= MAX_HANDLES {
            return Err(Errno::MFILE.into());
        }
        self.next += 1;
        self.handles.insert(self.next, handle);
        Ok(self.next)
    }

    fn open_read(&mut self, path: &Path) -> io::Result<FileAnswer> {
        // Non-blocking, so that a named pipe does not hold us up before we see what it is.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        if !metadata.is_file() {
            return Err(Errno::INVAL.into());
        }
        let size = metadata.len();
        let handle = self.keep(Handle::Reading(file))?;
        Ok(FileAnswer::Opened { handle, size })
    }

    fn read(&mut self, handle: u64, offset: u64, length: u32) -> io::Result<Vec<u8>> {
        let Some(Handle::Reading(file)) = self.handles.get_mut(&handle) else {
            return Err(Errno::BADF.into());
        };
        file.seek(SeekFrom::Start(offset))?;
        let length = u64::from(length).min(MAX_FILE_CHUNK as u64);
        let mut content = Vec::new();
        file.take(length).read_to_end(&mut content)?;
        Ok(content)
    }

    fn open_write(&mut self, path: &Path, mode: u32, create_parents: bool) -> io::Result<FileAnswer> {
        let directory = path.parent().ok_or(Errno::ISDIR)?;
        let name = path.file_name().ok_or(Errno::INVAL)?;
        if create_parents {
            self.make_directory(directory, 0o755, true)?;
        }
        if fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
            return Err(Errno::ISDIR.into());
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
        let suffix: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        // A long name must not become too long by what we add.
        let stem = &name.as_bytes()[..name.len().min(200)];
        let temporary = directory.join(OsStr::from_bytes(&[b".", stem, b".", suffix.as_bytes()].concat()));
        let file = File::options().write(true).create_new(true).open(&temporary)?;
        let prepared = file
            .set_permissions(fs::Permissions::from_mode(mode & 0o7777))
            .and_then(|()| self.give(&temporary));
        if let Err(error) = prepared {
            let _ = fs::remove_file(&temporary);
            return Err(error);
        }
        let handle = self.keep(Handle::Writing {
            file,
            temporary,
            path: path.to_owned(),
        })?;
        Ok(FileAnswer::Opened { handle, size: 0 })
    }

    fn write(&mut self, handle: u64, body: &[u8]) -> io::Result<FileAnswer> {
        let Some(Handle::Writing { file, .. }) = self.handles.get_mut(&handle) else {
            return Err(Errno::BADF.into());
        };
        file.write_all(body)?;
        Ok(FileAnswer::Done)
    }

    fn commit(&mut self, handle: u64, mtime: Option<i64>) -> io::Result<FileAnswer> {
        let Some(Handle::Writing {
            file,
            temporary,
            path,
        }) = self.handles.get(&handle)
        else {
            return Err(Errno::BADF.into());
        };
        if let Some(seconds) = mtime {
            let time = rustix::fs::Timespec {
                tv_sec: seconds,
                tv_nsec: 0,
            };
            rustix::fs::futimens(
                file,
                &rustix::fs::Timestamps {
                    last_access: time,
                    last_modification: time,
                },
            )?;
        }
        let committed = file.sync_data().and_then(|()| fs::rename(temporary, path));
        if committed.is_err() {
            self.close(handle);
        } else {
            self.handles.remove(&handle);
        }
        committed.map(|()| FileAnswer::Done)
    }

    fn close(&mut self, handle: u64) {
        if let Some(Handle::Writing { temporary, .. }) = self.handles.remove(&handle) {
            let _ = fs::remove_file(temporary);
        }
    }

    /// Gives up what a host that is gone had open.
    pub fn close_all(&mut self) {
        let handles: Vec<u64> = self.handles.keys().copied().collect();
        handles.into_iter().for_each(|handle| self.close(handle));
    }

    /// Makes a directory; `parents` also those above, with 0755.
    pub fn make_directory(&self, path: &Path, mode: u32, parents: bool) -> io::Result<()> {
        if fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            return Ok(());
        }
        if parents && let Some(above) = path.parent() {
            self.make_directory(above, 0o755, true)?;
        }
        fs::create_dir(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o7777))?;
        self.give(path)
    }

    fn make_symlink(&self, path: &Path, target: &[u8]) -> io::Result<FileAnswer> {
        match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.is_dir() => fs::remove_file(path)?,
            _ => {}
        }
        std::os::unix::fs::symlink(OsStr::from_bytes(target), path)?;
        self.give(path)?;
        Ok(FileAnswer::Done)
    }

    /// New files belong to the place's user, where we may give them away.
    fn give(&self, path: &Path) -> io::Result<()> {
        if let Some((uid, gid)) = self.owner
            && rustix::process::geteuid().is_root()
        {
            std::os::unix::fs::lchown(path, Some(uid), Some(gid))?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<FileAnswer> {
    let is_directory = fs::symlink_metadata(path)?.is_dir();
    let flags = if is_directory {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    rustix::fs::unlinkat(rustix::fs::CWD, path, flags)?;
    Ok(FileAnswer::Done)
}

fn stat(path: &Path, follow: bool) -> io::Result<FileEntry> {
    let metadata = if follow {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    }?;
    entry(path, &metadata)
}

fn entry(path: &Path, metadata: &Metadata) -> io::Result<FileEntry> {
    let kind = metadata.file_type();
    let link_target = kind
        .is_symlink()
        .then(|| fs::read_link(path))
        .transpose()?
        .map(|target| target.into_os_string().into_vec());
    let kind = match kind {
        kind if kind.is_file() => FileKind::File,
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_symlink() => FileKind::Symlink,
        kind if kind.is_fifo() => FileKind::Fifo,
        kind if kind.is_socket() => FileKind::Socket,
        _ => FileKind::Device,
    };
    Ok(FileEntry {
        name: path.file_name().unwrap_or(OsStr::new("/")).as_bytes().to_vec(),
        kind,
        size: metadata.len(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: metadata.mtime(),
        link_target,
    })
}

/// The entries behind `after`, in byte order. Only the names of the page are held with their metadata.
fn list(path: &Path, after: &[u8], limit: u32) -> io::Result<Vec<FileEntry>> {
    let limit = usize::try_from(limit.clamp(1, 1000)).unwrap_or(1000);
    let mut names = std::collections::BTreeSet::new();
    for found in fs::read_dir(path)? {
        let name = found?.file_name();
        if name.as_bytes() > after {
            names.insert(name);
            if names.len() > limit {
                names.pop_last();
            }
        }
    }
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        let at = path.join(&name);
        // Removed since it was listed: then it is not there.
        if let Ok(metadata) = fs::symlink_metadata(&at) {
            entries.push(entry(&at, &metadata)?);
        }
    }
    Ok(entries)
}
