//! Unpacking a layer: what comes out, and what is refused with nothing outside touched.

use crate::support::{Tar, gzip, header, listing, zstd};
use proptest::prelude::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use stead_image::unpack::{Budget, LayerError, Unpacked, unpack_layer};
use stead_image::{Digest, Limits};
use tar::EntryType;
use tempfile::TempDir;

/// A folder to unpack into, with something beside it that must stay as it is.
struct Place {
    outer: TempDir,
}

impl Place {
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        std::fs::create_dir(outer.path().join("layer")).unwrap();
        std::fs::create_dir(outer.path().join("outside")).unwrap();
        std::fs::write(outer.path().join("outside/canary"), "alive").unwrap();
        Self { outer }
    }

    fn layer(&self) -> std::path::PathBuf {
        self.outer.path().join("layer")
    }

    fn unpack_with(&self, layer: &[u8], limits: &Limits) -> Result<Unpacked, LayerError> {
        let done = unpack_layer(layer, &self.layer(), limits, &Budget::new(limits), &|| false);
        assert_eq!(listing(&self.outer.path().join("outside")), ["canary = alive"]);
        let beside = listing(self.outer.path());
        assert!(
            beside
                .iter()
                .all(|line| line.starts_with("layer/") || line.starts_with("outside/")),
            "{beside:?}"
        );
        done
    }

    fn unpack(&self, layer: &[u8]) -> Result<Unpacked, LayerError> {
        self.unpack_with(layer, &Limits::default())
    }
}

fn unpacked(layer: Tar) -> Result<Vec<String>, String> {
    let place = Place::new();
    match place.unpack(&layer.end()) {
        Ok(_) => Ok(listing(&place.layer())),
        Err(LayerError::Refused { reason, .. }) => Err(reason.to_owned()),
        Err(error) => panic!("refused in another way: {error:?}"),
    }
}

fn ordinary() -> Vec<u8> {
    Tar::new()
        .dir("./")
        .dir("bin/")
        .entry(EntryType::Regular, "bin/tool", 0o4755, "", b"#!")
        .symlink("bin/sh", "/bin/tool")
        .hardlink("bin/same", "./bin/tool")
        .dir("tmp")
        .entry(EntryType::Directory, "tmp", 0o1777, "", b"")
        .entry(EntryType::Fifo, "tmp/fifo", 0o600, "", b"")
        .entry(EntryType::Char, "dev/null", 0o666, "", b"")
        .file("a/b/c", &[b'x'; 700])
        .file(&format!("{}/end", "long".repeat(30)), b"1")
        .end()
}

#[test]
fn a_layer_is_unpacked_whatever_it_is_compressed_with() {
    let plain = ordinary();
    let halves = [
        zstd(&plain[..1000]),
        vec![0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3],
        zstd(&plain[1000..]),
    ];
    let members = [gzip(&plain[..1000]), gzip(&plain[1000..])];
    let mut seen = Vec::new();
    for layer in [
        plain.clone(),
        gzip(&plain),
        zstd(&plain),
        halves.concat(),
        members.concat(),
    ] {
        let place = Place::new();
        let done = place.unpack(&layer).unwrap();
        assert_eq!(done.diff_id, Digest::of(&plain));
        assert_eq!(
            (done.bytes, done.entries, done.devices),
            (plain.len() as u64, 11, 1)
        );
        seen.push(listing(&place.layer()));
    }
    assert!(seen.iter().all(|listing| *listing == seen[0]));
    let long = "long".repeat(30);
    let expected = [
        "a/".to_owned(),
        "a/b/".to_owned(),
        format!("a/b/c = {}", "x".repeat(700)),
        "bin/".to_owned(),
        "bin/same = #!".to_owned(),
        "bin/sh -> /bin/tool".to_owned(),
        "bin/tool = #!".to_owned(),
        format!("{long}/"),
        format!("{long}/end = 1"),
        "tmp/".to_owned(),
        "tmp/fifo fifo".to_owned(),
    ];
    assert_eq!(seen[0], expected);
}

#[test]
fn attributes_are_the_entries_own_as_far_as_they_are_no_rights_here() {
    let place = Place::new();
    let xattrs: [(&str, &[u8]); 5] = [
        ("SCHILY.xattr.user.mine", b"1"),
        ("SCHILY.xattr.user.overlay.redirect", b"/etc"),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
        ("SCHILY.xattr.security.capability", b"\x01"),
        ("mtime", b"1000000001.5"),
    ];
    let layer = Tar::new()
        .entry(EntryType::Directory, "set", 0o3775, "", b"")
        .pax(&xattrs)
        .entry(EntryType::Regular, "set/uid", 0o6755, "", b"x")
        .symlink("set/link", "uid");
    place.unpack(&layer.end()).unwrap();
    let look = |path: &str| std::fs::symlink_metadata(place.layer().join(path)).unwrap();
    let (folder, file, link) = (look("set"), look("set/uid"), look("set/link"));
    assert_eq!(folder.permissions().mode() & 0o7777, 0o3775);
    assert_eq!(
        file.permissions().mode() & 0o7777,
        0o755,
        "set-uid and set-gid are gone"
    );
    assert_eq!(
        (folder.mtime(), file.mtime(), link.mtime()),
        (1_000_000_000, 1_000_000_001, 1_000_000_000)
    );
    if rustix::process::geteuid().is_root() {
        for found in [folder, file, link] {
            assert_eq!((found.uid(), found.gid()), (1234, 2345));
        }
    }
    let mut names = vec![0; 1000];
    let length = rustix::fs::listxattr(place.layer().join("set/uid"), &mut names).unwrap();
    assert_eq!(&names[..length], b"user.mine\0");
}

#[test]
fn whiteouts_are_what_overlayfs_looks_for() {
    let place = Place::new();
    let layer = Tar::new()
        .file("gone/.wh.a", b"")
        .dir("hidden")
        .file("hidden/.wh..wh..opq", b"")
        .file("hidden/new", b"1")
        // Removed below and made anew: the new one stands, and shows nothing of the old.
        .file(".wh.again", b"")
        .dir("again")
        .file("again/new", b"1")
        .dir("other")
        .file(".wh.other", b"")
        .file(".wh.through", b"")
        .file("through/new", b"1")
        .file(".wh.file", b"")
        .file("file", b"1")
        .file("kept", b"1")
        .file(".wh.kept", b"")
        .file(".wh..wh.plnk/1", b"1");
    place.unpack(&layer.end()).unwrap();
    let expected = [
        "again/",
        "again/new = 1",
        "file = 1",
        "gone/",
        "gone/a whiteout",
        "hidden/",
        "hidden/new = 1",
        "kept = 1",
        "other/",
        "through/",
        "through/new = 1",
    ];
    assert_eq!(listing(&place.layer()), expected);
    let is_opaque = |name: &str| {
        let mut value = [0; 8];
        rustix::fs::getxattr(place.layer().join(name), "user.overlay.opaque", &mut value)
            .is_ok_and(|n| value[..n] == *b"y")
    };
    let opaque: Vec<_> = ["again", "gone", "hidden", "other", "through"]
        .into_iter()
        .filter(|name| is_opaque(name))
        .collect();
    assert_eq!(opaque, ["again", "hidden", "other", "through"]);
}

#[test]
fn nothing_leads_out_of_the_folder() {
    let base = || Tar::new().dir("d").file("f", b"1");
    // The control: the same with links and names that stay inside.
    let inside = base()
        .symlink("l", "../outside")
        .hardlink("h", "f")
        .file("d/x", b"1");
    assert_eq!(unpacked(inside).unwrap().len(), 5);
    for (what, layer) in [
        ("..", base().file("../outside/canary", b"dead")),
        ("../ of a folder", base().dir("../outside/new")),
        ("in the middle", base().file("d/../../outside/canary", b"dead")),
        (
            "a link, then through it",
            base().symlink("l", "../outside").file("l/canary", b"dead"),
        ),
        (
            "a link to a folder inside",
            base().symlink("l", "d").file("l/x", b"1"),
        ),
        ("a link as folder", base().symlink("l", "../outside").dir("l/new")),
        (
            "a link, then a whiteout",
            base().symlink("l", "../outside").file("l/.wh.canary", b""),
        ),
        (
            "a link, then opaque",
            base().symlink("l", "../outside").file("l/.wh..wh..opq", b""),
        ),
        ("a hard link upwards", base().hardlink("h", "../outside/canary")),
        (
            "a hard link through a link",
            base().symlink("l", "../outside").hardlink("h", "l/canary"),
        ),
        ("a hard link to a folder", base().hardlink("h", "d")),
        ("a hard link to itself", base().hardlink("f", "f")),
        (
            "a hard link to the folder of the layer",
            base().hardlink("h", "/"),
        ),
        (
            "a hard link to what a host has",
            base().hardlink("h", "/etc/passwd"),
        ),
        (
            "a hard link to a whiteout",
            base().file(".wh.w", b"").hardlink("h", "w"),
        ),
        (
            "the folder of the layer as a link",
            base().symlink("./", "../outside"),
        ),
        ("the folder of the layer as a file", base().file(".", b"1")),
        ("a file as folder", base().file("f/x", b"1")),
        ("below a whiteout", base().file(".wh.d/x", b"1")),
        ("a whiteout of nothing", base().file(".wh.", b"1")),
        ("a whiteout of ..", base().file("d/.wh...", b"1")),
        (
            "a filled folder becomes a file",
            base().file("d/x", b"1").file("d", b"1"),
        ),
        (
            "a filled folder becomes a link",
            base().file("d/x", b"1").symlink("d", "../outside"),
        ),
        ("a link to nothing", base().symlink("l", "")),
        (
            "of no kind",
            base().entry(EntryType::new(b'Z'), "z", 0o644, "", b""),
        ),
        (
            "sparse in the other way",
            base().pax(&[("GNU.sparse.major", b"1")]).file("s", b"1"),
        ),
        (
            "xattrs without end",
            base()
                .pax(&[("SCHILY.xattr.user.a", &[b'x'; 70_000])])
                .file("s", b"1"),
        ),
        (
            "a uid that is none",
            base().pax(&[("uid", b"4294967296")]).file("s", b"1"),
        ),
    ] {
        let refused = unpacked(layer);
        assert!(refused.is_err(), "{what}: {refused:?}");
    }
}

#[test]
fn a_link_at_the_end_of_a_path_is_replaced_and_not_followed() {
    for (what, layer, last) in [
        (
            "by a file",
            Tar::new().symlink("l", "../outside/canary").file("l", b"1"),
            "l = 1",
        ),
        (
            "by a folder",
            Tar::new().symlink("l", "../outside").dir("l"),
            "l/",
        ),
        (
            "by a link",
            Tar::new().symlink("l", "../outside").symlink("l", "x"),
            "l -> x",
        ),
        (
            "by a fifo",
            Tar::new()
                .symlink("l", "x")
                .entry(EntryType::Fifo, "l", 0o644, "", b""),
            "l fifo",
        ),
        (
            "an empty folder by a file",
            Tar::new().dir("l").file("l", b"1"),
            "l = 1",
        ),
        ("a file by a folder", Tar::new().file("l", b"1").dir("l"), "l/"),
        (
            "a file by another",
            Tar::new().file("l", b"1").file("l", b"2"),
            "l = 2",
        ),
    ] {
        assert_eq!(unpacked(layer).unwrap(), [last], "{what}");
    }
    // A second name is not changed by what replaces the first.
    let two = Tar::new().file("a", b"1").hardlink("b", "a").file("a", b"2");
    assert_eq!(unpacked(two).unwrap(), ["a = 2", "b = 1"]);
    // A whole path is below the folder, also one that begins at the root.
    assert_eq!(unpacked(Tar::new().file("/f", b"1")).unwrap(), ["f = 1"]);
}

fn too_large(layer: &[u8], limits: &Limits) -> String {
    match Place::new().unpack_with(layer, limits) {
        Err(LayerError::TooLarge { what, .. }) => what.to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_over_a_limit_is_refused() {
    let one = Tar::new().dir("d").file("f", &[b'x'; 5000]).end();
    let exact = Limits {
        entries: 2,
        unpacked_bytes: one.len() as u64,
        ..Limits::default()
    };
    assert_eq!(Place::new().unpack_with(&one, &exact).unwrap().entries, 2);
    assert!(
        too_large(
            &one,
            &Limits {
                entries: 1,
                ..exact.clone()
            }
        )
        .contains("entries")
    );
    assert!(
        too_large(
            &one,
            &Limits {
                unpacked_bytes: one.len() as u64 - 1,
                ..exact
            }
        )
        .contains("bytes")
    );

    // Some kilobytes that become gigabytes of headers, of content, and of nothing.
    let long = Tar::new().raw(
        &header(EntryType::GNULongName, "x", 0, "", 4 << 20),
        &vec![b'a'; 4 << 20],
    );
    assert!(too_large(&gzip(&long.end()), &Limits::default()).contains("headers"));
    let zeros = gzip(&Tar::new().file("zeros", &vec![0; 70 << 20]).end());
    assert!(
        too_large(
            &zeros,
            &Limits {
                ratio: 100,
                ..Limits::default()
            }
        )
        .contains("against")
    );
    let mut sparse = header(EntryType::GNUSparse, "sparse", 0o644, "", 0);
    let gnu = sparse.as_gnu_mut().unwrap();
    gnu.realsize[..11].copy_from_slice(b"77777777777");
    gnu.sparse[0].offset[..11].copy_from_slice(b"77777777777");
    gnu.sparse[0].numbytes[..11].copy_from_slice(b"00000000000");
    sparse.set_cksum();
    let limits = Limits {
        unpacked_bytes: 1 << 20,
        ..Limits::default()
    };
    assert!(too_large(&Tar::new().raw(&sparse, b"").end(), &limits).contains("bytes"));
}

#[test]
fn what_is_no_whole_archive_is_damaged() {
    let whole = ordinary();
    let cut = |bytes: &[u8], at: usize| bytes[..at].to_vec();
    let mut flipped = gzip(&whole);
    let last = flipped.len() - 6;
    flipped[last] ^= 1;
    for (what, layer) in [
        ("cut in a file", cut(&whole, 512 * 10 + 100)),
        ("cut in a header", cut(&whole, 700)),
        ("cut gzip", cut(&gzip(&whole), 200)),
        ("cut zstd", cut(&zstd(&whole), 100)),
        ("a gzip with a wrong sum", flipped),
        ("text", b"hello".repeat(300)),
    ] {
        let done = Place::new().unpack(&layer);
        assert!(
            matches!(done, Err(LayerError::Damaged { .. } | LayerError::Refused { .. })),
            "{what}: {done:?}"
        );
    }
}

#[test]
fn a_wish_to_end_is_heard() {
    let place = Place::new();
    let limits = Limits::default();
    let ended = unpack_layer(
        &*ordinary(),
        &place.layer(),
        &limits,
        &Budget::new(&limits),
        &|| true,
    );
    assert!(matches!(ended, Err(LayerError::Cancelled)));
}

/// Names of which many lead to each other.
fn path() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "a",
        "b",
        "l",
        "..",
        ".",
        "",
        ".wh.a",
        ".wh..wh..opq",
        ".wh.",
        "outside",
    ]);
    prop::collection::vec(part, 1..5).prop_map(|parts| parts.join("/"))
}

fn kind() -> impl Strategy<Value = EntryType> {
    use EntryType::{Block, Directory, Fifo, Link, Regular, Symlink};
    prop::sample::select(vec![
        Regular, Regular, Directory, Symlink, Symlink, Link, Fifo, Block,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// `Place` asserts that nothing outside has changed.
    #[test]
    fn whatever_entries_come_they_stay_inside(entries in prop::collection::vec((kind(), path(), path(), 0u32..0o10000), 0..12)) {
        let mut layer = Tar::new();
        for (kind, path, target, mode) in entries {
            layer = layer.entry(kind, &path, mode, &target, if kind.is_file() { b"dead" } else { b"" });
        }
        let place = Place::new();
        let _ = place.unpack(&layer.end());
        let devices = listing(&place.layer()).iter().any(|line| line.ends_with(" device"));
        prop_assert!(!devices);
        std::fs::remove_dir_all(place.layer()).unwrap();
    }

    #[test]
    fn damage_anywhere_is_an_error_or_another_layer(at in 0usize..8000, bit in 0u8..8) {
        let mut layer = ordinary();
        let at = at % layer.len();
        layer[at] ^= 1 << bit;
        let _ = Place::new().unpack(&layer);
    }
}

/// The folders as the kernel sees them together.
#[test]
fn layers_mount_as_an_overlay_that_shows_what_the_image_means() {
    let (lower, upper) = (Place::new(), Place::new());
    let below = Tar::new()
        .file("kept", b"1")
        .file("gone", b"1")
        .file("dir/old", b"1")
        .file("file", b"1")
        .file("turned/x", b"1");
    let above = Tar::new()
        .file(".wh.gone", b"")
        .dir("dir")
        .file("dir/.wh..wh..opq", b"")
        .file("dir/new", b"2")
        .dir("file");
    lower.unpack(&below.end()).unwrap();
    upper.unpack(&above.file("turned", b"2").end()).unwrap();
    let script = "mount -t overlay overlay -o ro,userxattr,lowerdir=$1:$2 $3 && cd $3 && find . | sort && cat kept turned";
    let target = tempfile::tempdir().unwrap();
    let run = |user: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args([user, "--mount", "sh", "-c", script, "sh"]);
        command
            .args([upper.layer().as_path(), lower.layer().as_path(), target.path()])
            .output()
    };
    let output = match run("--map-root-user") {
        Ok(output) => output,
        Err(error) => {
            return stead_testkit::skip("layers_mount_as_an_overlay", &format!("no unshare: {error}"));
        }
    };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    if told.contains("unshare failed") || told.contains("uid_map") {
        return stead_testkit::note_skip(
            "layers_mount_as_an_overlay",
            "this machine cannot make user namespaces",
        );
    }
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        seen, ".\n./dir\n./dir/new\n./file\n./kept\n./turned\n12",
        "{told}"
    );
    assert!(Path::new(&lower.layer()).join("gone").exists());
}
