//! Images of a tar file that `docker save` wrote: `manifest.json` names the files in it.

use super::layout::open_file;
use super::{Found, Layer, Opened, Source, judge};
use crate::digest::Digest;
use crate::error::PullError;
use crate::limits::Limits;
use crate::manifest;
use crate::platform::Platform;
use crate::unpack::decompressed;
use serde::Deserialize;
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// An archive has a few files for each layer, and may have many images.
const MAX_ENTRIES: usize = 20_000;
/// Bytes that one header with its long names may have.
const MAX_HEADER: u64 = 1 << 20;

/// An image of an archive.
pub(crate) struct Archive {
    file: Arc<File>,
    /// For messages.
    place: PathBuf,
    name: Option<String>,
    /// Path in the archive -> where its content begins, and how long it is.
    files: HashMap<String, (u64, u64)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Archive {
    /// Opens an archive; a compressed one is unpacked into `staging` first, because its parts are in any order.
    pub fn open(
        path: &Path,
        name: Option<String>,
        staging: &Path,
        limits: &Limits,
    ) -> Result<Self, PullError> {
        let failed = |source: io::Error| PullError::Local {
            path: path.to_owned(),
            source,
        };
        let mut file = open_file(path)?;
        let mut begin = [0; 262];
        let length = file.read_at(&mut begin, 0).map_err(failed)?;
        if length < begin.len() || &begin[257..262] != b"ustar" {
            file = spooled(decompressed(file).map_err(failed)?, path, staging, limits)?;
        }
        Self::of(file, path, name)
    }

    /// Of what a reader gives, such as an engine.
    pub fn spool(
        reader: impl Read,
        place: &Path,
        name: Option<String>,
        staging: &Path,
        limits: &Limits,
    ) -> Result<Self, PullError> {
        Self::of(spooled(reader, place, staging, limits)?, place, name)
    }

    fn of(file: File, place: &Path, name: Option<String>) -> Result<Self, PullError> {
        let files = files(&file).map_err(|source| PullError::Local {
            path: place.to_owned(),
            source,
        })?;
        Ok(Self {
            file: Arc::new(file),
            place: place.to_owned(),
            name,
            files,
        })
    }

    fn image(&self) -> String {
        match &self.name {
            Some(name) => format!("{name} in {}", self.place.display()),
            None => self.place.display().to_string(),
        }
    }

    fn bad(&self, reason: impl Into<String>) -> PullError {
        PullError::Manifest {
            image: self.image(),
            reason: reason.into(),
        }
    }

    fn whereabouts(&self, name: &str) -> Result<(u64, u64), PullError> {
        let found = self.files.get(name.trim_start_matches("./")).copied();
        let shown: String = name.chars().take(160).collect();
        found.ok_or_else(|| self.bad(format!("it has no file {shown:?}")))
    }

    fn small(&self, name: &str, limit: u64) -> Result<Vec<u8>, PullError> {
        let (offset, size) = self.whereabouts(name)?;
        if size > limit {
            return Err(PullError::TooLarge {
                what: format!("{name} of {}", self.place.display()),
                limit,
            });
        }
        let mut bytes = Vec::new();
        let read = self.section(offset, size).read_to_end(&mut bytes);
        read.map_err(|source| PullError::Local {
            path: self.place.clone(),
            source,
        })?;
        Ok(bytes)
    }

    fn section(&self, at: u64, size: u64) -> Section {
        Section {
            file: Arc::clone(&self.file),
            at,
            end: at.saturating_add(size),
        }
    }

    fn choose(&self, images: Vec<RawImage>) -> Result<RawImage, PullError> {
        let not_found = |what: String| PullError::NotFound {
            place: self.place.display().to_string(),
            what,
        };
        let Some(name) = &self.name else {
            let names: Vec<&str> = images
                .iter()
                .flat_map(|image| image.repo_tags.iter().flatten())
                .map(String::as_str)
                .collect();
            let names = names[..names.len().min(20)].join(", ");
            let mut images = images.into_iter();
            return match (images.next(), images.next()) {
                (Some(one), None) => Ok(one),
                (None, _) => Err(not_found("image".to_owned())),
                _ => Err(not_found(format!("single image; name one of {names}"))),
            };
        };
        let is_tagged = name.rsplit('/').next().is_some_and(|last| last.contains(':'));
        let wanted = if is_tagged {
            name.clone()
        } else {
            format!("{name}:latest")
        };
        let has = |image: &RawImage| image.repo_tags.iter().flatten().any(|tag| *tag == wanted);
        images
            .into_iter()
            .find(has)
            .ok_or_else(|| not_found(format!("image {wanted}")))
    }
}

impl Source for Archive {
    fn find(&self, wanted: &Platform, limits: &Limits) -> Result<Found, PullError> {
        let bytes = self.small("manifest.json", limits.manifest_bytes)?;
        let images: Vec<RawImage> = serde_json::from_slice(&bytes)
            .map_err(|error| self.bad(format!("its manifest.json cannot be read: {error}")))?;
        let chosen = self.choose(images)?;
        let config = self.small(&chosen.config, limits.config_bytes)?;
        let layer = |name: &String| {
            let (offset, size) = self.whereabouts(name)?;
            Ok(Layer {
                digest: None,
                size,
                offset,
            })
        };
        let found = Found {
            digest: Digest::of(&config),
            manifest: None,
            configuration: manifest::read_config(&config).map_err(|reason| self.bad(reason))?,
            config,
            layers: chosen
                .layers
                .iter()
                .map(layer)
                .collect::<Result<_, PullError>>()?,
        };
        judge(found, &self.image(), wanted, limits)
    }

    fn open(&self, layer: &Layer, _from: u64) -> Result<Opened, PullError> {
        Ok(Opened {
            from: 0,
            reader: Box::new(self.section(layer.offset, layer.size)),
        })
    }

    fn is_remote(&self) -> bool {
        false
    }
}

/// A part of a file that several threads read.
struct Section {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let length = buffer.len().min(left);
        let count = self.file.read_at(&mut buffer[..length], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// A file without a name, which is gone with its descriptor.
fn spooled(mut reader: impl Read, from: &Path, staging: &Path, limits: &Limits) -> Result<File, PullError> {
    let read = |source: io::Error| PullError::Local {
        path: from.to_owned(),
        source,
    };
    let write = |error: io::Error| crate::store::io_error("spool into", staging)(error);
    let mut file = tempfile::tempfile_in(staging).map_err(write)?;
    let (mut buffer, mut left) = (vec![0; 64 << 10], limits.unpacked_bytes);
    loop {
        let count = reader.read(&mut buffer).map_err(read)?;
        if count == 0 {
            return Ok(file);
        }
        left = left.checked_sub(count as u64).ok_or(PullError::TooLarge {
            what: from.display().to_string(),
            limit: limits.unpacked_bytes,
        })?;
        file.write_all(&buffer[..count]).map_err(write)?;
    }
}

/// Whatever is in an archive. Old engines write a layer that two images share once, and links to it.
fn files(file: &File) -> io::Result<HashMap<String, (u64, u64)>> {
    let mut reader = file.try_clone()?;
    reader.seek(SeekFrom::Start(0))?;
    let left = Rc::new(Cell::new(MAX_HEADER));
    let mut archive = tar::Archive::new(Bounded {
        inner: reader,
        left: Rc::clone(&left),
    });
    let (mut files, mut links, mut seen) = (HashMap::new(), Vec::new(), 0);
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        // Nothing of its content is read; all that is read from here on is the next header.
        left.set(MAX_HEADER);
        seen += 1;
        if seen > MAX_ENTRIES {
            return Err(io::Error::other("it has more than 20000 entries"));
        }
        let name = String::from_utf8_lossy(&entry.path_bytes())
            .trim_start_matches("./")
            .to_owned();
        match entry.header().entry_type() {
            kind if kind.is_file() => {
                files.insert(name, (entry.raw_file_position(), entry.size()));
            }
            kind if kind.is_symlink() => {
                let target = entry.link_name_bytes().unwrap_or_default();
                links.push((name, String::from_utf8_lossy(&target).into_owned()));
            }
            _ => {}
        }
    }
    for (name, target) in links {
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        if let Some(found) = beside(folder, &target).and_then(|path| files.get(&path).copied()) {
            files.insert(name, found);
        }
    }
    Ok(files)
}

/// Where a link of the archive leads within it.
fn beside(folder: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Only headers are read, and what is between them is skipped: so much at once is no header.
struct Bounded {
    inner: File,
    left: Rc<Cell<u64>>,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer
            .len()
            .min(usize::try_from(self.left.get()).unwrap_or(usize::MAX));
        if length == 0 && !buffer.is_empty() {
            return Err(io::Error::other("a header of it is larger than 1 MiB"));
        }
        let count = self.inner.read(&mut buffer[..length])?;
        self.left.set(self.left.get() - count as u64);
        Ok(count)
    }
}

impl Seek for Bounded {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
