//! What the tests of images share: archives with any entries, images of them, and servers of those.

pub mod image;
pub mod registry;
pub mod server;

use std::path::{Path, PathBuf};
use tar::{EntryType, Header};

/// An archive, entry by entry, with whatever names.
#[derive(Default)]
pub struct Tar(Vec<u8>);

impl Tar {
    pub fn new() -> Self {
        Self::default()
    }

    /// Any header and content.
    pub fn raw(mut self, header: &Header, content: &[u8]) -> Self {
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        let padding = content.len().next_multiple_of(512) - content.len();
        self.0.resize(self.0.len() + padding, 0);
        self
    }

    pub fn entry(self, kind: EntryType, path: &str, mode: u32, link: &str, content: &[u8]) -> Self {
        let long = if path.len() > 100 { self.long(path) } else { self };
        long.raw(&header(kind, path, mode, link, content.len() as u64), content)
    }

    /// The name of the next entry, where it does not fit into its header.
    fn long(self, path: &str) -> Self {
        let content = [path.as_bytes(), b"\0"].concat();
        let long = header(
            EntryType::GNULongName,
            "././@LongLink",
            0,
            "",
            content.len() as u64,
        );
        self.raw(&long, &content)
    }

    pub fn file(self, path: &str, content: &[u8]) -> Self {
        self.entry(EntryType::Regular, path, 0o644, "", content)
    }

    pub fn dir(self, path: &str) -> Self {
        self.entry(EntryType::Directory, path, 0o755, "", b"")
    }

    pub fn symlink(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Symlink, path, 0o777, target, b"")
    }

    pub fn hardlink(self, path: &str, target: &str) -> Self {
        self.entry(EntryType::Link, path, 0o644, target, b"")
    }

    /// Records in front of the next entry.
    pub fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut content = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            content.extend_from_slice(format!("{length} {key}=").as_bytes());
            content.extend_from_slice(value);
            content.push(b'\n');
        }
        let extended = header(EntryType::XHeader, "pax", 0o644, "", content.len() as u64);
        self.raw(&extended, &content)
    }

    /// The archive with its end.
    pub fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

/// A header whose name is written as it is, whatever a careful writer would say.
pub fn header(kind: EntryType, path: &str, mode: u32, link: &str, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(1234);
    header.set_gid(2345);
    header.set_mtime(1_000_000_000);
    header.set_size(size);
    let old = header.as_old_mut();
    let (name, target) = (path.as_bytes(), link.as_bytes());
    let length = name.len().min(100);
    old.name[..length].copy_from_slice(&name[..length]);
    old.linkname[..target.len()].copy_from_slice(target);
    header.set_cksum();
    header
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// Every path below a folder with its kind and content, links as they are.
pub fn listing(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let kind = std::fs::symlink_metadata(&path).unwrap().file_type();
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            if kind.is_dir() {
                found.push(format!("{name}/"));
                folders.push(path);
            } else if kind.is_symlink() {
                found.push(format!(
                    "{name} -> {}",
                    std::fs::read_link(&path).unwrap().display()
                ));
            } else if kind.is_file() {
                // An ordinary user may have been given a file that it cannot read.
                let content =
                    std::fs::read(&path).unwrap_or_else(|error| error.kind().to_string().into_bytes());
                found.push(format!("{name} = {}", String::from_utf8_lossy(&content)));
            } else {
                found.push(format!("{name} {}", special(&path)));
            }
        }
    }
    found.sort();
    found
}

fn special(path: &Path) -> &'static str {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let found = std::fs::symlink_metadata(path).unwrap();
    match (found.file_type().is_char_device(), found.rdev()) {
        (true, 0) => "whiteout",
        (true, _) => "device",
        _ if found.file_type().is_fifo() => "fifo",
        _ => "something",
    }
}
