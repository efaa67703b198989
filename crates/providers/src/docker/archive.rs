//! The archive by which the supervisor is put into a container.

use bytes::Bytes;
use std::io;
use tar::{Builder, EntryType, Header};

/// A tar archive for [`super::mounts::RUN_DIR`]: the supervisor, and the folder for its socket with the key,
/// which the supervisor removes once it has read it, before anything else runs.
///
/// `owner` is uid and gid of the supervisor. When it is not known as numbers, every user may make a socket
/// there; who may talk is decided by the key and not by the folder.
pub fn supervisor_archive(supervisor: &[u8], key: &[u8], owner: Option<(u32, u32)>) -> io::Result<Bytes> {
    let mut archive = Builder::new(Vec::with_capacity(supervisor.len() + 4096));
    let (control_mode, control_owner) = match owner {
        Some(owner) => (0o700, owner),
        None => (0o1777, (0, 0)),
    };
    add(&mut archive, "bin/", EntryType::Directory, 0o755, (0, 0), &[])?;
    add(
        &mut archive,
        "bin/supervisor",
        EntryType::Regular,
        0o755,
        (0, 0),
        supervisor,
    )?;
    add(
        &mut archive,
        "ctl/",
        EntryType::Directory,
        control_mode,
        control_owner,
        &[],
    )?;
    // Readable for whoever the supervisor runs as.
    add(
        &mut archive,
        "ctl/key",
        EntryType::Regular,
        0o444,
        owner.unwrap_or((0, 0)),
        key,
    )?;
    archive.into_inner().map(Bytes::from)
}

fn add(
    archive: &mut Builder<Vec<u8>>,
    name: &str,
    kind: EntryType,
    mode: u32,
    owner: (u32, u32),
    content: &[u8],
) -> io::Result<()> {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(owner.0.into());
    header.set_gid(owner.1.into());
    header.set_size(content.len() as u64);
    // The same file gives the same archive.
    header.set_mtime(0);
    archive.append_data(&mut header, name, content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_has_the_supervisor_and_a_folder_of_its_user() {
        let entries = |owner| {
            let archive = supervisor_archive(&[7; 513], &[1; 32], owner).unwrap();
            let mut archive = tar::Archive::new(&archive[..]);
            let entry = |entry: io::Result<tar::Entry<'_, _>>| {
                let entry = entry.unwrap();
                let (header, path) = (entry.header(), entry.path().unwrap().display().to_string());
                (
                    path,
                    header.mode().unwrap(),
                    header.uid().unwrap(),
                    header.size().unwrap(),
                )
            };
            archive.entries().unwrap().map(entry).collect::<Vec<_>>()
        };
        let of = |path: &str, mode, uid, size| (path.to_owned(), mode, uid, size);
        let program = of("bin/supervisor", 0o755, 0, 513);
        let folder = of("bin/", 0o755, 0, 0);
        let own = of("ctl/", 0o700, 4_000_000_000, 0);
        let key = of("ctl/key", 0o444, 4_000_000_000, 32);
        assert_eq!(
            entries(Some((4_000_000_000, 5))),
            [folder.clone(), program.clone(), own, key]
        );
        let (all, key) = (of("ctl/", 0o1777, 0, 0), of("ctl/key", 0o444, 0, 32));
        assert_eq!(entries(None), [folder, program, all, key]);
    }
}
