//! Files: reading and writing, byte exact, and what commands see of it.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::outcomes::ensure_end;
use super::place::{ensure_bytes, pattern, quoted};
use super::subject::Subject;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stead_types::{ComputeConfig, FilesError};

pub(super) const NO_FILES: &str = "the provider has no access to files";

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("2", "files: what is written is read, byte exact", round_trip),
        case!(
            "2",
            "files: commands see what was written, and the other way round",
            seen_by_commands
        ),
        case!("2", "files: any name", any_name),
        case!("2", "files: permission bits", modes),
        case!(
            "2",
            "files: missing directories are made, old content is replaced",
            replace
        ),
        case!("2", "files: a reader sees the old or the new, never half", atomic),
        case!("2", "files: what is no regular file is not read", no_regular_file),
        case!("2", "files: a path that breaks a rule is refused", bad_paths).without_shell(),
    ]
}

async fn round_trip(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    for size in [0, 1, 4096, 65_536, 65_537, (1 << 20) - 1, 7 << 20] {
        let path = directory.join(size.to_string());
        let content = pattern(size);
        files.write(&path, &content, None).await?;
        ensure_bytes(&format!("{size} bytes"), &files.read(&path).await?, &content)?;
        let entry = files.stat(&path).await?;
        ensure!(
            entry.size == size as u64,
            "the size of {size} bytes is {}",
            entry.size
        );
    }
    Ok(Verdict::Passed)
}

async fn seen_by_commands(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    let content = pattern(3 << 20);
    let (ours, theirs) = (directory.join("ours"), directory.join("theirs"));
    files.write(&ours, &content, None).await?;
    let argv = vec![OsStr::new("cat").to_owned(), ours.clone().into_os_string()];
    let result = place.execute(argv, ComputeConfig::new()).await?;
    ensure_end("cat", &result, 0, None)?;
    ensure_bytes("what cat reads", &result.stdout, &content)?;
    place
        .sh_ok(format!("cat {0} {0} > {1}", quoted(&ours), quoted(&theirs)))
        .await?;
    ensure_bytes(
        "what a command wrote",
        &files.read(&theirs).await?,
        &[content.clone(), content].concat(),
    )?;
    Ok(Verdict::Passed)
}

/// Names that are hard to carry.
pub(super) fn awkward_names() -> Vec<&'static OsStr> {
    let mut names: Vec<&OsStr> = [
        "plain",
        "two words",
        "'quote'",
        "\"",
        "new\nline",
        "$HOME",
        "-rf",
        "*",
        "\\",
        "\u{1f980}",
        ".hidden",
        "...",
    ]
    .map(OsStr::new)
    .to_vec();
    names.push(OsStr::from_bytes(b"\xff\xfenot utf-8\x80"));
    names
}

async fn any_name(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    for name in awkward_names() {
        let path = directory.join(name);
        files.write(&path, name.as_bytes(), None).await?;
        ensure_bytes("its content", &files.read(&path).await?, name.as_bytes())?;
        let entry = files.stat(&path).await?;
        ensure!(entry.name == name, "{name:?} is said to be {:?}", entry.name);
        let argv = vec![
            OsStr::new("cat").to_owned(),
            OsStr::new("--").to_owned(),
            path.into_os_string(),
        ];
        let result = place.execute(argv, ComputeConfig::new()).await?;
        ensure_bytes("what a command reads", &result.stdout, name.as_bytes())?;
    }
    Ok(Verdict::Passed)
}

async fn modes(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let path = place.directory().await?.join("program");
    files.write(&path, b"#!/bin/sh\necho ran\n", None).await?;
    let mode = files.stat(&path).await?.mode;
    ensure!(mode == 0o644, "the default mode is {mode:o}");
    files
        .write(&path, b"#!/bin/sh\necho ran again\n", Some(0o750))
        .await?;
    let mode = files.stat(&path).await?.mode;
    ensure!(mode == 0o750, "mode 750 became {mode:o}");
    let result = place
        .execute(vec![path.into_os_string()], ComputeConfig::new())
        .await?;
    ensure_bytes("the program's output", &result.stdout, b"ran again\n")?;
    Ok(Verdict::Passed)
}

async fn replace(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let path = place.directory().await?.join("a/b/c/file");
    for content in [
        pattern(100_000),
        b"short".to_vec(),
        Vec::new(),
        b"longer again".to_vec(),
    ] {
        files.write(&path, &content, None).await?;
        ensure_bytes("the new content", &files.read(&path).await?, &content)?;
    }
    let parent = path.parent().unwrap_or(&path);
    let beside = files.list(parent).await?;
    ensure!(
        beside.len() == 1,
        "writing left something beside the file: {beside:?}"
    );
    Ok(Verdict::Passed)
}

async fn atomic(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let path = place.directory().await?.join("file");
    let size = 1 << 20;
    files.write(&path, &vec![0; size], None).await?;
    let write = async {
        for round in 1..=20_u8 {
            files.write(&path, &vec![round; size], None).await?;
        }
        Ok::<(), Failure>(())
    };
    let read = async {
        for _ in 0..20 {
            let content = files.read(&path).await?;
            let first = content.first().copied();
            let whole = content.len() == size && content.iter().all(|byte| Some(*byte) == first);
            ensure!(
                whole,
                "a reader got {} bytes that nobody wrote as a whole",
                content.len()
            );
        }
        Ok::<(), Failure>(())
    };
    let (written, read) = tokio::join!(write, read);
    written.and(read)?;
    Ok(Verdict::Passed)
}

async fn no_regular_file(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    let directory = place.directory().await?;
    let fifo = directory.join("fifo");
    place.sh_ok(format!("mkfifo {}", quoted(&fifo))).await?;
    // A read of a pipe that nobody writes to would never end.
    for path in [
        directory.as_path(),
        fifo.as_path(),
        Path::new("/dev/zero"),
        Path::new("/no/such/file-here"),
    ] {
        match files.read(path).await {
            Err(FilesError::Io { .. }) => {}
            Err(other) => return Err(Failure::from(other).during(&format!("{path:?}: expected Io"))),
            Ok(content) => {
                return Err(Failure::new(format!(
                    "{path:?} was read: {} bytes",
                    content.len()
                )));
            }
        }
    }
    match files.write(&directory, b"x", None).await {
        Err(FilesError::Io { .. }) => Ok(Verdict::Passed),
        other => Err(Failure::new(format!(
            "a directory was written as a file: {other:?}"
        ))),
    }
}

async fn bad_paths(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let Some(files) = place.files().await? else {
        return Verdict::skipped(NO_FILES);
    };
    for path in ["", "relative", "./relative", "/a\0b"].map(Path::new) {
        let (mut nothing, mut nowhere) = (tokio::io::empty(), tokio::io::sink());
        for (what, error) in [
            ("read", files.read(path).await.err()),
            ("write", files.write(path, b"x", None).await.err()),
            ("list", files.list(path).await.err()),
            ("stat", files.stat(path).await.err()),
            ("remove", files.remove(path).await.err()),
            ("upload_tar", files.upload_tar(path, &mut nothing).await.err()),
            ("download_tar", files.download_tar(path, &mut nowhere).await.err()),
        ] {
            match error {
                Some(FilesError::Invalid { .. }) => {}
                other => {
                    return Err(Failure::new(format!(
                        "{what} of {path:?}: expected Invalid, got {other:?}"
                    )));
                }
            }
        }
    }
    Ok(Verdict::Passed)
}
