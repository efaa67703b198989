//! What the name of an entry means: pure, and judged before anything is touched.

use crate::limits::Limits;

/// In front of the name of what a layer removes from those below.
const WHITEOUT: &[u8] = b".wh.";
/// In front of what an old union file system kept for itself.
const RESERVED: &[u8] = b".wh..wh.";
/// A folder with it hides all that lower layers have there.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Longest name of one file or folder on Linux.
const NAME_MAX: usize = 255;

/// The parts of a path below the folder of the layer. None is empty, `.`, `..`, or has a slash or NUL.
pub(super) type Parts<'a> = Vec<&'a [u8]>;

/// What an entry is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    /// The folder of the layer itself.
    Root,
    /// A file, folder or link.
    Thing(Parts<'a>),
    /// This is removed from the layers below.
    Whiteout(Parts<'a>),
    /// What lower layers have in this folder is hidden.
    Opaque(Parts<'a>),
    /// Of an old union file system, and nothing of the image.
    Reserved,
}

/// Splits a path. A leading slash means the folder of the layer, as everywhere.
pub(super) fn parts<'a>(path: &'a [u8], limits: &Limits) -> Result<Parts<'a>, &'static str> {
    if path.len() > limits.path_bytes {
        return Err("its path is too long");
    }
    if path.contains(&0) {
        return Err("its path has a NUL byte");
    }
    let parts: Parts<'_> = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".")
        .collect();
    if parts.iter().any(|part| *part == b"..") {
        return Err("its path leads upwards");
    }
    if parts.iter().any(|part| part.len() > NAME_MAX) {
        return Err("a part of its path is longer than 255 bytes");
    }
    if parts.len() > limits.depth {
        return Err("it is too many folders deep");
    }
    Ok(parts)
}

/// Reads the name of an entry.
pub(super) fn read<'a>(path: &'a [u8], limits: &Limits) -> Result<Meaning<'a>, &'static str> {
    let mut parts = parts(path, limits)?;
    let Some((last, folders)) = parts.split_last() else {
        return Ok(Meaning::Root);
    };
    let last: &[u8] = last;
    if last == OPAQUE && !folders.iter().any(|part| part.starts_with(WHITEOUT)) {
        parts.pop();
        return Ok(Meaning::Opaque(parts));
    }
    if parts.iter().any(|part| part.starts_with(RESERVED)) {
        return Ok(Meaning::Reserved);
    }
    if folders.iter().any(|part| part.starts_with(WHITEOUT)) {
        return Err("it is below a whiteout");
    }
    let Some(hidden) = last.strip_prefix(WHITEOUT) else {
        return Ok(Meaning::Thing(parts));
    };
    if hidden.is_empty() || hidden == b"." || hidden == b".." {
        return Err("it is a whiteout of nothing");
    }
    parts.pop();
    parts.push(hidden);
    Ok(Meaning::Whiteout(parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &[u8]) -> Result<Meaning<'_>, &'static str> {
        read(path, &Limits::default())
    }

    fn thing<'a>(parts: &[&'a str]) -> Parts<'a> {
        parts.iter().map(|part| part.as_bytes()).collect()
    }

    #[test]
    fn names_stay_below_the_folder_of_the_layer() {
        for (path, expected) in [
            ("", Meaning::Root),
            ("./", Meaning::Root),
            ("/", Meaning::Root),
            ("/etc/passwd", Meaning::Thing(thing(&["etc", "passwd"]))),
            ("./a//b/./c/", Meaning::Thing(thing(&["a", "b", "c"]))),
            ("a/.wh.b", Meaning::Whiteout(thing(&["a", "b"]))),
            (".wh..b", Meaning::Whiteout(thing(&[".b"]))),
            ("a/.wh..wh..opq", Meaning::Opaque(thing(&["a"]))),
            (".wh..wh..opq", Meaning::Opaque(vec![])),
            (".wh..wh.plnk/1.2", Meaning::Reserved),
            (".wh..wh.aufs", Meaning::Reserved),
            ("a..b/...", Meaning::Thing(thing(&["a..b", "..."]))),
        ] {
            assert_eq!(of(path.as_bytes()), Ok(expected), "{path}");
        }
        let long = "a".repeat(256);
        let deep = "a/".repeat(201);
        let huge = "a/".repeat(3000);
        for bad in [
            "..", "a/../b", "/..", "a/..", "a\0", ".wh.", ".wh..", "a/.wh...", ".wh.a/b", &long, &deep, &huge,
        ] {
            assert!(of(bad.as_bytes()).is_err(), "{bad:.20}");
        }
        assert!(of("a".repeat(255).as_bytes()).is_ok());
        assert!(of("a/".repeat(200).as_bytes()).is_ok());
    }

    proptest::proptest! {
        #[test]
        fn no_part_can_lead_anywhere_else(path in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            let meaning = of(&path);
            if let Ok(Meaning::Thing(parts) | Meaning::Whiteout(parts) | Meaning::Opaque(parts)) = meaning {
                for part in parts {
                    proptest::prop_assert!(!part.is_empty() && part != b"." && part != b"..");
                    proptest::prop_assert!(!part.contains(&b'/') && !part.contains(&0));
                }
            }
        }
    }
}
