//! The supervisor's bytes, and where they are put to be started.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The supervisor for this platform: a static program that was embedded when this crate was built. A static and no
/// constant: the bytes are there once, however many places use them.
pub static SUPERVISOR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stead-supervisor"));

/// Changes with the content of [`SUPERVISOR`]; made when this crate was built.
pub const HASH: &str = env!("SUPERVISOR_HASH");

/// A name that changes with the content.
fn file_name() -> String {
    format!("supervisor-{HASH}")
}

/// Makes sure that the supervisor is in `directory`, which nobody else can write to, and gives its path.
/// The file is complete whenever it is there: it appears by a rename.
pub fn install(directory: &Path) -> io::Result<PathBuf> {
    if SUPERVISOR.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "there is no supervisor for this platform",
        ));
    }
    let path = directory.join(file_name());
    let own = rustix::process::geteuid().as_raw();
    match fs::symlink_metadata(&path) {
        Ok(found) if found.is_file() && found.uid() == own && found.len() == SUPERVISOR.len() as u64 => {
            return Ok(path);
        }
        _ => {}
    }
    let mut temporary = tempfile::Builder::new()
        .prefix(".supervisor-")
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempfile_in(directory)?;
    temporary.write_all(SUPERVISOR)?;
    // The writing descriptor is closed before it is executed, or the system says ETXTBSY.
    temporary
        .into_temp_path()
        .persist(&path)
        .map_err(|error| error.error)?;
    Ok(path)
}

/// A secret of this user alone, written whole.
pub fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)
}
