//! `stead image`.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use stead::image::Digest;
use tempfile::TempDir;

/// A folder with a layout of one image, whose only layer is an archive of nothing.
fn folder() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let blobs = dir.path().join("layout/blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let blob = |kind: &str, bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(blobs.join(digest.hex()), bytes).unwrap();
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest, "size": bytes.len()})
    };
    let layer = blob("layer.v1.tar", &[0; 1024]);
    let config = json!({"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [layer["digest"]]}});
    let config = blob("config.v1+json", config.to_string().as_bytes());
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]});
    let manifest = blob("manifest.v1+json", manifest.to_string().as_bytes());
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    std::fs::write(dir.path().join("layout/index.json"), index.to_string()).unwrap();
    dir
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
    command
        .env("STEAD_DATA_DIR", dir.join("data"))
        .env("HOME", dir)
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(dir)
        .arg("image");
    command
}

/// Both streams and the exit code, with what differs from run to run taken out.
fn told(dir: &Path, args: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = command(dir).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let all = format!("{}{}exit {}", text(stdout), text(stderr), status.code().unwrap());
    let at = dir.display().to_string();
    // The column is as wide as the path, which is not the same everywhere.
    let words: Vec<String> = all.replace(&at, "DIR").lines().map(squeezed).collect();
    words.join("\n")
}

/// Single blanks, and no times.
fn squeezed(line: &str) -> String {
    let words = line.split_whitespace().map(|word| {
        let is_time = word.len() == 20 && word.starts_with("20") && word.ends_with('Z');
        if is_time { "TIME" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

const PULL: [&str; 4] = ["pull", "oci:layout", "--platform", "linux/amd64"];

#[test]
fn an_image_comes_is_listed_and_goes() {
    let dir = folder();
    insta::assert_snapshot!(told(dir.path(), &["ls"]), @r"
    REFERENCE PLATFORM DIGEST SIZE PULLED
    exit 0
    ");
    insta::assert_snapshot!(told(dir.path(), &PULL), @r"
    sha256:e4baaf422952391a06ee9a773eb7f5b649b9a0f1a887607fdba21eb487890235
    exit 0
    ");
    insta::assert_snapshot!(told(dir.path(), &["ls"]), @r"
    REFERENCE PLATFORM DIGEST SIZE PULLED
    oci:DIR/layout linux/amd64 e4baaf422952 1.0 KiB TIME
    exit 0
    ");
    // The path means the same from everywhere.
    insta::assert_snapshot!(told(dir.path(), &["rm", "oci:layout"]), @r"
    oci:DIR/layout
    sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
    1.0 KiB freed
    exit 0
    ");
    insta::assert_snapshot!(told(dir.path(), &["rm", "oci:layout"]), @r"
    error: there is no image oci:DIR/layout
    `stead image ls` lists what there is. [image_missing]
    exit 125
    ");
    insta::assert_snapshot!(told(dir.path(), &["prune"]), @r"
    0 B freed
    exit 0
    ");
}

#[test]
fn documents_have_stable_names() {
    let dir = folder();
    let json = |args: &[&str]| -> Value {
        let output = command(dir.path()).args(args).arg("--json").output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let keys = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let pulled = json(&PULL);
    assert_eq!(keys(&pulled), "reference digest platform size pulled_at layers");
    assert_eq!(
        (&pulled["size"], &pulled["platform"]),
        (&json!(1024), &json!("linux/amd64"))
    );
    assert_eq!(json(&["ls"]), json!({"images": [pulled]}));
    let digest = pulled["digest"].as_str().unwrap();
    let gone = json(&["rm", &digest["sha256:".len()..][..12]]);
    let layers = json!([Digest::of(&[0; 1024])]);
    assert_eq!(
        gone,
        json!({"images": [pulled["reference"]], "layers": layers, "bytes": 1024, "deferred": false})
    );
    assert_eq!(
        json(&["prune"]),
        json!({"images": [], "layers": [], "bytes": 0, "deferred": false})
    );
    let failure = json(&["pull", "oci:nothing"]);
    assert_eq!(failure["error"]["code"], "image_source_unreadable");
    assert_eq!(keys(&failure["error"]), "code message details");
}

#[test]
fn mistakes_are_told_with_what_to_do_and_a_code() {
    let dir = folder();
    insta::assert_snapshot!(told(dir.path(), &["pull", "Upper"]), @r#"
    error: "Upper" names no image: its path has to be lower-case letters and digits, with single separators between them
    Write NAME[:TAG][@sha256:…], oci:PATH[:TAG], docker-archive:PATH[:NAME] or docker-daemon:NAME. [image_reference_invalid]
    exit 2
    "#);
    insta::assert_snapshot!(told(dir.path(), &["pull", "a", "--platform", "linux"]), @r#"
    error: --platform: "linux" is not os/architecture or os/architecture/variant, such as linux/amd64
    Write --platform linux/amd64 or the like. [usage]
    exit 2
    "#);
    insta::assert_snapshot!(told(dir.path(), &["pull", "oci:layout", "--platform", "linux/arm64"]), @r"
    error: DIR/layout is not for linux/arm64, but for linux/amd64
    Name one of these with --platform. [image_platform_missing]
    exit 125
    ");
    insta::assert_snapshot!(told(dir.path(), &["pull", "oci:layout:2"]), @r"
    error: DIR/layout has no image 2
    Check the name and the tag. [image_not_found]
    exit 125
    ");
    insta::assert_snapshot!(told(dir.path(), &["pull", "127.0.0.1:1/a", "--username", "u", "--password-secret", "my.key"]), @r"
    error: the password my.key is not there: STEAD_SECRET_MY_KEY is not set, or is no text
    Set STEAD_SECRET_MY_KEY to the password. [image_secret_missing]
    exit 125
    ");
    let lonely = command(dir.path())
        .args(["pull", "a", "--username", "u"])
        .output()
        .unwrap();
    assert_eq!(lonely.status.code(), Some(2));
}

#[test]
fn the_store_is_of_this_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = folder();
    let images = dir.path().join("data/images");
    std::fs::create_dir_all(&images).unwrap();
    std::fs::set_permissions(&images, std::fs::Permissions::from_mode(0o777)).unwrap();
    insta::assert_snapshot!(told(dir.path(), &["ls"]), @r"
    error: DIR/data/images cannot hold images: it is not a folder that belongs to this user and is open to nobody else
    Set STEAD_DATA_DIR to a folder that is yours alone. [image_store_failed]
    exit 125
    ");
}

#[test]
fn a_signal_ends_a_pull_that_waits_for_its_registry() {
    let dir = folder();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let reference = format!("{}/a", listener.local_addr().unwrap());
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let mut child = command(dir.path())
            .args(["pull", &reference])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Asked and never answered.
        let asked = listener.accept().unwrap();
        let id = child.id().to_string();
        assert!(
            Command::new("kill")
                .args([&format!("-{signal}"), &id])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), Some(code));
        drop(asked);
    }
}

/// Many processes do the same thing at once, and it is done once.
#[test]
fn processes_share_a_store() {
    let dir = folder();
    let spawn = |args: &[&str]| {
        command(dir.path())
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut all: Vec<_> = (0..6).map(|_| spawn(&PULL)).collect();
    let mut pruned: Vec<_> = (0..3).map(|_| spawn(&["prune"])).collect();
    for child in &mut all {
        assert!(child.wait().unwrap().success());
    }
    for child in &mut pruned {
        // It may have met a pull, and says so.
        assert!(matches!(child.wait().unwrap().code(), Some(0 | 125)));
    }
    let output = command(dir.path()).args(["ls", "--json"]).output().unwrap();
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed["images"].as_array().unwrap().len(), 1);
    let layers = std::fs::read_dir(dir.path().join("data/images/layers/sha256")).unwrap();
    assert_eq!(
        layers
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count(),
        1
    );
}

/// A registry that gives half of the layer and then nothing, and says when it has.
fn stuck_registry(dir: &Path) -> (String, std::sync::mpsc::Receiver<()>) {
    use std::io::{Read, Write};
    let blobs = dir.join("layout/blobs/sha256");
    let index: Value =
        serde_json::from_slice(&std::fs::read(dir.join("layout/index.json")).unwrap()).unwrap();
    let manifest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let reference = format!("{}/a@{manifest}", listener.local_addr().unwrap());
    let (send, half) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let hex = head
                .split(' ')
                .nth(1)
                .unwrap_or_default()
                .rsplit(':')
                .next()
                .unwrap_or_default();
            let bytes = std::fs::read(blobs.join(hex)).unwrap();
            let is_layer = bytes.iter().all(|byte| *byte == 0);
            let given = if is_layer { bytes.len() / 2 } else { bytes.len() };
            let answer = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                bytes.len()
            );
            stream
                .write_all(&[answer.as_bytes(), &bytes[..given]].concat())
                .unwrap();
            if is_layer {
                open.push(stream);
                // Nobody may wait any more.
                let _ = send.send(());
            }
        }
    });
    (reference, half)
}

#[test]
fn a_pull_that_is_killed_leaves_a_store_that_works() {
    let dir = folder();
    let (reference, half) = stuck_registry(dir.path());
    let mut child = command(dir.path())
        .args(["pull", &reference, "--platform", "linux/amd64"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    half.recv().unwrap();
    let partial = dir
        .path()
        .join("data/images/partial")
        .join(Digest::of(&[0; 1024]).hex());
    while std::fs::metadata(&partial).map_or(0, |found| found.len()) < 512 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // The control: while it lives, it is not disturbed.
    assert!(told(dir.path(), &["prune"]).contains("[image_store_busy]"));
    child.kill().unwrap();
    child.wait().unwrap();
    insta::assert_snapshot!(told(dir.path(), &["ls"]), @r"
    REFERENCE PLATFORM DIGEST SIZE PULLED
    exit 0
    ");
    insta::assert_snapshot!(told(dir.path(), &["prune"]), @r"
    512 B freed
    exit 0
    ");
    assert!(!partial.exists());
    assert!(told(dir.path(), &PULL).ends_with("exit 0"));
}

/// Ends with the test.
struct Registry(std::process::Child);

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A registry of this machine that speaks TLS, with a certificate that nobody knows; its data is in `dir`.
fn tls_registry(test: &str, dir: &Path) -> Option<(Registry, String)> {
    let make = "set -e; key='-newkey rsa:2048 -nodes'; echo subjectAltName=DNS:localhost > names
        openssl req -x509 $key -subj /CN=nobody -keyout ca.key -out ca.pem
        openssl req $key -subj /CN=localhost -keyout key.pem -out request
        openssl x509 -req -in request -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out cert.pem";
    let made = Command::new("sh")
        .args(["-c", make])
        .current_dir(dir)
        .output()
        .unwrap();
    if !made.status.success() {
        stead_testkit::skip(test, "openssl is missing");
        return None;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let at = dir.display();
    let config = format!(
        "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {at}/registry\nhttp:\n  addr: 127.0.0.1:{port}\n  \
         tls:\n    certificate: {at}/cert.pem\n    key: {at}/key.pem\n"
    );
    std::fs::write(dir.join("config.yml"), config).unwrap();
    let mut command = Command::new("docker-registry");
    command
        .arg("serve")
        .arg(dir.join("config.yml"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(process) = command.spawn() else {
        stead_testkit::skip(test, "docker-registry is missing");
        return None;
    };
    let mut registry = Registry(process);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(registry.0.try_wait().unwrap().is_none(), "the registry has ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Some((registry, format!("localhost:{port}/a")))
}

#[test]
fn a_registry_with_tls_is_believed_with_a_certificate_that_this_machine_trusts() {
    let dir = folder();
    let Some((_registry, reference)) = tls_registry("a_registry_with_tls", dir.path()) else {
        return;
    };
    let pull = |trusted: &str| {
        let mut command = command(dir.path());
        command
            .args(["pull", &reference, "--json"])
            .env("SSL_CERT_FILE", dir.path().join(trusted));
        let document: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        document["error"].clone()
    };
    // It has nothing, and whoever is told so has spoken to it.
    let answered = pull("ca.pem");
    assert_eq!(answered["code"], "image_not_found", "{answered}");
    let stranger = pull("none.pem");
    assert_eq!(stranger["code"], "image_unreachable", "{stranger}");
    assert!(
        stranger["message"].as_str().unwrap().contains("certificate"),
        "{stranger}"
    );
}
