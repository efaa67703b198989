//! Images: pull, list, remove.

use super::image_progress::Progress;
use super::show::unprintable;
use super::signals::Ending;
use crate::args::{Format, ImageCommand, ImagePull, ImageRm};
use crate::failure::Failure;
use crate::output::{print, size, table};
use crate::terminal;
use serde_json::{Value, json};
use std::io::Write;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead::image::{ImageRecord, Login, PullError, PullEvent, PullOptions, Reference, Removed, Store};
use time::format_description::well_known::Rfc3339;

/// What is being done gets so long to clean up after a signal.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// `stead image …`.
pub async fn run(command: ImageCommand) -> Result<u8, Failure> {
    match command {
        ImageCommand::Pull(options) => pull(options).await,
        ImageCommand::Ls(format) => ls(format),
        ImageCommand::Rm(rm) => remove(&rm),
        ImageCommand::Prune(format) => tell_removed(&Store::open_default()?.prune()?, format),
    }
}

async fn pull(options: ImagePull) -> Result<u8, Failure> {
    let reference = reference(&options.reference)?;
    let pull = pull_options(&options)?;
    let store = Store::open_default()?;
    let mut ending = Ending::listen().map_err(|error| {
        Failure::new(
            "signals_failed",
            format!("signals cannot be handled: {error}"),
            "Try again.",
        )
    })?;
    let is_over = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&is_over);
    let mut work = tokio::task::spawn_blocking(move || watched(&store, &reference, &pull, &heard));
    let pulled = tokio::select! {
        pulled = &mut work => pulled,
        signal = ending.next() => {
            is_over.store(true, Ordering::Relaxed);
            // It may be waiting for a registry; what it leaves goes with the next prune.
            let _ = tokio::time::timeout(LAST_WORDS, &mut work).await;
            return Err(Failure::from(PullError::Cancelled).exiting(128 + signal));
        }
    };
    let record = pulled.map_err(|error| {
        Failure::new(
            "image_pull_cancelled",
            format!("the pull broke off: {error}"),
            "Pull it again; what was transferred is kept.",
        )
    })??;
    match options.format.json {
        true => print(document(&record)),
        false => print(record.digest),
    }
    .map_err(unprintable)?;
    Ok(0)
}

/// Pulls, and shows how far it is, until it is over or the word comes that it shall be.
fn watched(
    store: &Store,
    reference: &Reference,
    options: &PullOptions,
    heard: &AtomicBool,
) -> Result<ImageRecord, PullError> {
    let screen = Mutex::new(Screen::new());
    let tell = |event: PullEvent| {
        screen
            .lock()
            .unwrap_or_else(|lock| lock.into_inner())
            .show(&event);
        match heard.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let pulled = store.pull(reference, options, &tell);
    screen
        .into_inner()
        .unwrap_or_else(|lock| lock.into_inner())
        .clear();
    pulled
}

fn reference(text: &str) -> Result<Reference, Failure> {
    let reference: Reference = text.parse()?;
    reference.absolute().map_err(|error| {
        Failure::usage(
            format!("the path of {text} has no meaning here: {error}"),
            "Write an absolute path.",
        )
    })
}

fn pull_options(options: &ImagePull) -> Result<PullOptions, Failure> {
    let mut pull = PullOptions {
        plain_http: options.plain_http,
        ..PullOptions::default()
    };
    if let Some(platform) = &options.platform {
        pull.platform = platform.parse().map_err(|error| {
            Failure::usage(
                format!("--platform: {error}"),
                "Write --platform linux/amd64 or the like.",
            )
        })?;
    }
    if let (Some(username), Some(password_secret)) =
        (options.username.clone(), options.password_secret.clone())
    {
        pull.login = Some(Login {
            username,
            password_secret,
        });
    }
    Ok(pull)
}

/// One line on a terminal, which is written over again and again.
struct Screen {
    progress: Progress,
    is_watched: bool,
}

impl Screen {
    fn new() -> Self {
        let is_watched = terminal::is_watched();
        Self {
            progress: Progress::default(),
            is_watched,
        }
    }

    fn show(&mut self, event: &PullEvent) {
        if let PullEvent::Retrying { reason, .. } = event {
            self.clear();
            tracing::warn!("a transfer broke off and is taken up again: {reason}");
        }
        if let (Some(line), true) = (self.progress.line_after(event), self.is_watched) {
            // Who watches may be gone.
            let _ = write!(std::io::stderr(), "\r\u{1b}[K{line}");
        }
    }

    fn clear(&self) {
        if self.is_watched {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

fn pulled_at(record: &ImageRecord) -> String {
    let whole = record.pulled_at.replace_nanosecond(0).unwrap_or(record.pulled_at);
    whole.format(&Rfc3339).unwrap_or_default()
}

fn document(record: &ImageRecord) -> Value {
    json!({
        "reference": record.reference,
        "digest": record.digest,
        "platform": record.platform,
        "size": record.size,
        "pulled_at": pulled_at(record),
        "layers": record.layers,
    })
}

fn ls(format: Format) -> Result<u8, Failure> {
    let images = Store::open_default()?.list()?;
    if format.json {
        let images: Vec<Value> = images.iter().map(document).collect();
        print(json!({"images": images})).map_err(unprintable)?;
        return Ok(0);
    }
    let row = |record: &ImageRecord| {
        vec![
            record.reference.clone(),
            record.platform.to_string(),
            record.digest.hex()[..12].to_owned(),
            size(record.size),
            pulled_at(record),
        ]
    };
    let rows: Vec<_> = images.iter().map(row).collect();
    print(table(
        &["REFERENCE", "PLATFORM", "DIGEST", "SIZE", "PULLED"],
        &rows,
    ))
    .map_err(unprintable)?;
    Ok(0)
}

fn remove(rm: &ImageRm) -> Result<u8, Failure> {
    let store = Store::open_default()?;
    // A digest has its own shape; everything else is a name that is made whole first.
    let digits = rm.image.strip_prefix("sha256:").unwrap_or(&rm.image);
    let is_digest =
        digits.len() >= 12 && digits.len() <= 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let removed = match reference(&rm.image) {
        Ok(reference) => match store.remove(&reference.to_string()) {
            Err(stead::image::StoreError::Missing { .. }) if is_digest => store.remove(&rm.image)?,
            removed => removed?,
        },
        Err(_) if is_digest => store.remove(&rm.image)?,
        Err(error) => return Err(error),
    };
    tell_removed(&removed, rm.format)
}

fn tell_removed(removed: &Removed, format: Format) -> Result<u8, Failure> {
    if removed.deferred {
        eprintln!("note: a pull is running, so the layers stay until the next prune");
    }
    if format.json {
        let images: Vec<&String> = removed.images.iter().map(|image| &image.reference).collect();
        let document = json!({
            "images": images, "layers": removed.layers, "bytes": removed.bytes, "deferred": removed.deferred,
        });
        print(document).map_err(unprintable)?;
        return Ok(0);
    }
    for image in &removed.images {
        print(&image.reference).map_err(unprintable)?;
    }
    for layer in &removed.layers {
        print(layer).map_err(unprintable)?;
    }
    eprintln!("{} freed", size(removed.bytes));
    Ok(0)
}
