//! The `runsc` of this host: where it is, what it says of itself, and how it is called.

use rustix::fs::Access;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use stead_types::Missing;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

/// How long it may take to answer a question about itself.
const ANSWERS: Duration = Duration::from_secs(10);

/// Bytes of an answer that are read.
const ANSWER: u64 = 256 << 10;

/// How a place is to be made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The file of `runsc`.
    pub binary: PathBuf,
    /// How system calls are caught; `None` leaves it to the version.
    pub platform: Option<String>,
    /// Whether the place has the host's network.
    pub host_network: bool,
    /// Whether an ordinary user makes it.
    pub rootless: bool,
}

/// What is known of one file of `runsc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runsc {
    /// Where.
    pub binary: PathBuf,
    /// Its version, as it says it.
    pub version: String,
    flags: BTreeSet<String>,
}

/// Finds `runsc` in the directories of `PATH`.
pub fn find(path: Option<&std::ffi::OsStr>) -> Result<PathBuf, Missing> {
    let candidates = path.map(std::env::split_paths).into_iter().flatten();
    let mut found: Vec<PathBuf> = candidates.map(|directory| directory.join("runsc")).collect();
    found.retain(|file| file.is_file());
    match found.iter().find(|file| is_executable(file)).or(found.first()) {
        Some(file) => Ok(file.clone()),
        None => Err(missing("there is no runsc in PATH")),
    }
}

fn missing(reason: &str) -> Missing {
    Missing {
        code: "gvisor_missing",
        reason: reason.to_owned(),
        remedy: "Install gVisor (on Debian: apt-get install runsc), or name the file by the option runsc."
            .to_owned(),
    }
}

fn is_executable(file: &Path) -> bool {
    rustix::fs::access(file, Access::EXEC_OK).is_ok()
}

fn not_executable(file: &Path, error: &io::Error) -> Missing {
    Missing {
        code: "gvisor_not_executable",
        reason: format!("{} cannot be executed: {error}", file.display()),
        remedy: format!("Allow it (chmod +x {}), or install gVisor anew.", file.display()),
    }
}

fn malformed(file: &Path, said: &str) -> Missing {
    let said: String = said.trim().chars().take(200).collect();
    Missing {
        code: "gvisor_malformed",
        reason: format!("{} does not answer as runsc does: {said:?}", file.display()),
        remedy: "Put gVisor's own runsc there, or name another file by the option runsc.".to_owned(),
    }
}

impl Runsc {
    /// Asks a file what it is.
    pub async fn ask(binary: &Path) -> Result<Self, Missing> {
        if !binary.is_file() {
            return Err(missing(&format!("there is no file {}", binary.display())));
        }
        let version = answer(binary, "--version").await?;
        let version = parse_version(&version).ok_or_else(|| malformed(binary, &version))?;
        let told = answer(binary, "flags").await?;
        let flags = parse_flags(&told);
        // Every version has this one.
        if !flags.contains("network") {
            return Err(malformed(binary, &told));
        }
        Ok(Self {
            binary: binary.to_owned(),
            version,
            flags,
        })
    }

    /// The program and the flags that stand before the subcommand. `state` is the instance's own directory.
    pub fn command(&self, settings: &Settings, state: &Path, log: &Path) -> Vec<String> {
        let has = |flag: &str| self.flags.contains(flag);
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let network = if settings.host_network { "host" } else { "none" };
        let mut argv = vec![
            path(&self.binary),
            format!("--root={}", path(state)),
            format!("--log={}", path(log)),
            format!("--network={network}"),
            // The limits are held by cgroups that are ours.
            "--ignore-cgroups".to_owned(),
        ];
        // The place's side of the socket that we dial.
        argv.push(match has("host-uds") {
            true => "--host-uds=all".to_owned(),
            false => "--fsgofer-host-uds".to_owned(),
        });
        // Later versions catch system calls better than by tracing, and know it.
        match &settings.platform {
            Some(platform) => argv.push(format!("--platform={platform}")),
            None if !self.has_systrap() => argv.push("--platform=ptrace".to_owned()),
            None => {}
        }
        if has("overlay2") {
            // The root is read-only: nothing of it is ever to be kept beside it.
            argv.push("--overlay2=none".to_owned());
        }
        if settings.rootless {
            argv.push("--rootless".to_owned());
        }
        argv
    }

    fn has_systrap(&self) -> bool {
        self.flags.contains("systrap-disable-syscall-patching") || self.flags.contains("directfs")
    }
}

/// The version in what `runsc --version` says.
fn parse_version(text: &str) -> Option<String> {
    let version = text.lines().next()?.strip_prefix("runsc version ")?.trim();
    let is_word = !version.is_empty() && version.len() < 80 && !version.contains(char::is_whitespace);
    is_word.then(|| version.to_owned())
}

/// The names of flags in what `runsc flags` says: lines that begin with a dash.
fn parse_flags(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let flag = line.trim_start().strip_prefix('-')?;
        flag.split_ascii_whitespace().next().map(str::to_owned)
    };
    text.lines().filter_map(name).collect()
}

/// What the file answers to one word, on whichever stream.
async fn answer(binary: &Path, question: &str) -> Result<String, Missing> {
    let mut command = Command::new(binary);
    command
        .arg(question)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| not_executable(binary, &error))?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let both = async {
        let out = read(child.stdout.take(), &mut stdout);
        let err = read(child.stderr.take(), &mut stderr);
        futures_util::join!(out, err);
        child.wait().await
    };
    let ended = tokio::time::timeout(ANSWERS, both).await;
    let told = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    match ended {
        Ok(Ok(status)) if status.success() => Ok(told),
        Ok(Ok(status)) => Err(malformed(binary, &format!("{status}: {told}"))),
        Ok(Err(error)) => Err(malformed(binary, &error.to_string())),
        Err(_) => Err(Missing {
            code: "gvisor_timed_out",
            reason: format!(
                "{} did not answer {question} within {} s",
                binary.display(),
                ANSWERS.as_secs()
            ),
            remedy: "Look why it hangs, or name another file by the option runsc.".to_owned(),
        }),
    }
}

async fn read(stream: Option<impl tokio::io::AsyncRead + Unpin>, into: &mut Vec<u8>) {
    if let Some(stream) = stream {
        // What was said until it broke is judged.
        let _ = stream.take(ANSWER).read_to_end(into).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runsc(flags: &str) -> Runsc {
        Runsc {
            binary: "/usr/bin/runsc".into(),
            version: "x".to_owned(),
            flags: parse_flags(flags),
        }
    }

    const OF_2022: &str =
        "  -host-uds value\n    \tcontrols\n  -network value\n  -overlay2 value\n  -ignore-cgroups\n";
    const LATER: &str = "  -host-uds value\n  -network value\n  -directfs\n";
    const EARLIER: &str = "  -fsgofer-host-uds\n  -network value\n";

    fn called(flags: &str, settings: &Settings) -> String {
        runsc(flags)
            .command(settings, Path::new("/s"), Path::new("/l"))
            .join(" ")
    }

    #[test]
    fn each_generation_is_called_by_the_flags_that_it_has() {
        let settings = Settings {
            binary: "/usr/bin/runsc".into(),
            platform: None,
            host_network: false,
            rootless: false,
        };
        let begin = "/usr/bin/runsc --root=/s --log=/l --network=none --ignore-cgroups";
        assert_eq!(
            called(OF_2022, &settings),
            format!("{begin} --host-uds=all --platform=ptrace --overlay2=none")
        );
        assert_eq!(called(LATER, &settings), format!("{begin} --host-uds=all"));
        assert_eq!(
            called(EARLIER, &settings),
            format!("{begin} --fsgofer-host-uds --platform=ptrace")
        );
        let settings = Settings {
            platform: Some("kvm".to_owned()),
            host_network: true,
            rootless: true,
            ..settings
        };
        assert_eq!(
            called(LATER, &settings),
            "/usr/bin/runsc --root=/s --log=/l --network=host --ignore-cgroups --host-uds=all --platform=kvm --rootless"
        );
    }

    #[test]
    fn only_its_own_answer_is_a_version() {
        assert_eq!(
            parse_version("runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n").as_deref(),
            Some("0.0~20221219.0")
        );
        assert_eq!(
            parse_version("runsc version release-20250101.0\n").as_deref(),
            Some("release-20250101.0")
        );
        for other in [
            "",
            "runc version 1.1",
            "runsc version ",
            "runsc version a b",
            "\nrunsc version 1",
        ] {
            assert_eq!(parse_version(other), None, "{other}");
        }
    }
}
