//! What is put on the host for the probe to reach.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// All of it; it goes when this is dropped.
#[derive(Debug)]
pub struct Targets {
    secret: String,
    canary: tempfile::NamedTempFile,
    process: Process,
    listener: TcpListener,
    abstract_name: String,
    _abstract_listener: UnixListener,
}

/// A process of the host that has the secret in its command line.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Targets {
    pub fn new() -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let secret: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut canary = tempfile::Builder::new().prefix("stead-canary-").tempfile()?;
        canary.write_all(secret.as_bytes())?;
        canary.flush()?;
        // Everybody may read it: what refuses must be the place and not the file's owner.
        fs::set_permissions(canary.path(), fs::Permissions::from_mode(0o666))?;
        let abstract_name = format!("stead-canary-{secret}");
        Ok(Self {
            // It ends with us: its standard input is a pipe that nobody writes.
            process: Process(
                Command::new("/bin/sh")
                    .args(["-c", "read -r nothing; :", &secret])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()?,
            ),
            listener: TcpListener::bind("127.0.0.1:0")?,
            _abstract_listener: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?,
            secret,
            canary,
            abstract_name,
        })
    }

    /// The arguments by which the probe knows them.
    pub fn arguments(&self, scratch: &Path) -> Vec<OsString> {
        debug_assert!(self.process.0.id() > 0);
        let port = self.listener.local_addr().map_or(0, |address| address.port());
        // It can be looked at by everybody, and read by root.
        let shadow = fs::metadata("/etc/shadow").map_or_else(
            |_| "none".to_owned(),
            |found| format!("{}.{}.{}", found.size(), found.mtime(), found.mtime_nsec()),
        );
        let pairs: [(&str, OsString); 6] = [
            ("--shadow", shadow.into()),
            ("--canary", self.canary.path().into()),
            ("--secret", self.secret.clone().into()),
            ("--port", port.to_string().into()),
            ("--abstract-socket", self.abstract_name.clone().into()),
            ("--scratch", scratch.into()),
        ];
        let disk = first_disk().map(|disk| ("--disk", OsString::from(disk)));
        pairs
            .into_iter()
            .chain(disk)
            .flat_map(|(name, value)| [name.into(), value])
            .collect()
    }
}

/// The numbers of a disk of this host: a place need not name one in its own /proc to reach it.
fn first_disk() -> Option<String> {
    let text = fs::read_to_string("/proc/partitions").ok()?;
    text.lines().skip(2).find_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        Some(format!("{}:{}", fields.next()?, fields.next()?))
    })
}
