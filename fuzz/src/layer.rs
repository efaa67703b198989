//! Archives from bytes of a fuzzer, which would need luck to get the sums of headers right.

use tar::{EntryType, Header};

const BLOCK: usize = 512;

/// The same bytes with the sum of each header put right, as far as the sizes lead from one to the next.
pub fn repaired(bytes: &[u8]) -> Vec<u8> {
    let mut archive = bytes.to_vec();
    let mut at = 0;
    while at + BLOCK <= archive.len() {
        let block = &mut archive[at..at + BLOCK];
        if block.iter().all(|byte| *byte == 0) {
            at += BLOCK;
            continue;
        }
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(block);
        header.set_cksum();
        block.copy_from_slice(header.as_bytes());
        let size = header.entry_size().unwrap_or(0);
        // The next header is behind the end of the input.
        let Some(size) = usize::try_from(size).ok().filter(|size| *size <= archive.len()) else {
            break;
        };
        at += BLOCK + size.next_multiple_of(BLOCK);
    }
    archive
}

/// Parts of names that lead to each other, and out if somebody lets them.
const PARTS: [&str; 16] = [
    "a",
    "b",
    "l",
    "..",
    ".",
    "",
    ".wh.a",
    ".wh.l",
    ".wh..wh..opq",
    ".wh.",
    "outside",
    "canary",
    ".wh..",
    "/",
    "layer",
    ".wh..wh.x",
];

const KINDS: [EntryType; 8] = [
    EntryType::Regular,
    EntryType::Directory,
    EntryType::Symlink,
    EntryType::Link,
    EntryType::Fifo,
    EntryType::Char,
    EntryType::Block,
    EntryType::GNUSparse,
];

/// Each entry is six bytes: its kind, three parts of its name, and two of where it leads.
pub fn entries(bytes: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    for entry in bytes.chunks_exact(6) {
        let part = |at: usize| PARTS[usize::from(entry[at]) % PARTS.len()];
        let kind = KINDS[usize::from(entry[0]) % KINDS.len()];
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        // Every mode with rights that there is.
        header.set_mode(if entry[0] & 8 == 0 { 0o7777 } else { 0 });
        header.set_uid(u64::from(entry[0]) << 8);
        header.set_gid(0);
        header.set_mtime(1);
        let content: &[u8] = if kind == EntryType::Regular { b"dead" } else { b"" };
        header.set_size(content.len() as u64);
        let old = header.as_old_mut();
        let name = [part(1), part(2), part(3)].join("/");
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        let link = match entry[0] & 16 {
            0 => [part(4), part(5)].join("/"),
            _ => ["..", part(4), part(5)].join("/"),
        };
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(content);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}
