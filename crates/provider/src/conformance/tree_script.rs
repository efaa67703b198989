//! Descendants that try to outlive their command, and how it is seen whether one did.
//!
//! A descendant says that it is there by making `started`, waits until there is `go`, and then makes
//! `marker`. The case makes `go` when nobody may be left: a marker then is a process that lived on. The
//! directory's name, which is unique, stands in the command line of every process of the tree, so that
//! those that are left can also be named.

use super::case::{Failure, ensure};
use super::place::{Place, shown, token};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_types::{ComputeConfig, Descendants, ExecResult};

/// Between two looks of a descendant lies at most one second; this is long enough to be sure.
const SURE: Duration = Duration::from_millis(2500);

/// A way to leave the command that one was started by.
#[derive(Debug, Clone, Copy)]
pub(super) enum Escape {
    /// In the background.
    Background,
    /// In a session of its own.
    Session,
    /// Deaf to SIGHUP.
    Nohup,
    /// Deaf to SIGTERM, as are its own children.
    IgnoresTerm,
    /// Its parent has ended.
    DoubleFork,
    /// Its parent has ended, it has a session of its own, no open descriptor and an empty environment.
    Daemon,
    /// Stopped, so that only SIGKILL and SIGCONT reach it.
    Stopped,
}

impl Escape {
    /// Shell text that starts the descendant and does not wait for it. The descendant is handed to a
    /// `sh -c` of its own, because `dir` must stand in its command line also where `exec` replaces a shell.
    fn text(self, directory: &Path) -> String {
        let dir = directory.display();
        // It gives up at last: a provider that fails leaves it on somebody's host.
        let wait = format!(
            "n=0; while [ ! -e {dir}/go ] && [ $n -lt 600 ]; do n=$((n + 1)); \
             sleep 0.2 2>/dev/null || sleep 1; done; [ -e {dir}/go ]"
        );
        let body = match self {
            Self::IgnoresTerm => format!("trap \"\" TERM; : > {dir}/started; {wait} && : > {dir}/marker"),
            Self::Stopped => format!("(: > {dir}/started; kill -STOP $$) & wait; {wait} && : > {dir}/marker"),
            _ => format!(": > {dir}/started; {wait} && : > {dir}/marker"),
        };
        match self {
            Self::Background | Self::IgnoresTerm | Self::Stopped => format!("sh -c '{body}' &"),
            Self::Session => format!("setsid sh -c '{body}' &"),
            // What `nohup` does; not every small system has the program.
            Self::Nohup => format!("(trap \"\" HUP; exec sh -c '{body}' >/dev/null 2>&1) &"),
            Self::DoubleFork => format!("( sh -c '{body}' & )"),
            Self::Daemon => {
                format!("( env -i PATH=\"$PATH\" setsid sh -c '{body}' </dev/null >/dev/null 2>&1 & )")
            }
        }
    }
}

/// One descendant in a directory of its own.
pub(super) struct Runaway<'p> {
    place: &'p Place<'p>,
    escape: Escape,
    pub(super) directory: PathBuf,
}

impl<'p> Runaway<'p> {
    pub(super) async fn new(place: &'p Place<'p>, escape: Escape) -> Result<Self, Failure> {
        Ok(Self {
            place,
            escape,
            directory: place.directory().await?,
        })
    }

    /// A command whose leader starts the descendant, waits until it is there, and goes on with `then`.
    pub(super) fn command(&self, then: &str) -> String {
        let (dir, start) = (self.directory.display(), self.escape.text(&self.directory));
        format!("{start}\nwhile [ ! -e {dir}/started ]; do sleep 0.1 2>/dev/null || sleep 1; done\n{then}")
    }

    pub(super) async fn has_started(&self) -> Result<bool, Failure> {
        self.place.exists(&self.directory.join("started")).await
    }

    pub(super) async fn until_started(&self) -> Result<(), Failure> {
        self.place.until_exists(&self.directory.join("started")).await
    }

    /// Fails if a process of the tree is there now, or makes its marker later.
    pub(super) async fn ensure_gone(&self) -> Result<(), Failure> {
        let found = self.ensure_no_process().await;
        // Also when one was found: it ends when it is let go.
        found.and(self.ensure_no_marker().await)
    }

    /// Waits until no process of the tree is there any more.
    pub(super) async fn until_no_process(&self) -> Result<(), Failure> {
        self.place.until_no_process_with(&token(&self.directory)).await
    }

    /// Fails if a process of the tree is there now.
    pub(super) async fn ensure_no_process(&self) -> Result<(), Failure> {
        let found = self
            .place
            .processes_with(&token(&self.directory))
            .await?
            .unwrap_or_default();
        ensure!(
            found.is_empty(),
            "{:?}: the result came before these were gone: {found}",
            self.escape
        );
        Ok(())
    }

    /// Lets a descendant that lives make its marker, and fails if one does.
    async fn ensure_no_marker(&self) -> Result<(), Failure> {
        self.release().await?;
        tokio::time::sleep(SURE).await;
        let made = self.place.exists(&self.directory.join("marker")).await?;
        ensure!(
            !made,
            "{:?}: a descendant outlived its command: the marker was made",
            self.escape
        );
        Ok(())
    }

    /// Lets the descendant make its marker and waits for it.
    pub(super) async fn until_marker(&self) -> Result<(), Failure> {
        self.release().await?;
        self.place.until_exists(&self.directory.join("marker")).await
    }

    /// Makes `go`.
    pub(super) async fn release(&self) -> Result<(), Failure> {
        self.place
            .sh_ok(format!(": > {}/go", self.directory.display()))
            .await
            .map(drop)
    }

    /// The command that ends by itself as soon as the descendant is there.
    pub(super) async fn leader_exits(&self, descendants: Descendants) -> Result<ExecResult, Failure> {
        let config = ComputeConfig {
            descendants: Some(descendants),
            ..ComputeConfig::new()
        };
        let result = self.place.execute(self.command("echo ok"), config).await?;
        let ended = result.success() && result.stdout == b"ok\n";
        ensure!(
            ended,
            "{:?}: the leader did not end well: {}",
            self.escape,
            shown(&result)
        );
        Ok(result)
    }

    /// A command that only the timeout can end, with a descendant that was there before it did.
    ///
    /// `None` when the host was too busy to start it in time: then it says nothing.
    pub(super) async fn times_out(
        &self,
        seconds: u64,
        grace: Duration,
    ) -> Result<Option<ExecResult>, Failure> {
        let mut config = ComputeConfig::new().timeout(Duration::from_secs(seconds));
        config.grace = Some(grace);
        let result = self
            .place
            .execute(self.command("echo ready; sleep 300; echo late"), config)
            .await?;
        let timed_out = result.timed_out && result.exit_code.is_none();
        ensure!(
            timed_out,
            "{:?}: expected a timeout, got {}",
            self.escape,
            shown(&result)
        );
        Ok(self.has_started().await?.then_some(result))
    }
}
