//! Unpacking a layer into a folder that overlayfs can take as a lower directory.
//!
//! Decisions, with reasons in docs/adr/0014:
//! - A path is below the folder or refused. No link is followed on the way, not even one of the same layer.
//! - Device nodes are left out and counted: a place has its own `/dev`. FIFOs are made.
//! - Set-uid and set-gid bits of files are dropped, so that they are no rights on this host.
//! - Of extended attributes those named `user.…` are kept, but for overlayfs's own; the others are rights and
//!   labels of another machine, or orders to the mount.
//! - A later entry replaces an earlier one of the same name, but never a folder that has something in it.

mod compression;
mod error;
mod meter;
mod name;
mod tree;

pub(crate) use compression::decompressed;
pub use error::LayerError;
pub use meter::Budget;
pub(crate) use tree::OPAQUE;

use crate::digest::Digest;
use crate::limits::Limits;
use error::shown;
use meter::{Counted, Gauge, Metered};
use name::{Meaning, Parts};
use rustix::fs::{Mode, OFlags};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::path::Path;
use std::rc::Rc;
use tar::EntryType;
use tree::{Attributes, StepError, Tree};

/// What an unpacked layer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    /// The digest of its uncompressed archive.
    pub diff_id: Digest,
    /// Bytes of the uncompressed archive.
    pub bytes: u64,
    /// Entries of the archive.
    pub entries: u64,
    /// Device nodes that were left out.
    pub devices: u64,
}

/// Unpacks a layer, compressed or not, into an empty folder of ours that nobody else changes meanwhile.
///
/// `cancelled` is asked often. What a failure leaves in the folder is the caller's to remove.
pub fn unpack_layer<'a>(
    layer: impl Read + 'a,
    folder: &Path,
    limits: &'a Limits,
    budget: &'a Budget,
    cancelled: &'a dyn Fn() -> bool,
) -> Result<Unpacked, LayerError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(folder, flags, Mode::empty()).map_err(|error| LayerError::Write {
        entry: "/".to_owned(),
        source: error.into(),
    })?;
    // What the layer says nothing of is as everywhere, whatever the mask of this process.
    rustix::fs::fchmod(&root, Mode::from_raw_mode(0o755)).map_err(|error| LayerError::Write {
        entry: "/".to_owned(),
        source: error.into(),
    })?;
    let (packed, gauge) = (Rc::new(Cell::new(0)), Rc::new(Gauge::default()));
    let damaged = |source| LayerError::Damaged { source };
    let content = decompressed(Counted::new(layer, Rc::clone(&packed))).map_err(damaged)?;
    let metered = Metered::new(content, packed, Rc::clone(&gauge), limits, budget, cancelled);
    let mut unpacking = Unpacking {
        tree: Tree::new(root),
        limits,
        budget,
        times: Vec::new(),
        remembered: 0,
        entries: 0,
        devices: 0,
    };
    let mut archive = tar::Archive::new(metered);
    unpacking.all(&mut archive, &gauge)?;
    // Behind the end of the archive there may be padding, and it belongs to the digest.
    let mut metered = archive.into_inner();
    io::copy(&mut metered, &mut io::sink()).map_err(|source| gauge.error(source))?;
    unpacking.set_times()?;
    Ok(Unpacked {
        diff_id: metered.digest(),
        bytes: metered.count(),
        entries: unpacking.entries,
        devices: unpacking.devices,
    })
}

struct Unpacking<'a> {
    tree: Tree,
    limits: &'a Limits,
    budget: &'a Budget,
    /// Folders with the times that they get at the end, in the order of the archive.
    times: Vec<(Vec<Vec<u8>>, i64)>,
    /// Bytes of `times`.
    remembered: usize,
    entries: u64,
    devices: u64,
}

/// What is remembered of folders until the end; some million ordinary ones.
const REMEMBERED: usize = 256 << 20;

/// Why an entry was not unpacked, before its path is added.
enum EntryError {
    Refused(&'static str),
    System(io::Error),
    /// The archive or a limit.
    Read(io::Error),
    Layer(LayerError),
}

impl From<StepError> for EntryError {
    fn from(error: StepError) -> Self {
        match error {
            StepError::Refused(reason) => Self::Refused(reason),
            // Names that no file system of this machine has.
            StepError::System(rustix::io::Errno::NAMETOOLONG | rustix::io::Errno::ILSEQ) => {
                Self::Refused("its name cannot be a file's here")
            }
            StepError::System(error) => Self::System(error.into()),
        }
    }
}

impl Unpacking<'_> {
    fn all<R: Read>(
        &mut self,
        archive: &mut tar::Archive<Metered<'_, R>>,
        gauge: &Gauge,
    ) -> Result<(), LayerError> {
        gauge.expect_header(self.limits);
        let mut entries = archive.entries().map_err(|source| gauge.error(source))?;
        loop {
            gauge.expect_header(self.limits);
            let next = entries.next();
            gauge.expect_content();
            let Some(entry) = next else { return Ok(()) };
            let mut entry = entry.map_err(|source| gauge.error(source))?;
            self.entries += 1;
            if self.entries > self.limits.entries {
                let limit = self.limits.entries;
                return Err(LayerError::TooLarge {
                    what: "the entries of a layer",
                    limit,
                });
            }
            let path = entry.path_bytes().into_owned();
            self.one(&mut entry, &path).map_err(|error| match error {
                EntryError::Refused(reason) => LayerError::Refused {
                    entry: shown(&path),
                    reason,
                },
                EntryError::System(source) => LayerError::Write {
                    entry: shown(&path),
                    source,
                },
                EntryError::Read(source) => gauge.error(source),
                EntryError::Layer(error) => error,
            })?;
            // So that nothing but headers is read by what comes next.
            io::copy(&mut entry, &mut io::sink()).map_err(|source| gauge.error(source))?;
        }
    }

    fn one<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, path: &[u8]) -> Result<(), EntryError> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        match name::read(path, self.limits).map_err(EntryError::Refused)? {
            Meaning::Reserved => Ok(()),
            Meaning::Whiteout(parts) => Ok(self.tree.whiteout(&parts)?),
            Meaning::Opaque(parts) => Ok(self.tree.opaque(&parts)?),
            Meaning::Root if kind == EntryType::Directory => self.directory(entry, vec![]),
            Meaning::Root => Err(EntryError::Refused("it would replace the folder of the layer")),
            Meaning::Thing(parts) => self.thing(entry, kind, parts),
        }
    }

    fn thing<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        kind: EntryType,
        parts: Parts<'_>,
    ) -> Result<(), EntryError> {
        match kind {
            EntryType::Directory => self.directory(entry, parts),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(entry, kind, &parts)
            }
            EntryType::Symlink => {
                let target = self.target(entry)?;
                let attributes = attributes(entry, self.limits)?;
                Ok(self.tree.symlink(&parts, &target, &attributes)?)
            }
            EntryType::Link => {
                let target = self.target(entry)?;
                let target = name::read(&target, self.limits).map_err(EntryError::Refused)?;
                let Meaning::Thing(target) = target else {
                    return Err(EntryError::Refused("it is a link to what is no file"));
                };
                Ok(self.tree.hardlink(&parts, &target)?)
            }
            EntryType::Fifo => {
                let attributes = attributes(entry, self.limits)?;
                Ok(self.tree.fifo(&parts, &attributes)?)
            }
            EntryType::Char | EntryType::Block => {
                self.devices += 1;
                Ok(())
            }
            _ => Err(EntryError::Refused("it is of a kind that no image needs")),
        }
    }

    fn directory<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        parts: Parts<'_>,
    ) -> Result<(), EntryError> {
        let attributes = attributes(entry, self.limits)?;
        self.tree.directory(&parts, &attributes)?;
        let path: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        self.remembered += path
            .iter()
            .map(|part| part.len() + size_of::<Vec<u8>>())
            .sum::<usize>();
        if self.remembered > REMEMBERED {
            let limit = REMEMBERED as u64;
            return Err(EntryError::Layer(LayerError::TooLarge {
                what: "the paths of a layer's folders",
                limit,
            }));
        }
        self.times.push((path, attributes.mtime));
        Ok(())
    }

    fn file<R: Read>(
        &mut self,
        entry: &mut tar::Entry<'_, R>,
        kind: EntryType,
        parts: &Parts<'_>,
    ) -> Result<(), EntryError> {
        let attributes = attributes(entry, self.limits)?;
        let size = entry.size();
        if kind == EntryType::GNUSparse {
            // Its holes are in no archive, so nobody has counted them.
            self.budget.take(size).map_err(EntryError::Layer)?;
        }
        let mut file = self.tree.file(parts)?;
        let mut buffer = vec![0; 64 << 10];
        let mut written = 0;
        loop {
            let count = entry.read(&mut buffer).map_err(EntryError::Read)?;
            if count == 0 {
                break;
            }
            file.write_all(&buffer[..count]).map_err(EntryError::System)?;
            written += count as u64;
        }
        if written != size {
            return Err(EntryError::Read(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(self.tree.finish(&file, &attributes)?)
    }

    fn target<R: Read>(&self, entry: &tar::Entry<'_, R>) -> Result<Vec<u8>, EntryError> {
        let target = entry.link_name_bytes().unwrap_or_default().into_owned();
        if target.is_empty() || target.len() > self.limits.path_bytes || target.contains(&0) {
            return Err(EntryError::Refused(
                "the target of the link is missing, too long, or has a NUL byte",
            ));
        }
        Ok(target)
    }

    /// The last word of the archive on each folder stands.
    fn set_times(&mut self) -> Result<(), LayerError> {
        for (parts, mtime) in std::mem::take(&mut self.times) {
            self.tree
                .folder_time(&parts, mtime)
                .map_err(|error| LayerError::Write {
                    entry: shown(&parts.join(&b'/')),
                    source: match error {
                        StepError::System(error) => error.into(),
                        StepError::Refused(reason) => io::Error::other(reason),
                    },
                })?;
        }
        Ok(())
    }
}

/// In front of the name of an extended attribute.
const XATTR: &[u8] = b"SCHILY.xattr.";

fn attributes<R: Read>(entry: &mut tar::Entry<'_, R>, limits: &Limits) -> Result<Attributes, EntryError> {
    let bad = |_| EntryError::Refused("its header has a number that cannot be read");
    let header = entry.header();
    let id = |id: u64| {
        u32::try_from(id).map_err(|_| EntryError::Refused("its owner has no number that a user can have"))
    };
    let mut attributes = Attributes {
        uid: id(header.uid().map_err(bad)?)?,
        gid: id(header.gid().map_err(bad)?)?,
        mode: header.mode().map_err(bad)?,
        mtime: i64::try_from(header.mtime().map_err(bad)?).unwrap_or(0),
        xattrs: Vec::new(),
    };
    let Some(extensions) = entry.pax_extensions().map_err(EntryError::Read)? else {
        return Ok(attributes);
    };
    let mut bytes = 0;
    for extension in extensions {
        let extension = extension.map_err(EntryError::Read)?;
        let (key, value) = (extension.key_bytes(), extension.value_bytes());
        if key.starts_with(b"GNU.sparse.") {
            return Err(EntryError::Refused("it is sparse in a way that is not read here"));
        }
        if key == b"mtime" {
            attributes.mtime = whole_seconds(value).unwrap_or(attributes.mtime);
        }
        let Some(name) = key.strip_prefix(XATTR).filter(|name| is_kept(name)) else {
            continue;
        };
        bytes += name.len() + value.len();
        if bytes > limits.xattr_bytes {
            return Err(EntryError::Refused("its extended attributes are too large"));
        }
        attributes.xattrs.push((name.to_vec(), value.to_vec()));
    }
    Ok(attributes)
}

fn is_kept(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        && name.len() <= 255
        && !name.starts_with(b"user.overlay.")
        && !name.contains(&0)
}

fn whole_seconds(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    text.split('.').next()?.parse().ok()
}
