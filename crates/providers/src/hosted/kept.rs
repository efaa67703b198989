//! The host's side of a place that a keeper stands for: the supervisor is inside, and its socket appears when it is up.

use super::provision::{ChildGuard, FolderGuard, GO, announce, spawn};
use crate::link::{Dial, Link, Transport};
use crate::state::{InstanceFolder, State, new_key};
use async_trait::async_trait;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_confine::Kept;
use stead_types::InstanceId;
use stead_wire::Key;

/// How long a place may take until its supervisor listens.
const COMES_UP: Duration = Duration::from_secs(20);

/// Between two looks for it.
const LOOK: Duration = Duration::from_millis(1);

/// Between two looks whether a parked place goes on.
const PARKED_LOOK: Duration = Duration::from_millis(20);

/// How long a keeper may take to leave nothing.
const CLEANS_UP: Duration = Duration::from_secs(20);

/// Writes what the keeper reads once it is told to go on.
pub fn describe(folder: &InstanceFolder, kept: &Kept) -> io::Result<()> {
    let bytes = postcard::to_allocvec(kept).map_err(io::Error::other)?;
    let file = folder.path().join("kept");
    let temporary = folder.path().join(".kept");
    let _ = std::fs::remove_file(&temporary);
    crate::supervisor::write_private(&temporary, &bytes)?;
    std::fs::rename(temporary, file)
}

/// Connects as soon as the supervisor listens, unless the keeper ends first.
pub(super) async fn connect(
    folder: &InstanceFolder,
    key: &Key,
    owner: UnixStream,
    keeper: &mut ChildGuard,
) -> io::Result<Link> {
    let stream = wait_for_socket(folder, || keeper.has_ended()).await?;
    let dial = Arc::new(DialKept {
        folder: folder.clone(),
        _owner: Some(owner),
    });
    Link::establish(stream, dial, key.clone(), 1)
        .await
        .map_err(io::Error::other)
}

/// Waits until somebody listens. `ended` says that nobody ever will.
pub async fn wait_for_socket(
    folder: &InstanceFolder,
    mut ended: impl FnMut() -> bool,
) -> io::Result<Transport> {
    let until = Instant::now() + COMES_UP;
    loop {
        match crate::link::connect(&folder.socket()).await {
            Ok(stream) => return Ok(stream.into()),
            Err(error) if ended() => return Err(error),
            Err(_) if Instant::now() >= until => {
                let seconds = COMES_UP.as_secs();
                let what = format!("its socket did not appear within {seconds} s");
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Dials the socket of a place that may be parked: then nobody is there, and it is no loss.
#[derive(Debug)]
pub struct DialKept {
    pub folder: InstanceFolder,
    /// Whose end tells the keeper of ours.
    pub _owner: Option<UnixStream>,
}

#[async_trait]
impl Dial for DialKept {
    async fn dial(&self) -> io::Result<Transport> {
        while self.folder.is_parked() {
            tokio::time::sleep(PARKED_LOOK).await;
        }
        let stream = crate::link::connect(&self.folder.socket()).await?;
        Ok(Transport::from(stream))
    }
}

/// Lets a keeper run something in an instance of which nothing stays, within a time. `prepare` fills its folder and
/// says what to do. An error is what came of it.
pub async fn trial(
    state: &State,
    env: Vec<(OsString, OsString)>,
    within: Duration,
    prepare: impl FnOnce(&InstanceFolder) -> io::Result<Kept>,
) -> Result<(), TrialError> {
    let id = InstanceId::generate();
    let program = state.supervisor()?;
    let (child, mut owner) = spawn(&program, &id, env, None)?;
    let mut child = ChildGuard(Some(child));
    announce(&mut owner, &state.folder(&id))?;
    let folder = FolderGuard(Some(state.create(&id, &new_key()?)?));
    let kept = prepare(folder.get())?;
    describe(folder.get(), &kept)?;
    owner.write_all(&[GO])?;
    let until = Instant::now() + within;
    while !child.has_ended() {
        if Instant::now() >= until {
            let _ = child.terminate(CLEANS_UP).await;
            return Err(TrialError::TimedOut);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    match child.succeeded() {
        true => Ok(()),
        false => Err(TrialError::Failed(child.last_words().await)),
    }
}

/// What came of a trial.
#[derive(Debug)]
pub enum TrialError {
    /// It did not end.
    TimedOut,
    /// It ended otherwise than it should have.
    Failed(String),
    /// It could not be begun.
    Io(io::Error),
}

impl From<io::Error> for TrialError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
