//! `stead run` in a native place with the files of an image.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use serde_json::json;
use std::path::Path;
use std::process::{Command, Output};
use stead::image::Digest;

/// An OCI layout with two layers: busybox and a file, and upon it one that removes the file and has another owner.
fn layout(dir: &Path) {
    let blobs = dir.join("layout/blobs/sha256");
    std::fs::create_dir_all(&blobs).unwrap();
    let blob = |kind: &str, bytes: &[u8]| {
        let digest = Digest::of(bytes);
        std::fs::write(blobs.join(digest.hex()), bytes).unwrap();
        json!({"mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest, "size": bytes.len()})
    };
    let busybox = std::fs::read("/bin/busybox").unwrap();
    let mut lower = Tar::default();
    lower.file("bin/busybox", &busybox, 0o755, 0);
    lower.link("bin/sh", "busybox");
    lower.file(
        "etc/passwd",
        b"root:x:0:0::/root:/bin/sh\ntester:x:1000:1000::/:/bin/sh\n",
        0o644,
        0,
    );
    lower.file("etc/hosts", b"of the image", 0o644, 0);
    lower.file("gone", b"1", 0o644, 0);
    let mut upper = Tar::default();
    upper.file(".wh.gone", b"", 0o644, 0);
    upper.file("home/tester/file", b"kept\n", 0o600, 1000);
    let layers = [lower, upper].map(|layer| blob("layer.v1.tar", &layer.done()));
    let digests: Vec<_> = layers.iter().map(|layer| layer["digest"].clone()).collect();
    let config = json!({
        "os": "linux", "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "config": {"Env": ["FROM_IMAGE=yes", "PATH=/bin"], "User": "tester"},
        "rootfs": {"type": "layers", "diff_ids": digests},
    });
    let config = blob("config.v1+json", config.to_string().as_bytes());
    let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
    let manifest = blob("manifest.v1+json", manifest.to_string().as_bytes());
    let index = json!({"schemaVersion": 2, "manifests": [manifest]});
    std::fs::write(dir.join("layout/index.json"), index.to_string()).unwrap();
}

/// An archive, written by hand.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn header(&mut self, name: &str, kind: u8, size: usize, mode: u32, owner: u32, target: &str) {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(108, &format!("{owner:07o}"));
        put(116, &format!("{owner:07o}"));
        put(124, &format!("{size:011o}"));
        put(136, "00000000000");
        put(148, "        ");
        put(157, target);
        put(257, "ustar\u{0}00");
        header[156] = kind;
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\u{0} ").as_bytes());
        self.0.extend_from_slice(&header);
    }

    fn file(&mut self, name: &str, content: &[u8], mode: u32, owner: u32) {
        self.header(name, b'0', content.len(), mode, owner, "");
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    fn link(&mut self, name: &str, target: &str) {
        self.header(name, b'2', 0, 0o777, 0, target);
    }

    fn done(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

fn stead(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stead"))
        .env("STEAD_DATA_DIR", dir.join("data"))
        .env("STEAD_STATE_DIR", dir.join("state"))
        .env("HOME", dir)
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(dir)
        .args(args)
        .output()
        .unwrap()
}

fn run(dir: &Path, user: &str, shell: &str) -> String {
    let mut args = vec!["run", "--provider", "native", "--image", "oci:layout"];
    args.extend(["--user", user].iter().filter(|_| !user.is_empty()));
    args.extend(["--shell", shell]);
    let output = stead(dir, &args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn a_native_place_has_the_files_of_an_image_and_changes_none() {
    let test = "a_native_place_has_the_files_of_an_image_and_changes_none";
    if !rustix::process::geteuid().is_root() {
        return stead_testkit::note_skip(
            test,
            "its image has two users, and an ordinary user's places have one",
        );
    }
    let dir = tempfile::tempdir().unwrap();
    let providers = stead(dir.path(), &["providers", "--json"]);
    let providers: serde_json::Value = serde_json::from_slice(&providers.stdout).unwrap();
    let native = providers["providers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["provider"] == "native");
    let native = native.unwrap();
    if native["available"] != true {
        return stead_testkit::skip(test, &native["reason"].to_string());
    }
    layout(dir.path());
    // What is not in the store is pulled; the image's user and environment count, and its owners are as it says.
    let seen = run(
        dir.path(),
        "",
        "busybox id -u; echo $FROM_IMAGE; busybox cat /home/tester/file; busybox ls /",
    );
    let files = ["bin", "dev", "etc", "home", "proc", "tmp", "workspace"];
    assert_eq!(
        seen,
        format!("1000\nyes\nkept\n{}\n", files.join("\n")),
        "the file that the upper layer removes is gone"
    );
    let hosts = run(dir.path(), "root", "busybox grep -c localhost /etc/hosts");
    assert_eq!(hosts, "2\n", "the place's own, not the image's");
    // Root there changes what it likes, and the next place sees nothing of it.
    let changed = run(
        dir.path(),
        "root",
        "echo x > /etc/new && busybox rm /etc/passwd && busybox ls /etc",
    );
    assert_eq!(changed, "hostname\nhosts\nnew\n");
    assert_eq!(
        run(dir.path(), "root", "busybox ls /etc"),
        "hostname\nhosts\npasswd\n"
    );
    // The names by which the root was mounted tell nothing of the host.
    let mounts = run(dir.path(), "root", "busybox grep overlay /proc/self/mountinfo");
    assert!(mounts.contains("upperdir=changes/upper"), "{mounts}");
    assert!(!mounts.contains(&dir.path().display().to_string()), "{mounts}");
    // A choice takes it now, because it is at hand; another image would have to be fetched first.
    let chosen = stead(
        dir.path(),
        &[
            "run",
            "--image",
            "oci:layout",
            "--user",
            "root",
            "--json",
            "--",
            "busybox",
            "true",
        ],
    );
    let chosen: serde_json::Value = serde_json::from_slice(&chosen.stdout).unwrap();
    assert_eq!(chosen["provider"], "native", "{chosen}");
    assert_eq!(chosen["isolation"]["host_filesystem_restricted"], true);
    // While a place stands its layers stay.
    let mut held = Command::new(env!("CARGO_BIN_EXE_stead"))
        .env("STEAD_DATA_DIR", dir.path().join("data"))
        .env("STEAD_STATE_DIR", dir.path().join("state"))
        .current_dir(dir.path())
        .args([
            "run",
            "--provider",
            "native",
            "--image",
            "oci:layout",
            "-i",
            "--shell",
        ])
        .arg("echo up; read go; busybox cat /home/tester/file")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(held.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line, "up\n");
    assert!(stead(dir.path(), &["image", "rm", "oci:layout"]).status.success());
    assert!(stead(dir.path(), &["image", "prune"]).status.success());
    std::io::Write::write_all(&mut held.stdin.take().unwrap(), b"\n").unwrap();
    line.clear();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    assert_eq!(line, "kept\n");
    assert!(held.wait().unwrap().success());
}
