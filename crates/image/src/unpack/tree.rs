//! The folder of a layer while it is filled. Every step goes from an open folder to a name in it, and no
//! link is followed: whatever the archive has made before, nothing outside of the folder can be reached.

use super::name::Parts;
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// A folder whose content in lower layers is hidden; what overlayfs mounted with `userxattr` looks for.
pub(crate) const OPAQUE: &str = "user.overlay.opaque";

/// Why a step was not taken.
#[derive(Debug)]
pub(super) enum StepError {
    /// The archive is at fault.
    Refused(&'static str),
    /// The system is.
    System(Errno),
}

impl From<Errno> for StepError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

/// Who a thing belongs to, what may be done with it, and when it was changed.
#[derive(Debug, Clone, Default)]
pub(super) struct Attributes {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    pub mtime: i64,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Attributes {
    fn times(&self) -> Timestamps {
        let time = Timespec {
            tv_sec: self.mtime,
            tv_nsec: 0,
        };
        Timestamps {
            last_access: time,
            last_modification: time,
        }
    }
}

/// What stood in the way of a new thing and is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    Whiteout,
    Folder,
}

/// The folder of a layer.
pub(super) struct Tree {
    root: OwnedFd,
    /// The folder that was used last: most entries are beside the one before.
    recent: Option<(Vec<Vec<u8>>, OwnedFd)>,
    /// Only root may give files away.
    owners: bool,
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Tree {
    pub fn new(root: OwnedFd) -> Self {
        let owners = rustix::process::geteuid().is_root();
        Self {
            root,
            recent: None,
            owners,
        }
    }

    /// Opens a folder, and makes what is missing on the way.
    fn folder(&mut self, parts: &[&[u8]]) -> Result<OwnedFd, StepError> {
        if let Some((path, folder)) = &self.recent
            && path.iter().map(Vec::as_slice).eq(parts.iter().copied())
        {
            return folder.try_clone().map_err(|error| errno(&error));
        }
        let mut at = self.root.try_clone().map_err(|error| errno(&error))?;
        for part in parts {
            at = match open_folder(&at, part) {
                Ok(next) => next,
                Err(StepError::System(Errno::NOENT)) => make_folder(&at, part, false)?,
                Err(StepError::System(Errno::NOTDIR | Errno::LOOP)) => match kind(&at, part)? {
                    // The layer removes a folder of a lower one, and then puts another in its place.
                    Some(FileType::CharacterDevice) => {
                        fs::unlinkat(&at, *part, AtFlags::empty())?;
                        make_folder(&at, part, true)?
                    }
                    _ => return Err(StepError::Refused("its path leads through a link or a file")),
                },
                Err(error) => return Err(error),
            };
        }
        let copy = at.try_clone().map_err(|error| errno(&error))?;
        self.recent = Some((parts.iter().map(|part| part.to_vec()).collect(), copy));
        Ok(at)
    }

    fn place<'p>(&mut self, parts: &Parts<'p>) -> Result<(OwnedFd, &'p [u8]), StepError> {
        match parts.split_last() {
            Some((name, folders)) => Ok((self.folder(folders)?, name)),
            None => Err(StepError::Refused("it would replace the folder of the layer")),
        }
    }

    /// Takes away what stands at a name, but for a folder where one is wanted.
    fn clear(&mut self, at: &OwnedFd, name: &[u8], folder_wanted: bool) -> Result<Before, StepError> {
        match kind(at, name)? {
            None => Ok(Before::Nothing),
            Some(FileType::Directory) if folder_wanted => Ok(Before::Folder),
            Some(FileType::Directory) => match fs::unlinkat(at, name, AtFlags::REMOVEDIR) {
                Ok(()) => {
                    self.recent = None;
                    Ok(Before::Nothing)
                }
                Err(Errno::NOTEMPTY | Errno::EXIST) => Err(StepError::Refused(
                    "it would replace a folder that the same layer has filled",
                )),
                Err(error) => Err(error.into()),
            },
            Some(found) => {
                fs::unlinkat(at, name, AtFlags::empty())?;
                Ok(if found == FileType::CharacterDevice {
                    Before::Whiteout
                } else {
                    Before::Nothing
                })
            }
        }
    }

    /// Makes a folder, or gives one that is there other attributes. Its time is set at the end, because what
    /// is put into it changes that.
    pub fn directory(&mut self, parts: &Parts<'_>, attributes: &Attributes) -> Result<(), StepError> {
        if parts.is_empty() {
            let root = self.root.try_clone().map_err(|error| errno(&error))?;
            return self.dress(&root, attributes, 0o1777);
        }
        let (at, name) = self.place(parts)?;
        let folder = match self.clear(&at, name, true)? {
            Before::Folder => open_folder(&at, name)?,
            before => make_folder(&at, name, before == Before::Whiteout)?,
        };
        self.dress(&folder, attributes, 0o3777)
    }

    /// Makes an empty file; what is written to it comes from the caller, who then calls [`Self::finish`].
    pub fn file(&mut self, parts: &Parts<'_>) -> Result<File, StepError> {
        let (at, name) = self.place(parts)?;
        self.clear(&at, name, false)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(fs::openat(&at, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Gives a written file its attributes.
    pub fn finish(&self, file: &File, attributes: &Attributes) -> Result<(), StepError> {
        // Without set-uid and set-gid: they would be rights on this host, and no place lets them work.
        self.dress(file, attributes, 0o1777)?;
        Ok(fs::futimens(file, &attributes.times())?)
    }

    pub fn symlink(
        &mut self,
        parts: &Parts<'_>,
        target: &[u8],
        attributes: &Attributes,
    ) -> Result<(), StepError> {
        let (at, name) = self.place(parts)?;
        self.clear(&at, name, false)?;
        fs::symlinkat(target, &at, name)?;
        self.dress_name(&at, name, attributes)
    }

    /// A second name for what the same layer has; the name itself, if that is a link.
    pub fn hardlink(&mut self, parts: &Parts<'_>, target: &Parts<'_>) -> Result<(), StepError> {
        if parts == target {
            return Err(StepError::Refused("it is a link to itself"));
        }
        let (from, from_name) = match target.split_last() {
            Some((name, folders)) => (self.existing(folders)?, *name),
            None => return Err(StepError::Refused("it is a link to a folder")),
        };
        match kind(&from, from_name)? {
            Some(FileType::RegularFile | FileType::Symlink | FileType::Fifo) => {}
            None => return Err(StepError::Refused("it is a link to what the layer does not have")),
            Some(_) => return Err(StepError::Refused("it is a link to what is no file")),
        }
        let (at, name) = self.place(parts)?;
        self.clear(&at, name, false)?;
        Ok(fs::linkat(&from, from_name, &at, name, AtFlags::empty())?)
    }

    pub fn fifo(&mut self, parts: &Parts<'_>, attributes: &Attributes) -> Result<(), StepError> {
        let (at, name) = self.place(parts)?;
        self.clear(&at, name, false)?;
        fs::mknodat(
            &at,
            name,
            FileType::Fifo,
            Mode::from_raw_mode(attributes.mode & 0o777),
            0,
        )?;
        self.dress_name(&at, name, attributes)
    }

    /// Says that lower layers do not have this any more: what overlayfs looks for.
    pub fn whiteout(&mut self, parts: &Parts<'_>) -> Result<(), StepError> {
        let (at, name) = self.place(parts)?;
        match kind(&at, name)? {
            None => Ok(fs::mknodat(
                &at,
                name,
                FileType::CharacterDevice,
                Mode::empty(),
                0,
            )?),
            // What the layer itself has stays; of a folder, only what is below it goes.
            Some(FileType::Directory) => opaque(&open_folder(&at, name)?),
            Some(_) => Ok(()),
        }
    }

    /// Hides what lower layers have in a folder.
    pub fn opaque(&mut self, parts: &Parts<'_>) -> Result<(), StepError> {
        opaque(&self.folder(parts)?)
    }

    /// Sets the time of a folder, if it still is one.
    pub fn folder_time(&self, parts: &[Vec<u8>], mtime: i64) -> Result<(), StepError> {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let times = Attributes {
            mtime,
            ..Attributes::default()
        }
        .times();
        match self.existing(&parts) {
            Ok(folder) => Ok(fs::futimens(folder, &times)?),
            // A later entry took its place.
            Err(StepError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens a folder that is there.
    fn existing(&self, parts: &[&[u8]]) -> Result<OwnedFd, StepError> {
        let mut at = self.root.try_clone().map_err(|error| errno(&error))?;
        for part in parts {
            at = match open_folder(&at, part) {
                Err(StepError::System(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
                    return Err(StepError::Refused("it is a link to what the layer does not have"));
                }
                other => other?,
            };
        }
        Ok(at)
    }

    fn dress(&self, thing: impl AsFd, attributes: &Attributes, mask: u32) -> Result<(), StepError> {
        let thing = thing.as_fd();
        // Giving it away takes bits of its mode, so the mode comes behind.
        if self.owners {
            fs::fchown(thing, Some(uid(attributes.uid)?), Some(gid(attributes.gid)?))?;
        }
        let mut mode = attributes.mode & mask;
        if !self.owners && fs::FileType::from_raw_mode(fs::fstat(thing)?.st_mode) == FileType::Directory {
            // Else whoever unpacked it could neither fill nor remove it.
            mode |= 0o700;
        }
        fs::fchmod(thing, Mode::from_raw_mode(mode))?;
        for (name, value) in &attributes.xattrs {
            fs::fsetxattr(thing, name.as_slice(), value, XattrFlags::empty())?;
        }
        Ok(())
    }

    fn dress_name(&self, at: &OwnedFd, name: &[u8], attributes: &Attributes) -> Result<(), StepError> {
        if self.owners {
            let (uid, gid) = (uid(attributes.uid)?, gid(attributes.gid)?);
            fs::chownat(at, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(fs::utimensat(
            at,
            name,
            &attributes.times(),
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }
}

/// The number that means "as it was" belongs to nobody.
fn uid(raw: u32) -> Result<fs::Uid, StepError> {
    match raw {
        u32::MAX => Err(StepError::Refused("its owner has no number that a user can have")),
        raw => Ok(fs::Uid::from_raw(raw)),
    }
}

fn gid(raw: u32) -> Result<fs::Gid, StepError> {
    match raw {
        u32::MAX => Err(StepError::Refused(
            "its group has no number that a group can have",
        )),
        raw => Ok(fs::Gid::from_raw(raw)),
    }
}

fn opaque(folder: &OwnedFd) -> Result<(), StepError> {
    Ok(fs::fsetxattr(folder, OPAQUE, b"y", XattrFlags::empty())?)
}

fn open_folder(at: &OwnedFd, name: &[u8]) -> Result<OwnedFd, StepError> {
    Ok(fs::openat(at, name, FOLDER, Mode::empty())?)
}

fn make_folder(at: &OwnedFd, name: &[u8], is_opaque: bool) -> Result<OwnedFd, StepError> {
    fs::mkdirat(at, name, Mode::RWXU)?;
    let folder = open_folder(at, name)?;
    // What everybody has who says nothing; an entry of its own may say another.
    fs::fchmod(&folder, Mode::from_raw_mode(0o755))?;
    if is_opaque {
        opaque(&folder)?;
    }
    Ok(folder)
}

fn kind(at: &OwnedFd, name: &[u8]) -> Result<Option<FileType>, StepError> {
    match fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn errno(error: &std::io::Error) -> StepError {
    StepError::System(Errno::from_io_error(error).unwrap_or(Errno::IO))
}
