//! What an image may ask of this machine.

/// Bounds on everything that comes from outside. What is over one is refused, never cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a manifest or an index. 4 MiB is what registries have to accept, and most accept no more.
    pub manifest_bytes: u64,
    /// Bytes of an image's configuration; its history makes some of them large. 8 MiB.
    pub config_bytes: u64,
    /// Layers of an image. 128: Docker has 127, and each is one lower directory of a mount.
    pub layers: usize,
    /// Bytes of all layers as they are transferred. 32 GiB.
    pub transferred_bytes: u64,
    /// Bytes of all files of an image. 64 GiB.
    pub unpacked_bytes: u64,
    /// How many times larger a layer may become by unpacking, once it is over 64 MiB. 1000 is about what gzip
    /// can do at best, so that only a layer of almost nothing but zeros meets it.
    pub ratio: u64,
    /// Entries of one layer. A million is some ten times what large images have.
    pub entries: u64,
    /// Bytes of a path or of a link's target. 4095 is what Linux can open.
    pub path_bytes: usize,
    /// Folders in folders. 200, so that removing it again stays below the usual 1024 open files.
    pub depth: usize,
    /// Bytes of names and values of one entry's extended attributes. 64 KiB.
    pub xattr_bytes: usize,
    /// Bytes of headers of one entry, where long names and extended attributes are. 1 MiB.
    pub header_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            manifest_bytes: 4 << 20,
            config_bytes: 8 << 20,
            layers: 128,
            transferred_bytes: 32 << 30,
            unpacked_bytes: 64 << 30,
            ratio: 1000,
            entries: 1_000_000,
            path_bytes: 4095,
            depth: 200,
            xattr_bytes: 64 << 10,
            header_bytes: 1 << 20,
        }
    }
}

/// Below this size a layer may have any ratio.
pub(crate) const RATIO_FLOOR: u64 = 64 << 20;
