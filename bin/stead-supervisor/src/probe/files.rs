//! Reaching the host's files by every way there is.

use super::{Attempt, Outcome, Targets};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;

pub fn attempts(targets: &Targets) -> Vec<Attempt> {
    let canary = &targets.canary;
    let read = |path: &Path| match fs::read(path) {
        Ok(found) if found == targets.secret.as_bytes() => {
            Outcome::Reached(format!("{} was read", path.display()))
        }
        Ok(_) => Outcome::Refused(format!("{} is another file here", path.display())),
        Err(error) => Outcome::Refused(error.to_string()),
    };
    let below = |root: &str| Path::new(root).join(canary.strip_prefix("/").unwrap_or(canary));
    let link = targets.scratch.join("probe-link");
    let _ = fs::remove_file(&link);
    let by_link = match symlink(canary, &link) {
        Ok(()) => read(&link),
        Err(error) => Outcome::Unknown(error.to_string()),
    };
    let _ = fs::remove_file(&link);
    vec![
        ("read a file by its path", read(canary)),
        ("read a file through ..", read(&below("/proc/self/root/../../.."))),
        ("read a file through /proc/1/root", read(&below("/proc/1/root"))),
        ("read a file through a link in the workspace", by_link),
        ("write a file by its path", write(targets)),
        ("read /etc/shadow", shadow(&targets.shadow)),
        ("find an inherited descriptor", descriptors()),
        ("read a disk of the host", disk(targets)),
    ]
}

/// Appends nothing: that it can be opened says enough.
fn write(targets: &Targets) -> Outcome {
    let opened = fs::File::options().append(true).open(&targets.canary);
    opened.and_then(|mut file| file.write_all(b"")).into()
}

/// A place or an image has a file of its own with that name.
fn shadow(host: &str) -> Outcome {
    let read = fs::read("/etc/shadow").and_then(|text| Ok((text.len(), fs::metadata("/etc/shadow")?)));
    match read {
        Ok((_, found)) if format!("{}.{}.{}", found.size(), found.mtime(), found.mtime_nsec()) == host => {
            Outcome::Reached("the host's file was read".to_owned())
        }
        Ok(_) => Outcome::Refused("it is another file here".to_owned()),
        Err(error) => Outcome::Refused(error.to_string()),
    }
}

/// Standard streams aside, a command starts with nothing open.
fn descriptors() -> Outcome {
    let Ok(entries) = fs::read_dir("/proc/self/fd") else {
        return Outcome::Unknown("there is no /proc".to_owned());
    };
    let open = entries.flatten().filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        // The directory that is being read is ours.
        (number > 2 && !target.ends_with("fd")).then(|| format!("{number} is {}", target.display()))
    });
    match open.collect::<Vec<_>>() {
        none if none.is_empty() => Outcome::Refused("there is none".to_owned()),
        some => Outcome::Reached(some.join(", ")),
    }
}

/// Makes a node of a disk of the host, and reads it.
fn disk(targets: &Targets) -> Outcome {
    let Some((major, minor)) = targets.disk else {
        return Outcome::Unknown("the host has no disk".to_owned());
    };
    let node = targets.scratch.join("probe-disk");
    let _ = fs::remove_file(&node);
    let device = rustix::fs::makedev(major, minor);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        &node,
        rustix::fs::FileType::BlockDevice,
        mode,
        device,
    );
    let outcome = made.map_err(io::Error::from).and_then(|()| {
        debug_assert!(fs::metadata(&node).is_ok_and(|found| found.file_type().is_block_device()));
        let mut sector = [0; 512];
        io::Read::read_exact(&mut fs::File::open(&node)?, &mut sector)
    });
    let _ = fs::remove_file(&node);
    outcome.into()
}
