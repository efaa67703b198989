//! Any bytes are a layer or an error, and whatever comes of them is in the folder of the layer: beside it
//! nothing is made, changed or removed, and within it there is no right and no door of this host.
//!
//! The first byte says how the rest is read: as it is, as an archive whose sums are put right first, or as
//! entries with names and links that lead to each other, which no luck with numbers is needed for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use stead_fuzz::layer::{entries, repaired};
use stead_image::Limits;
use stead_image::unpack::{Budget, unpack_layer};

/// The folder of the layer, and beside it one that must stay as it is. Links of the seeds lead there.
static OUTER: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let outer = tempfile::tempdir().expect("a folder for files that come and go");
    std::fs::create_dir(outer.path().join("outside")).expect("just made");
    std::fs::write(outer.path().join("outside/canary"), "alive").expect("just made");
    outer
});

fn limits() -> Limits {
    Limits {
        unpacked_bytes: 1 << 20,
        entries: 500,
        header_bytes: 64 << 10,
        ..Limits::default()
    }
}

/// What would change if somebody touched it.
fn state(path: &Path) -> (u64, u32, u64, i64, i64, i64, u64) {
    let found = std::fs::symlink_metadata(path).expect("it is still there");
    let times = (found.mtime(), found.ctime(), found.ctime_nsec());
    (
        found.ino(),
        found.mode(),
        found.size(),
        times.0,
        times.1,
        times.2,
        found.nlink(),
    )
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

/// No device but whiteouts, no set-uid, no attribute that a mount would obey but the one of opaque folders.
fn judge(folder: &Path) {
    for path in names(folder) {
        let found: Metadata = std::fs::symlink_metadata(&path).expect("it was just listed");
        let kind = found.file_type();
        assert!(!kind.is_block_device() && !kind.is_socket(), "{path:?}");
        assert!(
            !kind.is_char_device() || found.rdev() == 0,
            "{path:?} is a device"
        );
        assert!(
            kind.is_dir() || kind.is_symlink() || found.mode() & 0o6000 == 0,
            "{path:?} has rights"
        );
        if kind.is_dir() || kind.is_file() {
            let mut buffer = vec![0; 1 << 17];
            let length = rustix::fs::llistxattr(&path, &mut buffer).expect("attributes can be listed");
            for name in buffer[..length]
                .split(|byte| *byte == 0)
                .filter(|name| !name.is_empty())
            {
                assert!(name.starts_with(b"user."), "{path:?} has {name:?}");
                assert!(
                    !name.starts_with(b"user.overlay.") || name == b"user.overlay.opaque" && kind.is_dir(),
                    "{path:?}"
                );
            }
        }
        if kind.is_dir() {
            judge(&path);
        }
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (mode, bytes) = input;
    let layer = match mode % 3 {
        0 => bytes.to_vec(),
        1 => repaired(bytes),
        _ => entries(bytes),
    };
    let outside = OUTER.path().join("outside");
    let folder = OUTER.path().join("layer");
    std::fs::create_dir(&folder).expect("the last one was removed");
    let before = (state(&outside), state(&outside.join("canary")));
    let limits = limits();
    let _ = unpack_layer(&*layer, &folder, &limits, &Budget::new(&limits), &|| false);
    assert_eq!(
        before,
        (state(&outside), state(&outside.join("canary"))),
        "something outside was touched"
    );
    assert_eq!(names(&outside), [outside.join("canary")]);
    assert_eq!(names(OUTER.path()), [folder.clone(), outside]);
    judge(&folder);
    std::fs::remove_dir_all(&folder).expect("what was unpacked can be removed");
});
