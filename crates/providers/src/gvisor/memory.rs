//! Saving the memory of a place and going on from it.
//!
//! ```text
//! running ─► parked file ─► SIGUSR1: the supervisor closes its socket ─► checkpoint ─► the sandbox ends ─► parked
//! parked ─► the keeper is told to restore ─► the supervisor listens again ─► no parked file ─► running
//! ```
//! While the place is parked its keeper, its folder and the links to it stay: a link dials again when it runs.

use crate::hosted::kept::{describe, wait_for_socket};
use crate::hosted::signal;
use crate::state::{InstanceFolder, ProcessIdentity};
use rustix::process::Signal;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use stead_confine::Kept;
use stead_types::MemoryError;

/// How long the supervisor may take to let go of its socket, and the keeper to see the end of the sandbox.
const LETS_GO: Duration = Duration::from_secs(20);

/// How long the memory may take to be written.
const WRITES: Duration = Duration::from_secs(600);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Bytes of the runtime's complaint that are passed on.
const COMPLAINT: usize = 600;

/// One instance, and what is known of it.
struct Instance<'a> {
    folder: &'a InstanceFolder,
    keeper: ProcessIdentity,
    kept: Kept,
}

impl<'a> Instance<'a> {
    fn of(folder: &'a InstanceFolder) -> io::Result<Self> {
        let keeper = folder.record()?.supervisor.ok_or(io::ErrorKind::NotFound)?;
        let bytes = std::fs::read(folder.path().join("kept"))?;
        let kept = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        Ok(Self { folder, keeper, kept })
    }

    fn failed(&self, reason: impl Into<String>) -> MemoryError {
        MemoryError::Failed {
            instance: self.folder.id(),
            reason: reason.into(),
        }
    }

    /// The beginning of a call of the runtime, and the name of the place.
    fn command(&self) -> Option<(&[String], &str)> {
        match self.kept.delete.as_slice() {
            [begin @ .., _delete, _force, place] => Some((begin, place)),
            _ => None,
        }
    }

    fn in_place(&self) -> PathBuf {
        self.folder.ctl().join("parked")
    }

    fn ended(&self) -> PathBuf {
        self.folder.path().join("ended")
    }

    /// Calls the runtime and waits for it.
    async fn call(&self, arguments: &[&str], within: Duration) -> Result<(), String> {
        let (begin, place) = self.command().ok_or("its description is damaged")?;
        let (program, flags) = begin.split_first().ok_or("its description is damaged")?;
        let mut command = tokio::process::Command::new(program);
        command.args(flags).args(&arguments[..1]);
        // What names the place stands before a signal and after a flag.
        let (options, operands): (Vec<&str>, Vec<&str>) =
            arguments[1..].iter().partition(|word| word.starts_with('-'));
        command.args(options).arg(place).args(operands);
        command.current_dir("/").stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(within, command.output());
        match output.await {
            Ok(Ok(output)) if output.status.success() => Ok(()),
            Ok(Ok(output)) => {
                let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                Err(said.trim().chars().take(COMPLAINT).collect())
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!(
                "{} did not end within {} s",
                arguments[0],
                within.as_secs()
            )),
        }
    }

    /// Nothing is parked any more.
    fn unpark(&self) -> io::Result<()> {
        for file in [self.in_place(), self.folder.parked_path()] {
            match std::fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    async fn park(&self, image: &Path) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        let _ = std::fs::remove_file(self.ended());
        std::fs::write(self.in_place(), "").map_err(text)?;
        std::fs::write(self.folder.parked_path(), "").map_err(text)?;
        self.call(&["kill", "USR1"], LETS_GO).await?;
        if !until(|| !self.folder.socket().exists()).await {
            return Err("its supervisor does not let go of its socket".to_owned());
        }
        let image = format!("--image-path={}", image.display());
        self.call(&["checkpoint", &image], WRITES).await?;
        match until(|| self.ended().exists()).await {
            true => Ok(()),
            false => Err("its sandbox goes on".to_owned()),
        }
    }
}

async fn until(done: impl Fn() -> bool) -> bool {
    let end = Instant::now() + LETS_GO;
    while !done() {
        if Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(LOOK).await;
    }
    true
}

fn lost(folder: &InstanceFolder, error: &io::Error) -> MemoryError {
    MemoryError::Failed {
        instance: folder.id(),
        reason: format!("what is noted of it cannot be read: {error}"),
    }
}

fn in_state(folder: &InstanceFolder, reason: &str) -> MemoryError {
    MemoryError::State {
        instance: folder.id(),
        reason: reason.to_owned(),
    }
}

fn bad_image(folder: &InstanceFolder, image: &Path, reason: impl Into<String>) -> MemoryError {
    MemoryError::Image {
        instance: folder.id(),
        image: image.display().to_string(),
        reason: reason.into(),
    }
}

/// Saves. Afterwards nothing of the place runs; after a failure it goes on, unless the runtime has ended it.
pub async fn save(folder: &InstanceFolder, image: &Path) -> Result<(), MemoryError> {
    let instance = Instance::of(folder).map_err(|error| lost(folder, &error))?;
    if folder.is_parked() {
        return Err(in_state(folder, "its memory is saved already"));
    }
    if !instance.keeper.is_alive() {
        return Err(in_state(folder, "it does not run"));
    }
    prepare_image(image).map_err(|reason| bad_image(folder, image, reason))?;
    let Err(reason) = instance.park(image).await else {
        return Ok(());
    };
    instance
        .unpark()
        .map_err(|error| instance.failed(format!("{reason}; and it stays parked: {error}")))?;
    if instance.ended().exists() {
        signal(&instance.keeper, Signal::TERM);
        return Err(instance.failed(format!("{reason}; the runtime has ended the place over it")));
    }
    Err(instance.failed(reason))
}

/// An empty directory for the user alone, made if it is missing.
fn prepare_image(image: &Path) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    if !image.is_absolute() || image.to_str().is_none() {
        return Err("it has to be an absolute path of UTF-8".to_owned());
    }
    match std::fs::DirBuilder::new().mode(0o700).create(image) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mut entries = std::fs::read_dir(image).map_err(|error| error.to_string())?;
            match entries.next() {
                None => Ok(()),
                Some(_) => Err("it is not empty".to_owned()),
            }
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Goes on from an image. After a failure the place is parked as before.
pub async fn restore(folder: &InstanceFolder, image: &Path) -> Result<(), MemoryError> {
    let mut instance = Instance::of(folder).map_err(|error| lost(folder, &error))?;
    if !folder.is_parked() {
        return Err(in_state(folder, "its memory is not saved"));
    }
    if !instance.keeper.is_alive() {
        return Err(in_state(folder, "the process that kept it is gone"));
    }
    if !image.is_absolute() || !image.is_dir() {
        return Err(bad_image(folder, image, "there is no such directory"));
    }
    let Some((begin, place)) = instance.command() else {
        return Err(instance.failed("its description is damaged"));
    };
    let restore = [
        "restore".to_owned(),
        format!("--image-path={}", image.display()),
        format!("--bundle={}", folder.path().display()),
        place.to_owned(),
    ];
    instance.kept.run = [begin, &restore].concat();
    let begun = describe(folder, &instance.kept)
        .and_then(|()| forgotten(&instance.ended()))
        .and_then(|()| forgotten(&instance.in_place()));
    begun.map_err(|error| instance.failed(error.to_string()))?;
    signal(&instance.keeper, Signal::USR1);
    let ended = instance.ended();
    if let Err(error) = wait_for_socket(folder, || ended.exists()).await {
        let again = std::fs::write(instance.in_place(), "");
        let log = std::fs::read(&instance.kept.log).unwrap_or_default();
        let tail = String::from_utf8_lossy(&log[log.len().saturating_sub(COMPLAINT)..]).into_owned();
        return Err(instance.failed(format!("{error} {tail} {}", shown(again))));
    }
    instance
        .unpark()
        .map_err(|error| instance.failed(error.to_string()))
}

fn shown(result: io::Result<()>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

fn forgotten(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
