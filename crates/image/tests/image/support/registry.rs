//! The registry that Debian ships, on a port of this machine.

use super::image::{Fixture, OCI_INDEX, OCI_MANIFEST};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use stead_image::Digest;

/// The password of the user `stead` of a registry that asks for one.
pub const PASSWORD: &str = "pa?>ss~~~???>>>";

/// bcrypt of [`PASSWORD`].
const PASSWORD_HASH: &str = "$2y$05$abcdefghijklmnopqrstuuAEiqQCwTF7VD327NT/HqV.xN7QcY2zi";

pub struct Registry {
    process: Child,
    pub host: String,
    with_login: bool,
}

impl Registry {
    /// Starts one with its data in a folder; `None` after the skip was said, where the program is missing.
    pub fn start(test: &str, folder: &Path, with_login: bool) -> Option<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let host = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
        drop(listener);
        let at = folder.display();
        let mut config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {at}/data\nhttp:\n  addr: {host}\n"
        );
        if with_login {
            std::fs::write(folder.join("users"), format!("stead:{PASSWORD_HASH}\n")).unwrap();
            config += &format!("auth:\n  htpasswd:\n    realm: test\n    path: {at}/users\n");
        }
        let file = folder.join("config.yml");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("docker-registry");
        command
            .arg("serve")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) => {
                stead_testkit::skip(test, &format!("docker-registry is missing: {error}"));
                return None;
            }
        };
        let mut registry = Self {
            process,
            host,
            with_login,
        };
        // Listening takes as long as the machine lets it; a test does not fail on a time.
        while std::net::TcpStream::connect(&registry.host).is_err() {
            assert!(
                registry.process.try_wait().unwrap().is_none(),
                "the registry has ended"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(registry)
    }

    /// Uploads an image under a tag.
    pub fn push(&self, repository: &str, tag: &str, image: &Fixture) {
        for (digest, bytes) in image
            .blobs
            .iter()
            .filter(|(digest, _)| **digest != image.manifest.to_string())
        {
            self.push_blob(repository, digest, bytes);
        }
        self.push_manifest(repository, tag, OCI_MANIFEST, image.blob(&image.manifest));
    }

    /// Uploads images and an index of them.
    pub fn push_index(&self, repository: &str, tag: &str, images: &[(&Fixture, &str)]) {
        for (image, _) in images {
            self.push(repository, &image.manifest.hex()[..8], image);
        }
        self.push_manifest(repository, tag, OCI_INDEX, &Fixture::index(images));
    }

    fn push_blob(&self, repository: &str, digest: &str, bytes: &[u8]) {
        let begin = self.send(
            ureq::post(format!("http://{}/v2/{repository}/blobs/uploads/", self.host)),
            b"",
        );
        let location = begin.headers()["location"].to_str().unwrap().to_owned();
        let separator = if location.contains('?') { '&' } else { '?' };
        let upload = ureq::put(format!("{location}{separator}digest={digest}"));
        self.send(upload.header("content-type", "application/octet-stream"), bytes);
    }

    fn push_manifest(&self, repository: &str, tag: &str, kind: &str, bytes: &[u8]) -> Digest {
        let put = ureq::put(format!("http://{}/v2/{repository}/manifests/{tag}", self.host));
        self.send(put.header("content-type", kind), bytes);
        Digest::of(bytes)
    }

    fn send(
        &self,
        mut request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        body: &[u8],
    ) -> ureq::http::Response<ureq::Body> {
        use base64::Engine;
        if self.with_login {
            let login = base64::engine::general_purpose::STANDARD.encode(format!("stead:{PASSWORD}"));
            request = request.header("authorization", format!("Basic {login}"));
        }
        request.send(body).unwrap()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
