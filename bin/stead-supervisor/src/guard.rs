//! The guard: a process on the host that outlives its owner and removes what the owner left.
//!
//! The owner holds our standard input and says on it what exists: records of three NUL-terminated
//! strings, an operation and two arguments. When the input ends, everything that was added and not
//! dropped is removed.
//!
//! | operation | arguments |
//! | --- | --- |
//! | `add-directory`, `drop-directory` | path, empty |
//! | `add-container`, `drop-container` | path of the engine's socket, name |

use crate::removal;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Rounds in which containers are removed, one second apart: an engine may be restarting.
const ROUNDS: u32 = 50;

/// Rounds after which a container that was never seen does not come any more: the engine may still be making what
/// the owner asked for just before it died.
const COMES_LATE: u32 = 10;

type Record = (Vec<u8>, Vec<u8>);

/// Reads until the owner is gone, then removes.
pub fn guard() -> io::Result<()> {
    // What ends the owner must not end us first: a Ctrl-C reaches the whole foreground group.
    stead_sys::block_all_signals();
    // Failing only means that we lead a session already.
    let _ = rustix::process::setsid();
    let mut directories = BTreeSet::new();
    let mut containers = BTreeSet::new();
    let mut input = io::stdin().lock();
    while let Some([operation, first, second]) = record(&mut input)? {
        let record: Record = (first, second);
        match &operation[..] {
            b"add-directory" => directories.insert(record),
            b"drop-directory" => directories.remove(&record),
            b"add-container" => containers.insert(record),
            b"drop-container" => containers.remove(&record),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
    }
    remove_containers(containers);
    for (path, _) in &directories {
        removal::remove(Path::new(OsStr::from_bytes(path)));
    }
    Ok(())
}

/// The next record; `None` at the end. A record that is cut off was never complete and is dropped.
fn record(input: &mut impl BufRead) -> io::Result<Option<[Vec<u8>; 3]>> {
    let mut fields = [Vec::new(), Vec::new(), Vec::new()];
    for field in &mut fields {
        input.take(8192).read_until(0, field)?;
        if field.pop() != Some(0) {
            return Ok(None);
        }
    }
    Ok(Some(fields))
}

fn remove_containers(mut left: BTreeSet<Record>) {
    for round in 0..ROUNDS {
        left.retain(|(socket, name)| {
            let socket = Path::new(OsStr::from_bytes(socket));
            match delete(socket, &String::from_utf8_lossy(name)) {
                Ok(200..300) => false,
                Ok(404) => round < COMES_LATE,
                Ok(_) | Err(_) => true,
            }
        });
        if left.is_empty() {
            return;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// One request, without a client library: this program stays small.
fn delete(socket: &Path, name: &str) -> io::Result<u16> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.set_write_timeout(Some(Duration::from_secs(20)))?;
    write!(
        stream,
        "DELETE /containers/{name}?force=1&v=1 HTTP/1.1\r\nHost: stead\r\nConnection: close\r\n\r\n"
    )?;
    let mut line = String::new();
    io::BufReader::new(stream.take(1024)).read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_whole_or_not_at_all() {
        let mut input = &b"add-directory\0/a b\0\0drop-dir"[..];
        let first = record(&mut input).unwrap().unwrap();
        assert_eq!(first, [b"add-directory".to_vec(), b"/a b".to_vec(), Vec::new()]);
        assert_eq!(record(&mut input).unwrap(), None);
        assert_eq!(record(&mut input).unwrap(), None);
    }
}
