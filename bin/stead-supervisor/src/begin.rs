//! The beginning of a supervisor that is a process of the host. It is there before its instance's folder is, so
//! that nothing is left of an owner that dies while it makes one.
//!
//! The owner says on our standard input the path of the folder with a zero byte behind it, then makes the folder,
//! then says [`GO`]. What follows on the same stream is the first connection.

use crate::args::{self, Serve};
use crate::{keep, removal, server};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The folder is complete.
const GO: u8 = b'g';

/// Bytes of the path of a folder: the kernel takes no longer one.
const LONGEST: usize = 4096;

/// Waits for the folder and serves its instance. What fails leaves no folder.
pub fn serve_here() -> io::Result<()> {
    // What ends the owner must not end us first: a Ctrl-C reaches the whole foreground group.
    stead_sys::block_all_signals();
    let Some(folder) = folder()? else {
        return Ok(());
    };
    let served = match byte()? {
        Some(GO) if keep::is_kept(&folder) => keep::keep(&folder),
        Some(GO) => options(&folder).and_then(server::serve),
        Some(_) => Err(io::Error::other("the owner speaks nonsense")),
        // It died, or gave up and removes the folder as we do.
        None => {
            removal::remove(&folder);
            return Ok(());
        }
    };
    served.inspect_err(|_| removal::remove(&folder))
}

/// Our options are in a file of the folder: arguments are seen by everybody in the place, and must not tell of the
/// host.
fn options(folder: &Path) -> io::Result<Serve> {
    let options = fs::read(folder.join("options"))
        .map_err(|error| io::Error::new(error.kind(), format!("the file of options: {error}")))?;
    let options = options
        .split(|byte| *byte == 0)
        .filter(|option| !option.is_empty());
    args::serve(options.map(|option| std::ffi::OsStr::from_bytes(option).to_owned()))
        .map_err(io::Error::other)
}

/// `None` when the owner was gone before it could say it, and so before it made anything.
fn folder() -> io::Result<Option<PathBuf>> {
    let mut path = Vec::new();
    loop {
        match byte()? {
            Some(0) => return Ok(Some(OsString::from_vec(path).into())),
            Some(byte) if path.len() < LONGEST => path.push(byte),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => return Ok(None),
        }
    }
}

/// One byte and no more: what follows is not for us.
fn byte() -> io::Result<Option<u8>> {
    let mut byte = [0];
    match rustix::io::read(rustix::stdio::stdin(), &mut byte) {
        Ok(0) | Err(rustix::io::Errno::CONNRESET) => Ok(None),
        Ok(_) => Ok(Some(byte[0])),
        Err(error) => Err(error.into()),
    }
}
