//! Archives up and down, and archives that are refused.

use super::archive::{Archive, Kind};
use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::files::ensure_missing;
use super::files_io::{NO_FILES, awkward_names};
use super::place::{ensure_bytes, pattern, shown_bytes};
use super::subject::Subject;
use crate::Files;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stead_types::{FileKind, FilesError};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("2", "files: an archive is unpacked byte exact", upload),
        case!(
            "2",
            "files: an archive of what was unpacked is the same again",
            download
        ),
        case!("2", "files: an archive with an awkward name", awkward),
        case!(
            "2",
            "files: an archive that wants to leave its directory is refused",
            hostile
        ),
        case!("2", "files: a damaged archive is refused", damaged),
    ]
}

/// A tree with all that an archive can hold.
fn tree() -> Archive {
    Archive::default()
        .directory("sub/", 0o750)
        .directory("sub/empty/", 0o755)
        .file("nothing", 0o644, b"")
        .file("sub/program", 0o755, b"#!/bin/sh\necho ran\n")
        .file("sub/large", 0o600, &pattern(5 << 20))
        .file(b"sub/\xff\xfename", 0o644, b"not UTF-8")
        .special(Kind::Symlink, "sub/link", "large")
        .special(Kind::Symlink, "sub/back", "../nothing")
}

async fn ensure_tree(files: &dyn Files, directory: &Path) -> Result<(), Failure> {
    use std::ffi::OsStr;
    let sub = directory.join("sub");
    let read = |path: std::path::PathBuf| async move { files.read(&path).await };
    ensure_bytes("the empty file", &read(directory.join("nothing")).await?, b"")?;
    ensure_bytes(
        "the large file",
        &read(sub.join("large")).await?,
        &pattern(5 << 20),
    )?;
    let name = OsStr::from_bytes(b"\xff\xfename");
    ensure_bytes(
        "the file whose name is not UTF-8",
        &read(sub.join(name)).await?,
        b"not UTF-8",
    )?;
    for (path, kind, mode) in [
        ("sub", FileKind::Directory, 0o750),
        ("sub/empty", FileKind::Directory, 0o755),
        ("sub/program", FileKind::File, 0o755),
        ("sub/large", FileKind::File, 0o600),
    ] {
        let entry = files.stat(&directory.join(path)).await?;
        ensure!(
            (entry.kind, entry.mode) == (kind, mode),
            "{path}: {:?} {:o}",
            entry.kind,
            entry.mode
        );
    }
    for (path, target) in [("sub/link", "large"), ("sub/back", "../nothing")] {
        let entry = files.stat(&directory.join(path)).await?;
        let same = entry.kind == FileKind::Symlink && entry.link_target.as_deref() == Some(Path::new(target));
        ensure!(same, "{path}: expected a link to {target}, got {entry:?}");
    }
    let count = (files.list(directory).await?.len(), files.list(&sub).await?.len());
    ensure!(count == (2, 6), "there are {count:?} entries, expected (2, 6)");
    Ok(())
}

async fn upload(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    // A directory that is not there yet, and once more on top of what is there.
    let directory = place.directory().await?.join("made/on/the/way");
    for _ in 0..2 {
        files
            .upload_tar(&directory, &mut tree().finish().as_slice())
            .await?;
        ensure_tree(files.as_ref(), &directory).await?;
    }
    let elsewhere = place.directory().await?.join("nothing-in-it");
    files
        .upload_tar(&elsewhere, &mut Archive::default().finish().as_slice())
        .await?;
    ensure!(
        files.list(&elsewhere).await?.is_empty(),
        "an archive of nothing made something"
    );
    Ok(Verdict::Passed)
}

async fn download(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    let (first, second) = (directory.join("first"), directory.join("second"));
    files.upload_tar(&first, &mut tree().finish().as_slice()).await?;
    let mut packed = Vec::new();
    files.download_tar(&first, &mut packed).await?;
    // Only an archive of relative names that stay inside can be unpacked, as another case shows.
    files.upload_tar(&second, &mut packed.as_slice()).await?;
    ensure_tree(files.as_ref(), &second).await?;
    Ok(Verdict::Passed)
}

async fn awkward(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    let (first, second) = (directory.join("first"), directory.join("second"));
    let mut archive = Archive::default();
    for name in awkward_names() {
        archive = archive.file(name.as_bytes(), 0o644, name.as_bytes());
    }
    files.upload_tar(&first, &mut archive.finish().as_slice()).await?;
    // Longer than the name field of a plain header.
    let long = format!("{0}/{0}/{0}", "long-".repeat(30));
    files.write(&first.join(&long), b"long", None).await?;
    let mut packed = Vec::new();
    files.download_tar(&first, &mut packed).await?;
    files.upload_tar(&second, &mut packed.as_slice()).await?;
    for name in awkward_names() {
        ensure_bytes(
            &format!("{name:?}"),
            &files.read(&second.join(name)).await?,
            name.as_bytes(),
        )?;
    }
    ensure_bytes("the long name", &files.read(&second.join(long)).await?, b"long")?;
    Ok(Verdict::Passed)
}

/// Archives that begin with a harmless entry and then reach for `outside`, a file beside the directory.
fn hostile_archives(outside: &Path) -> Vec<(&'static str, Archive)> {
    let good = || Archive::default().file("good", 0o644, b"good");
    let absolute = outside.to_string_lossy().into_owned();
    let parent = outside.parent().unwrap_or(outside).to_string_lossy().into_owned();
    let written = b"written";
    vec![
        ("an absolute name", good().file(&absolute, 0o644, written)),
        ("..", good().file("../outside", 0o644, written)),
        (
            ".. in the middle",
            good().file("sub/../../outside", 0o644, written),
        ),
        (".. at the end", good().directory("sub/..", 0o777)),
        (
            "an absolute link",
            good()
                .special(Kind::Symlink, "link", &parent)
                .file("link/outside", 0o644, written),
        ),
        (
            "a link with ..",
            good()
                .special(Kind::Symlink, "link", "..")
                .file("link/outside", 0o644, written),
        ),
        (
            "a link that leads out",
            good().special(Kind::Symlink, "link", "../outside"),
        ),
        (
            "a link to an absolute file",
            good().special(Kind::Symlink, "link", "/etc/passwd"),
        ),
        (
            "a hard link that leads out",
            good().special(Kind::HardLink, "link", "../secret"),
        ),
        (
            "an absolute hard link",
            good().special(Kind::HardLink, "link", "/etc/passwd"),
        ),
        ("a device", good().special(Kind::CharacterDevice, "device", "")),
    ]
}

async fn hostile(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    let outside = directory.join("outside");
    files.write(&directory.join("secret"), b"secret", None).await?;
    // The control: the harmless entry alone is unpacked.
    let control = Archive::default().file("good", 0o644, b"good").finish();
    files
        .upload_tar(&directory.join("control"), &mut control.as_slice())
        .await?;
    ensure_bytes(
        "the control",
        &files.read(&directory.join("control/good")).await?,
        b"good",
    )?;
    for (number, (what, archive)) in hostile_archives(&outside).into_iter().enumerate() {
        let target = directory.join(format!("target-{number}"));
        ensure_refused(files.as_ref(), what, &target, archive.finish()).await?;
        ensure_missing(
            &format!("{what}: what it reaches for"),
            files.stat(&outside).await,
        )?;
    }
    Ok(Verdict::Passed)
}

/// Fails unless the archive is refused and nothing of it is in the directory.
async fn ensure_refused(
    files: &dyn Files,
    what: &str,
    target: &Path,
    archive: Vec<u8>,
) -> Result<(), Failure> {
    let answer = files.upload_tar(target, &mut archive.as_slice()).await;
    let written = match files.list(target).await {
        Ok(entries) => entries,
        Err(error) => {
            ensure_missing::<()>(what, Err(error))?;
            Vec::new()
        }
    };
    match answer {
        Err(FilesError::Archive { .. }) => {}
        other => return Err(Failure::new(format!("{what}: expected Archive, got {other:?}"))),
    }
    let names: Vec<_> = written
        .iter()
        .map(|entry| shown_bytes(entry.name.as_bytes()))
        .collect();
    ensure!(
        names.is_empty(),
        "{what}: it was refused, but these were written: {names:?}"
    );
    Ok(())
}

async fn damaged(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    let good = Archive::default()
        .file("good", 0o644, b"good")
        .file("large", 0o644, &pattern(100_000));
    let mut other_sum = good.clone().finish();
    // In the second header: the first entry is whole.
    other_sum[1024] ^= 1;
    for (number, (what, archive)) in [
        ("an archive that is cut off", good.cut_off()),
        ("a header whose sum is wrong", other_sum),
        ("no archive at all", pattern(2000)),
        ("half a header", vec![b'a'; 100]),
    ]
    .into_iter()
    .enumerate()
    {
        ensure_refused(
            files.as_ref(),
            what,
            &directory.join(format!("target-{number}")),
            archive,
        )
        .await?;
    }
    Ok(Verdict::Passed)
}
