//! What a plan depends on: facts about this machine, gathered in one place.

use std::fs;
use std::path::{Path, PathBuf};

/// A top-level directory of the host that holds programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootEntry {
    /// A directory.
    Directory(String),
    /// A link, as `/bin` is to `usr/bin` where the two were merged.
    Link(String, PathBuf),
}

/// Facts about the machine and the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Whether the caller is root.
    pub is_root: bool,
    /// The caller.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// Directories with programs that are there.
    pub programs: Vec<RootEntry>,
    /// Files and directories of /etc that programs need and that tell nothing of the machine's users.
    pub etc: Vec<PathBuf>,
}

/// Where programs and their libraries are.
const PROGRAMS: [&str; 8] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec"];

/// What programs need of /etc: the loader's cache, certificates, alternatives, names of types and services.
const ETC: [&str; 16] = [
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "python3",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
];

impl Host {
    /// Looks at this machine.
    pub fn look(uid: u32, gid: u32) -> Self {
        Self {
            is_root: uid == 0,
            uid,
            gid,
            programs: PROGRAMS.iter().filter_map(|name| entry(name)).collect(),
            etc: ETC
                .iter()
                .map(|name| Path::new("/etc").join(name))
                .filter(|path| path.exists())
                .collect(),
        }
    }
}

fn entry(name: &str) -> Option<RootEntry> {
    let path = Path::new("/").join(name);
    let found = fs::symlink_metadata(&path).ok()?;
    if found.is_symlink() {
        return Some(RootEntry::Link(name.to_owned(), fs::read_link(path).ok()?));
    }
    found.is_dir().then(|| RootEntry::Directory(name.to_owned()))
}
