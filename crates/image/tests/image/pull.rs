//! Pulling from a real registry, a folder, an archive and an engine.

use crate::support::image::Fixture;
use crate::support::registry::{PASSWORD, Registry};
use crate::support::{gzip, listing};
use serde_json::json;
use std::ops::ControlFlow;
use std::process::Command;
use std::sync::{Arc, Mutex};
use stead_image::{Image, ImageRecord, Login, Platform, PullError, PullEvent, PullOptions, Reference, Store};
use stead_types::error::Code;
use stead_types::secret::SecretSource;

/// For this machine whatever it is: the fixture says amd64.
fn options() -> PullOptions {
    PullOptions {
        platform: "linux/amd64".parse().unwrap(),
        ..PullOptions::default()
    }
}

fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}

struct Secret;

impl SecretSource for Secret {
    fn secret(&self, name: &str) -> Result<String, String> {
        match name {
            "good" => Ok(PASSWORD.to_owned()),
            "bad" => Ok("wrong".to_owned()),
            _ => Err("not set".to_owned()),
        }
    }
}

fn login(secret: &str) -> PullOptions {
    let login = Login {
        username: "stead".to_owned(),
        password_secret: secret.to_owned(),
    };
    PullOptions {
        login: Some(login),
        secrets: Arc::new(Secret),
        ..options()
    }
}

fn pull_with(
    store: &Store,
    text: &str,
    options: &PullOptions,
) -> Result<(ImageRecord, Vec<PullEvent>), PullError> {
    let events = Mutex::new(Vec::new());
    let tell = |event| {
        events.lock().unwrap().push(event);
        ControlFlow::Continue(())
    };
    let record = store.pull(&reference(text), options, &tell)?;
    Ok((record, events.into_inner().unwrap()))
}

fn pull(store: &Store, text: &str) -> Result<ImageRecord, PullError> {
    pull_with(store, text, &options()).map(|(record, _)| record)
}

fn code(store: &Store, text: &str, options: &PullOptions) -> &'static str {
    match pull_with(store, text, options) {
        Ok((record, _)) => panic!("{record:?}"),
        Err(error) => error.code(),
    }
}

fn found(store: &Store, text: &str) -> Image {
    store.find(&reference(text), &options().platform).unwrap()
}

fn is_the_fixture(image: &Image) {
    let config = &image.config;
    assert_eq!(
        (&config.env[..], &config.entrypoint[..]),
        (&["PATH=/bin".to_owned()][..], &["/e".to_owned()][..])
    );
    assert_eq!(
        (
            config.cmd.as_slice(),
            config.workdir.as_deref(),
            config.user.as_deref()
        ),
        (&["c".to_owned()][..], Some("/w"), Some("1:2"))
    );
    // The top one first.
    assert_eq!(
        listing(&image.layers[0]),
        ["etc/", "etc/new = 2", "etc/old whiteout"]
    );
    assert!(listing(&image.layers[1]).contains(&"etc/old = 1".to_owned()));
    assert_eq!(image.layers.len(), 2);
}

#[test]
fn an_image_of_a_registry_is_pulled_once_and_its_layers_are_shared() {
    let dir = tempfile::tempdir().unwrap();
    let Some(registry) = Registry::start("an_image_of_a_registry", dir.path(), false) else {
        return;
    };
    let image = Fixture::new();
    registry.push("a/b", "1", &image);
    let store = Store::open(&dir.path().join("store")).unwrap();
    let text = format!("{}/a/b:1", registry.host);
    let (record, events) = pull_with(&store, &text, &options()).unwrap();
    assert_eq!(
        (record.reference.as_str(), record.digest),
        (text.as_str(), image.manifest)
    );
    assert_eq!(
        record.size,
        image.archives.iter().map(|layer| layer.len() as u64).sum::<u64>()
    );
    is_the_fixture(&found(&store, &text));
    let transferred: u64 = image
        .layers
        .iter()
        .map(|layer| image.blob(layer).len() as u64)
        .sum();
    assert!(events.contains(&PullEvent::Resolved {
        digest: image.manifest,
        layers: 2,
        bytes: transferred
    }));
    let unpacked = events
        .iter()
        .filter(|event| matches!(event, PullEvent::Unpacked { .. }))
        .count();
    assert_eq!(unpacked, 2);

    let (_, again) = pull_with(&store, &text, &options()).unwrap();
    assert!(again.contains(&PullEvent::Resolved {
        digest: image.manifest,
        layers: 2,
        bytes: 0
    }));
    let present = again
        .iter()
        .filter(|event| matches!(event, PullEvent::Present { .. }))
        .count();
    assert_eq!((present, again.len(), store.list().unwrap().len()), (2, 3, 1));

    // By its digest, and by a digest that is not there.
    let pinned = format!("{}/a/b@{}", registry.host, image.manifest);
    assert_eq!(pull(&store, &pinned).unwrap().digest, image.manifest);
    let other = format!("{}/a/b@{}", registry.host, stead_image::Digest::of(b"none"));
    assert_eq!(code(&store, &other, &options()), "image_not_found");
    for missing in ["a/b:2", "a/c:1"] {
        assert_eq!(
            code(&store, &format!("{}/{missing}", registry.host), &options()),
            "image_not_found"
        );
    }
    assert_eq!(listing(&store.root().join("partial")), [""; 0]);
    assert_eq!(listing(&store.root().join("staging")), [""; 0]);
}

#[test]
fn of_an_index_the_platform_is_taken_and_none_in_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let Some(registry) = Registry::start("of_an_index", dir.path(), false) else {
        return;
    };
    let (amd, arm) = (
        Fixture::new(),
        Fixture::of(
            "linux",
            "arm64",
            vec![crate::support::Tar::new().file("arm", b"1").end()],
        ),
    );
    registry.push_index("a", "all", &[(&arm, "linux/arm64"), (&amd, "linux/amd64")]);
    registry.push_index("a", "arm", &[(&arm, "linux/arm64")]);
    // An index that says one thing of an image that says another.
    registry.push_index("a", "liar", &[(&arm, "linux/amd64")]);
    let store = Store::open(dir.path()).unwrap();
    let text = format!("{}/a:all", registry.host);
    assert_eq!(pull(&store, &text).unwrap().digest, amd.manifest);
    let other = PullOptions {
        platform: "linux/arm64".parse().unwrap(),
        ..options()
    };
    assert_eq!(pull_with(&store, &text, &other).unwrap().0.digest, arm.manifest);
    // Both are there, and each is found.
    is_the_fixture(&found(&store, &text));
    let of_arm = store.find(&reference(&text), &other.platform).unwrap();
    assert_eq!(listing(&of_arm.layers[0]), ["arm = 1"]);

    for (tag, platform, offered) in [
        ("arm", "linux/amd64", "linux/arm64"),
        ("all", "linux/s390x", "linux/arm64, linux/amd64"),
        ("liar", "linux/amd64", "linux/arm64"),
    ] {
        let options = PullOptions {
            platform: platform.parse().unwrap(),
            ..options()
        };
        let error = pull_with(&store, &format!("{}/a:{tag}", registry.host), &options).unwrap_err();
        assert!(
            matches!(&error, PullError::Platform { offered: there, .. } if there == offered),
            "{error:?}"
        );
    }
}

#[test]
fn a_login_is_given_where_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let Some(registry) = Registry::start("a_login_is_given", dir.path(), true) else {
        return;
    };
    registry.push("a", "1", &Fixture::new());
    let store = Store::open(dir.path()).unwrap();
    let text = format!("{}/a:1", registry.host);
    assert_eq!(code(&store, &text, &options()), "image_denied");
    assert_eq!(code(&store, &text, &login("bad")), "image_denied");
    assert_eq!(code(&store, &text, &login("missing")), "image_secret_missing");
    pull_with(&store, &text, &login("good")).unwrap();
    is_the_fixture(&found(&store, &text));
}

#[test]
fn a_layout_is_read_and_every_byte_of_it_is_verified() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(&dir.path().join("store")).unwrap();
    let image = Fixture::new();
    let layout = dir.path().join("layout");
    image.write_layout(&layout, "1");
    let text = format!("oci:{}", layout.display());
    for (text, expected) in [
        (text.clone(), Ok(image.manifest)),
        (format!("{text}:1"), Ok(image.manifest)),
        (format!("{text}:2"), Err("image_not_found")),
    ] {
        assert_eq!(
            pull(&store, &text)
                .map(|record| record.digest)
                .map_err(|error| error.code()),
            expected,
            "{text}"
        );
    }
    is_the_fixture(&found(&store, &text));

    // Each part that is changed, missing, or no file.
    for digest in [image.manifest, image.config, image.layers[0], image.layers[1]] {
        let path = layout.join("blobs/sha256").join(digest.hex());
        let whole = std::fs::read(&path).unwrap();
        let fresh = |name: &str| Store::open(&dir.path().join(format!("{name}{}", digest.hex()))).unwrap();
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        std::fs::write(&path, changed).unwrap();
        let store = fresh("changed");
        let code_of_changed = code(&store, &text, &options());
        assert!(
            ["image_mismatch", "image_layer_refused"].contains(&code_of_changed),
            "{digest}: {code_of_changed}"
        );
        assert_eq!(store.list().unwrap(), []);
        std::fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
        let code_of_longer = code(&fresh("longer"), &text, &options());
        assert!(
            ["image_mismatch", "image_too_large", "image_layer_refused"].contains(&code_of_longer),
            "{digest}: {code_of_longer}"
        );
        std::fs::remove_file(&path).unwrap();
        assert_eq!(code(&fresh("gone"), &text, &options()), "image_source_unreadable");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(code(&fresh("fifo"), &text, &options()), "image_source_unreadable");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, whole).unwrap();
    }
    // The control: as it was, it is taken.
    pull(&Store::open(&dir.path().join("whole")).unwrap(), &text).unwrap();
}

#[test]
fn a_layer_with_another_diff_id_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let layer = crate::support::Tar::new().file("a", b"1").end();
    let of = |id: String, name: &str| {
        let config = json!({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [id]}});
        Fixture::with_config(&config, vec![layer.clone()]).write_layout(&dir.path().join(name), "1");
        let store = Store::open(&dir.path().join(format!("{name}-store"))).unwrap();
        pull(&store, &format!("oci:{}", dir.path().join(name).display())).map_err(|error| error.code())
    };
    assert!(of(stead_image::Digest::of(&layer).to_string(), "right").is_ok());
    assert_eq!(
        of(stead_image::Digest::of(b"other").to_string(), "wrong"),
        Err("image_mismatch")
    );
    assert_eq!(of("sha512:00".to_owned(), "none"), Err("image_manifest_invalid"));
}

#[test]
fn an_archive_is_read_compressed_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let image = Fixture::new();
    let whole = image.archive("a/b:1");
    for (name, bytes) in [
        ("plain.tar", whole.clone()),
        ("small.tar.gz", gzip(&whole)),
        ("small.tar.zst", crate::support::zstd(&whole)),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let store = Store::open(&dir.path().join(format!("{name}-store"))).unwrap();
        let text = format!("docker-archive:{}", path.display());
        // An archive has no manifest with a digest.
        assert_eq!(pull(&store, &text).unwrap().digest, image.config);
        is_the_fixture(&found(&store, &text));
        assert_eq!(
            pull(&store, &format!("{text}:a/b:1")).unwrap().digest,
            image.config
        );
        assert_eq!(
            code(&store, &format!("{text}:a/b"), &options()),
            "image_not_found"
        );
        assert_eq!(listing(&store.root().join("staging")), [""; 0]);
    }
    // Thousands of entries without content are no header that is too long.
    let mut many = crate::support::Tar::new();
    for at in 0..3000 {
        many = many.dir(&format!("d{at}"));
    }
    let path = dir.path().join("many.tar");
    let without_end = |bytes: Vec<u8>| bytes[..bytes.len() - 1024].to_vec();
    std::fs::write(&path, [without_end(many.end()), whole.clone()].concat()).unwrap();
    let store = Store::open(&dir.path().join("many")).unwrap();
    pull(&store, &format!("docker-archive:{}", path.display())).unwrap();

    let store = Store::open(&dir.path().join("bad")).unwrap();
    let long = crate::support::Tar::new().raw(
        &crate::support::header(tar::EntryType::GNULongName, "x", 0, "", 4 << 20),
        &vec![b'a'; 4 << 20],
    );
    for (name, bytes, expected) in [
        (
            "cut.tar",
            whole[..whole.len() / 2].to_vec(),
            "image_manifest_invalid",
        ),
        ("text.tar", b"hello".to_vec(), "image_source_unreadable"),
        ("long.tar", long.end(), "image_source_unreadable"),
        (
            "else.tar",
            crate::support::Tar::new().file("a", b"1").end(),
            "image_manifest_invalid",
        ),
    ] {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        assert_eq!(
            code(&store, &format!("docker-archive:{}", path.display()), &options()),
            expected,
            "{name}"
        );
    }
    assert_eq!(
        code(
            &store,
            &format!("docker-archive:{}", dir.path().display()),
            &options()
        ),
        "image_source_unreadable"
    );
    assert_eq!(listing(&store.root().join("staging")), [""; 0]);
}

#[test]
fn an_image_of_the_engine_is_what_the_engine_runs() {
    if !stead_testkit::engine_or_skip("an_image_of_the_engine") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    let options = PullOptions {
        platform: Platform::of_this_host(),
        ..PullOptions::default()
    };
    let text = format!("docker-daemon:{}", stead_testkit::BUSYBOX_IMAGE);
    let record = pull_with(&store, &text, &options).unwrap().0;
    let image = store.find(&reference(&text), &options.platform).unwrap();
    assert!(
        image
            .config
            .env
            .iter()
            .any(|variable| variable.starts_with("PATH="))
    );
    let busybox = image.layers[0].join("bin/busybox");
    let output = Command::new(&busybox).args(["echo", "hello"]).output().unwrap();
    assert_eq!(output.stdout, b"hello\n");
    let id = Command::new("docker")
        .args([
            "image",
            "inspect",
            "--format",
            "{{.Id}}",
            stead_testkit::BUSYBOX_IMAGE,
        ])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8(id.stdout).unwrap().trim(),
        record.digest.to_string()
    );
    assert_eq!(
        code(&store, "docker-daemon:stead-test/none:1", &options),
        "image_not_found"
    );
    let saved = dir.path().join("saved.tar");
    let save = Command::new("docker")
        .args(["save", "-o"])
        .arg(&saved)
        .arg(stead_testkit::BUSYBOX_IMAGE)
        .status()
        .unwrap();
    assert!(save.success());
    let archive = pull_with(&store, &format!("docker-archive:{}", saved.display()), &options)
        .unwrap()
        .0;
    assert_eq!((archive.digest, archive.layers), (record.digest, record.layers));
}

#[test]
fn a_pull_ends_when_the_caller_wants_and_leaves_nothing_half_made() {
    let dir = tempfile::tempdir().unwrap();
    let image = Fixture::new();
    image.write_layout(&dir.path().join("layout"), "1");
    let text = format!("oci:{}", dir.path().join("layout").display());
    // At whatever event it ends.
    for after in 0..6 {
        let store = Store::open(&dir.path().join(format!("store{after}"))).unwrap();
        let seen = Mutex::new(0);
        let tell = |_| {
            let mut seen = seen.lock().unwrap();
            *seen += 1;
            if *seen > after {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        let ended = store.pull(&reference(&text), &options(), &tell);
        assert!(matches!(ended, Err(PullError::Cancelled)), "{after}: {ended:?}");
        assert_eq!(store.list().unwrap(), []);
        assert_eq!(listing(&store.root().join("staging")), [""; 0]);
        pull(&store, &text).unwrap();
        is_the_fixture(&found(&store, &text));
    }
}

/// Takes the tag away again, whatever becomes of the test.
struct Tagged(String);

impl Tagged {
    fn new(name: String) -> Self {
        let args = ["tag", stead_testkit::BUSYBOX_IMAGE, &name];
        assert!(Command::new("docker").args(args).status().unwrap().success());
        Self(name)
    }
}

impl Drop for Tagged {
    fn drop(&mut self) {
        let _ = Command::new("docker")
            .args(["rmi", "--no-prune", &self.0])
            .output();
    }
}

#[test]
fn what_docker_pushes_is_what_comes() {
    if !stead_testkit::engine_or_skip("what_docker_pushes_is_what_comes") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(registry) = Registry::start("what_docker_pushes_is_what_comes", dir.path(), false) else {
        return;
    };
    let tagged = Tagged::new(format!("{}/pushed:1", registry.host));
    let push = Command::new("docker").args(["push", &tagged.0]).output().unwrap();
    assert!(push.status.success(), "{}", String::from_utf8_lossy(&push.stderr));
    let store = Store::open(dir.path()).unwrap();
    let options = PullOptions {
        platform: Platform::of_this_host(),
        ..PullOptions::default()
    };
    let pulled = pull_with(&store, &tagged.0, &options).unwrap().0;
    // Docker prints the digest under which it pushed.
    let told = String::from_utf8(push.stdout).unwrap();
    assert!(told.contains(&pulled.digest.to_string()), "{told}");
    let exported = format!("docker-daemon:{}", tagged.0);
    let exported = pull_with(&store, &exported, &options).unwrap().0;
    assert_eq!((exported.layers, exported.config), (pulled.layers, pulled.config));
}
