//! A registry of this machine that ends with the test.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The password of the user `stead` of a registry that asks for one. Encoded for the engine it has letters
/// that differ between the two alphabets of base64.
pub const PASSWORD: &str = "pa?>ss~~~???>>>";

/// bcrypt of [`PASSWORD`].
const PASSWORD_HASH: &str = "$2y$05$abcdefghijklmnopqrstuuAEiqQCwTF7VD327NT/HqV.xN7QcY2zi";

pub struct Registry {
    process: Child,
    pub host: String,
}

impl Registry {
    /// Starts one on a free port with its data in a folder. `None` where the program is missing.
    pub fn start(folder: &Path, with_login: bool) -> Option<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let host = format!("127.0.0.1:{port}");
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
        let registry = Self {
            process: command.spawn().ok()?,
            host,
        };
        // Listening takes as long as the machine lets it; a test does not fail on a time.
        while std::net::TcpStream::connect(&registry.host).is_err() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(registry)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
