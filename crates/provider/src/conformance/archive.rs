//! A writer of tar archives, also of those that nobody should unpack.

/// Length of a tar block.
const BLOCK: usize = 512;

/// What an entry is, as the type flag of its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    HardLink,
    Symlink,
    CharacterDevice,
    Directory,
}

impl Kind {
    fn flag(self) -> u8 {
        match self {
            Self::File => b'0',
            Self::HardLink => b'1',
            Self::Symlink => b'2',
            Self::CharacterDevice => b'3',
            Self::Directory => b'5',
        }
    }
}

/// An archive in the making.
#[derive(Debug, Clone, Default)]
pub(super) struct Archive(Vec<u8>);

impl Archive {
    /// Adds a regular file.
    pub(super) fn file(self, name: impl AsRef<[u8]>, mode: u32, content: &[u8]) -> Self {
        self.entry(Kind::File, name.as_ref(), b"", mode, content)
    }

    /// Adds a directory.
    pub(super) fn directory(self, name: impl AsRef<[u8]>, mode: u32) -> Self {
        self.entry(Kind::Directory, name.as_ref(), b"", mode, b"")
    }

    /// Adds a link of either kind or a device, which has a name and nothing in it.
    pub(super) fn special(self, kind: Kind, name: impl AsRef<[u8]>, target: &str) -> Self {
        self.entry(kind, name.as_ref(), target.as_bytes(), 0o644, b"")
    }

    /// The archive with its end marker.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }

    /// The archive as if its transfer had been cut off: half of the last block is missing.
    pub(super) fn cut_off(mut self) -> Vec<u8> {
        self.0.truncate(self.0.len().saturating_sub(BLOCK / 2));
        self.0
    }

    fn entry(mut self, kind: Kind, name: &[u8], target: &[u8], mode: u32, content: &[u8]) -> Self {
        let mut header = [0_u8; BLOCK];
        put(&mut header, 0, 100, name);
        put(&mut header, 100, 8, format!("{mode:07o}").as_bytes());
        // Owned by root, as archives often are; what becomes of owners is not what the cases look at.
        put(&mut header, 108, 8, b"0000000");
        put(&mut header, 116, 8, b"0000000");
        put(&mut header, 124, 12, format!("{:011o}", content.len()).as_bytes());
        put(&mut header, 136, 12, b"14000000000");
        put(&mut header, 148, 8, b"        ");
        header[156] = kind.flag();
        put(&mut header, 157, 100, target);
        put(&mut header, 257, 8, b"ustar\x0000");
        // Numbers of /dev/zero, where the entry is a device.
        put(&mut header, 329, 8, b"0000001");
        put(&mut header, 337, 8, b"0000005");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        put(&mut header, 148, 8, format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        self
    }
}

/// Puts bytes into a field; what does not fit is cut.
fn put(header: &mut [u8; BLOCK], at: usize, length: usize, bytes: &[u8]) {
    let length = length.min(bytes.len());
    header[at..at + length].copy_from_slice(&bytes[..length]);
}
