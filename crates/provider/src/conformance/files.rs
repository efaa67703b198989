//! Files: what is there, lists, and removing.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::files_io::{NO_FILES, awkward_names};
use super::place::quoted;
use super::subject::Subject;
use crate::Files;
use std::ffi::OsString;
use std::path::Path;
use stead_types::{FileKind, FilesError};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("2", "files: stat tells kinds, sizes and what a link says", stat),
        case!("2", "files: a list has all names in byte order", list),
        case!("2", "files: a list of thousands is whole", long_list),
        case!(
            "2",
            "files: remove takes a directory with all in it and follows no link",
            remove
        ),
        case!("2", "files: what is not there is an error that says so", missing),
    ]
}

async fn stat(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    let dir = quoted(&directory);
    place
        .sh_ok(format!(
            "cd {dir} && printf 12345 > file && chmod 600 file && mkdir sub && chmod 700 sub &&
             ln -s file link && ln -s /no/such/target dangling && mkfifo fifo"
        ))
        .await?;
    for (name, kind, target) in [
        ("file", FileKind::File, None),
        ("sub", FileKind::Directory, None),
        ("link", FileKind::Symlink, Some("file")),
        ("dangling", FileKind::Symlink, Some("/no/such/target")),
        ("fifo", FileKind::Fifo, None),
    ] {
        let entry = files.stat(&directory.join(name)).await?;
        let same = entry.name == name && entry.kind == kind && entry.link_target == target.map(Into::into);
        ensure!(same, "expected {name}, {kind:?}, {target:?}, got {entry:?}");
    }
    let (file, sub) = (
        files.stat(&directory.join("file")).await?,
        files.stat(&directory.join("sub")).await?,
    );
    let seen = (file.size, file.mode, sub.mode);
    ensure!(
        seen == (5, 0o600, 0o700),
        "size and modes are {seen:?}, expected (5, 600, 700 in octal)"
    );
    let device = files.stat(Path::new("/dev/null")).await?;
    ensure!(device.kind == FileKind::Device, "/dev/null is {:?}", device.kind);
    Ok(Verdict::Passed)
}

async fn list(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    ensure!(
        files.list(&directory).await?.is_empty(),
        "an empty directory has entries"
    );
    let mut names: Vec<OsString> = awkward_names().into_iter().map(OsString::from).collect();
    for name in &names {
        files.write(&directory.join(name), b"x", None).await?;
    }
    place
        .sh_ok(format!(
            "cd {} && mkdir sub && ln -s sub link",
            quoted(&directory)
        ))
        .await?;
    names.extend(["sub", "link"].map(OsString::from));
    names.sort();
    let entries = files.list(&directory).await?;
    let listed: Vec<OsString> = entries.iter().map(|entry| entry.name.clone()).collect();
    ensure!(listed == names, "listed {listed:?}, expected {names:?}");
    for entry in entries {
        let alone = files.stat(&directory.join(&entry.name)).await?;
        ensure!(alone == entry, "the list says {entry:?}, stat says {alone:?}");
    }
    Ok(Verdict::Passed)
}

async fn long_list(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    let text = format!(
        "cd {} && i=1000; while [ $i -lt 4500 ]; do : > f$i; i=$((i + 1)); done",
        quoted(&directory)
    );
    place.sh_ok(text).await?;
    let listed: Vec<OsString> = files
        .list(&directory)
        .await?
        .into_iter()
        .map(|entry| entry.name)
        .collect();
    let expected: Vec<OsString> = (1000..4500).map(|number| format!("f{number}").into()).collect();
    ensure!(
        listed == expected,
        "{} names of {}, or not in order",
        listed.len(),
        expected.len()
    );
    files.remove(&directory).await?;
    ensure_missing("the directory", files.stat(&directory).await)?;
    Ok(Verdict::Passed)
}

async fn remove(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    let make = format!(
        "cd {} && mkdir -p outside doomed/a/b && printf 1 > outside/stays && printf 2 > doomed/a/b/file &&
         printf 3 > doomed/.hidden && ln -s ../outside doomed/link && ln -s ../../outside/stays doomed/a/link &&
         ln -s outside alias",
        quoted(&directory)
    );
    place.sh_ok(make).await?;
    let stays = directory.join("outside/stays");
    for name in ["doomed/a/b/file", "doomed", "alias"] {
        files.remove(&directory.join(name)).await?;
        ensure_missing(name, files.stat(&directory.join(name)).await)?;
        let left = files.read(&stays).await?;
        ensure!(left == b"1", "removing {name} followed a link out");
    }
    Ok(Verdict::Passed)
}

/// Fails unless the answer is the system's "not found".
pub(super) fn ensure_missing<T: std::fmt::Debug>(
    what: &str,
    answer: Result<T, FilesError>,
) -> Result<(), Failure> {
    match answer {
        Err(FilesError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => Err(Failure::new(format!(
            "{what}: expected that it is not found, got {other:?}"
        ))),
    }
}

async fn missing(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let path = place.directory().await?.join("not-there");
    every_call_misses(files.as_ref(), &path).await?;
    Ok(Verdict::Passed)
}

async fn every_call_misses(files: &dyn Files, path: &Path) -> Result<(), Failure> {
    ensure_missing("read", files.read(path).await)?;
    ensure_missing("stat", files.stat(path).await)?;
    ensure_missing("list", files.list(path).await)?;
    ensure_missing("remove", files.remove(path).await)?;
    ensure_missing(
        "download_tar",
        files.download_tar(path, &mut tokio::io::sink()).await,
    )
}
