//! The store: what it keeps, what it removes, and several processes at once.

use crate::support::image::Fixture;
use crate::support::{Tar, listing};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use stead_image::{Digest, Platform, PullOptions, Reference, Store, StoreError, data_folder};
use stead_types::error::Code;

fn options() -> PullOptions {
    PullOptions {
        platform: platform(),
        ..PullOptions::default()
    }
}

fn platform() -> Platform {
    "linux/amd64".parse().unwrap()
}

fn pull(store: &Store, layout: &Path) -> Reference {
    let reference: Reference = format!("oci:{}", layout.display()).parse().unwrap();
    store
        .pull(&reference, &options(), &|_| ControlFlow::Continue(()))
        .unwrap();
    reference
}

/// Two images that share their lower layer.
fn two(dir: &Path) -> (Fixture, Fixture) {
    let shared = Tar::new().file("shared", b"1").end();
    let make = |name: &str| {
        let image = Fixture::of(
            "linux",
            "amd64",
            vec![shared.clone(), Tar::new().file(name, b"1").end()],
        );
        image.write_layout(&dir.join(name), "1");
        image
    };
    (make("one"), make("two"))
}

fn layers(store: &Store) -> usize {
    std::fs::read_dir(store.root().join("layers/sha256"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().is_dir())
        .count()
}

#[test]
fn what_no_image_needs_goes_and_what_one_needs_stays() {
    let dir = tempfile::tempdir().unwrap();
    let (one, _) = two(dir.path());
    let store = Store::open(&dir.path().join("store")).unwrap();
    let first = pull(&store, &dir.path().join("one"));
    let second = pull(&store, &dir.path().join("two"));
    assert_eq!((store.list().unwrap().len(), layers(&store)), (2, 3));
    assert_eq!(
        store.prune().unwrap(),
        stead_image::Removed::default(),
        "all of it is needed"
    );

    let removed = store.remove(&first.to_string()).unwrap();
    assert_eq!(
        (removed.images.len(), removed.layers.clone()),
        (1, vec![Digest::of(&one.archives[1])])
    );
    assert_eq!(removed.bytes, one.archives[1].len() as u64);
    assert!(matches!(
        store.find(&first, &platform()),
        Err(StoreError::Missing { .. })
    ));
    let image = store.find(&second, &platform()).unwrap();
    assert_eq!(listing(&image.layers[1]), ["shared = 1"]);

    // By the first digits of its digest; by fewer than 12 it is nobody's.
    let digits = image.digest.hex();
    assert_eq!(store.remove(&digits[..11]).unwrap_err().code(), "image_missing");
    assert_eq!(
        store
            .remove(&format!("sha256:{}", &digits[..12]))
            .unwrap()
            .layers
            .len(),
        2
    );
    assert_eq!(store.remove("x").unwrap_err().code(), "image_missing");
    for part in ["layers", "blobs"] {
        assert_eq!(listing(&store.root().join(part)), ["sha256/"]);
    }
}

#[test]
fn what_a_killed_process_left_goes_with_the_next_prune() {
    let dir = tempfile::tempdir().unwrap();
    two(dir.path());
    let store = Store::open(dir.path()).unwrap();
    let reference = pull(&store, &dir.path().join("one"));
    let before = listing(store.root());
    let digest = Digest::of(b"x").hex();
    std::fs::create_dir_all(store.root().join("staging/layer-abc/layer/deep")).unwrap();
    std::fs::write(store.root().join("partial").join(&digest), "half").unwrap();
    std::fs::write(
        store
            .root()
            .join("layers/sha256")
            .join(&digest)
            .with_extension("json"),
        "{}",
    )
    .unwrap();
    std::fs::write(store.root().join("blobs/sha256/strange"), "x").unwrap();
    std::os::unix::fs::symlink(dir.path().join("one"), store.root().join("staging/link")).unwrap();
    std::fs::write(store.root().join("leases/lease-dead"), "x").unwrap();
    assert_eq!(store.prune().unwrap().bytes, 4);
    assert_eq!(listing(store.root()), before);
    assert!(
        dir.path().join("one/index.json").exists(),
        "a link is not followed"
    );
    store.find(&reference, &platform()).unwrap();
}

#[test]
fn layers_in_use_stay_until_the_last_one_lets_go() {
    let dir = tempfile::tempdir().unwrap();
    two(dir.path());
    let store = Store::open(dir.path()).unwrap();
    let reference = pull(&store, &dir.path().join("one"));
    let (image, lease) = store.lease(&reference, &platform()).unwrap();
    let removed = store.remove(&reference.to_string()).unwrap();
    assert_eq!((removed.images.len(), removed.layers.len()), (1, 0));
    assert_eq!(listing(&image.layers[1]), ["shared = 1"]);
    // Handed over, it lives as long as the descriptor.
    let descriptor = lease.into_descriptor().unwrap();
    assert_eq!(store.prune().unwrap().layers.len(), 0);
    drop(descriptor);
    assert_eq!(store.prune().unwrap().layers.len(), 2);
    assert_eq!(listing(&store.root().join("leases")), [""; 0]);

    let reference = pull(&store, &dir.path().join("one"));
    drop(store.lease(&reference, &platform()).unwrap());
    assert_eq!(listing(&store.root().join("leases")), [""; 0]);
}

#[test]
fn nothing_is_removed_while_somebody_pulls() {
    let dir = tempfile::tempdir().unwrap();
    two(dir.path());
    let store = Store::open(dir.path()).unwrap();
    let first = pull(&store, &dir.path().join("one"));
    let second: Reference = format!("oci:{}", dir.path().join("two").display())
        .parse()
        .unwrap();
    let tell = |_| {
        assert!(matches!(store.prune(), Err(StoreError::Busy { .. })));
        if store
            .list()
            .unwrap()
            .iter()
            .any(|image| image.reference == first.to_string())
        {
            assert!(store.remove(&first.to_string()).unwrap().deferred);
        }
        ControlFlow::Continue(())
    };
    store.pull(&second, &options(), &tell).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    assert_eq!(store.prune().unwrap().layers.len(), 1);
    store.find(&second, &platform()).unwrap();
}

#[test]
fn many_at_once_are_as_one_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    two(dir.path());
    let root = dir.path().join("store");
    // Each with a store of its own, as processes have.
    std::thread::scope(|scope| {
        for at in 0..8 {
            let (root, from) = (root.clone(), dir.path().join(["one", "two"][at % 2]));
            scope.spawn(move || {
                let store = Store::open(&root).unwrap();
                for _ in 0..5 {
                    let reference = pull(&store, &from);
                    let image = store.find(&reference, &platform()).unwrap();
                    assert_eq!(listing(&image.layers[1]), ["shared = 1"]);
                    let pruned = store.prune();
                    assert!(
                        matches!(&pruned, Ok(removed) if removed.layers.is_empty())
                            || matches!(&pruned, Err(StoreError::Busy { .. })),
                        "{pruned:?}"
                    );
                }
            });
        }
    });
    let store = Store::open(&root).unwrap();
    assert_eq!((store.list().unwrap().len(), layers(&store)), (2, 3));
}

#[test]
fn damage_is_told_and_never_taken_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    two(dir.path());
    let store = Store::open(dir.path()).unwrap();
    let reference = pull(&store, &dir.path().join("one"));
    let image = store.find(&reference, &platform()).unwrap();
    let index = store.root().join("index.json");
    let whole = std::fs::read_to_string(&index).unwrap();
    let newer = whole.replacen("\"format\": 1", "\"format\": 2", 1);
    for bad in ["", "[]", &whole[..whole.len() / 2], &newer] {
        std::fs::write(&index, bad).unwrap();
        for done in [
            store.list().map(drop),
            store.prune().map(drop),
            store.remove("x").map(drop),
        ] {
            assert!(
                matches!(done, Err(StoreError::Damaged { .. })),
                "{bad:.20}: {done:?}"
            );
        }
    }
    std::fs::write(&index, &whole).unwrap();
    let config = store.list().unwrap()[0].config;
    let blob = store.root().join("blobs/sha256").join(config.hex());
    let right = std::fs::read(&blob).unwrap();
    std::fs::write(&blob, "{}").unwrap();
    assert!(matches!(
        store.find(&reference, &platform()),
        Err(StoreError::Damaged { .. })
    ));
    std::fs::write(&blob, right).unwrap();
    assert_eq!(store.find(&reference, &platform()).unwrap(), image);
    std::fs::rename(&image.layers[0], dir.path().join("gone")).unwrap();
    assert!(matches!(
        store.find(&reference, &platform()),
        Err(StoreError::Damaged { .. })
    ));
    // And a pull makes it whole again.
    pull(&store, &dir.path().join("one"));
    assert_eq!(store.find(&reference, &platform()).unwrap(), image);
}

#[test]
fn a_root_that_hides_everything_is_the_lowest() {
    let dir = tempfile::tempdir().unwrap();
    let (below, above) = (
        Tar::new().file("old", b"1").end(),
        Tar::new().file(".wh..wh..opq", b"").file("new", b"1").end(),
    );
    Fixture::of("linux", "amd64", vec![below, above]).write_layout(&dir.path().join("image"), "1");
    let store = Store::open(dir.path()).unwrap();
    let reference = pull(&store, &dir.path().join("image"));
    let image = store.find(&reference, &platform()).unwrap();
    assert_eq!(
        image
            .layers
            .iter()
            .map(|layer| listing(layer))
            .collect::<Vec<_>>(),
        [["new = 1"]]
    );
}

#[test]
fn a_layer_twice_is_mounted_once_where_it_is_on_top() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (
        Tar::new().file("a", b"1").end(),
        Tar::new().file(".wh.a", b"").end(),
    );
    Fixture::of("linux", "amd64", vec![a.clone(), b, a]).write_layout(&dir.path().join("image"), "1");
    let store = Store::open(dir.path()).unwrap();
    let reference = pull(&store, &dir.path().join("image"));
    let image = store.find(&reference, &platform()).unwrap();
    assert_eq!(
        image
            .layers
            .iter()
            .map(|layer| listing(layer))
            .collect::<Vec<_>>(),
        [["a = 1"], ["a whiteout"]]
    );
}

#[test]
fn the_folder_is_of_one_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let mode = std::fs::metadata(store.root()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    std::fs::set_permissions(store.root(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(matches!(Store::open(dir.path()), Err(StoreError::Folder { .. })));
}

#[test]
fn data_is_where_the_environment_says() {
    let with = |pairs: &'static [(&str, &str)]| {
        data_folder(move |name| {
            pairs
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        })
    };
    let own = |text: &str| Some(std::path::PathBuf::from(text));
    assert_eq!(
        with(&[("STEAD_DATA_DIR", "/d"), ("XDG_DATA_HOME", "/x")]),
        own("/d")
    );
    let is_root = rustix::process::geteuid().is_root();
    let user = |text: &str| if is_root { own("/var/lib/stead") } else { own(text) };
    assert_eq!(
        with(&[("STEAD_DATA_DIR", "d"), ("XDG_DATA_HOME", "/x")]),
        user("/x/stead")
    );
    assert_eq!(with(&[("HOME", "/h")]), user("/h/.local/share/stead"));
}
