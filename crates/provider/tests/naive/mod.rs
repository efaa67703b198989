//! A provider as one writes it in an hour: a process for each command, and only that process is killed. The
//! kit must find what is wrong with it.

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use stead_provider::contract::effective_timeout;
use stead_provider::{Files, OutputChunk, Process, ProcessControl, ProcessExit, Provider, SignalTarget};
use stead_types::{
    Availability, Axes, CommandLine, ComputeConfig, ComputeInstance, ExecuteError, FileEntry, FileKind,
    FilesError, InstanceId, InstanceStatus, InvalidInput, ListError, ProvisionError, ShutdownError, Stdin,
    Stream, TerminalSize,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};

#[derive(Default)]
pub struct Naive {
    instances: Mutex<BTreeMap<InstanceId, (ComputeInstance, ComputeConfig)>>,
}

#[async_trait]
impl Provider for Naive {
    fn name(&self) -> &str {
        "naive"
    }

    async fn probe(&self) -> Availability {
        Availability::Available
    }

    async fn provision(&self, config: ComputeConfig) -> Result<ComputeInstance, ProvisionError> {
        let provider = || "naive".to_owned();
        config.check().map_err(|source| ProvisionError::Invalid {
            provider: provider(),
            source,
        })?;
        let unsupported = config
            .resources
            .named()
            .next()
            .or(config.image.as_ref().map(|_| "image"));
        if let Some(key) = unsupported {
            let reason = "a plain process has no such thing".to_owned();
            return Err(ProvisionError::Unsupported {
                provider: provider(),
                key: key.to_owned(),
                reason,
            });
        }
        let instance = ComputeInstance {
            id: InstanceId::generate(),
            provider: provider(),
            status: InstanceStatus::Running,
            created_at: time::OffsetDateTime::now_utc(),
            isolation: Axes::NONE,
            metadata: serde_json::Map::new(),
        };
        self.instances
            .lock()
            .unwrap()
            .insert(instance.id.clone(), (instance.clone(), config));
        Ok(instance)
    }

    async fn spawn(
        &self,
        id: &InstanceId,
        command: CommandLine,
        config: ComputeConfig,
    ) -> Result<Process, ExecuteError> {
        let known = self
            .instances
            .lock()
            .unwrap()
            .get(id)
            .map(|(_, config)| config.clone());
        let base = known.ok_or_else(|| ExecuteError::NoInstance { instance: id.clone() })?;
        let invalid = |source: InvalidInput| ExecuteError::Invalid {
            instance: id.clone(),
            source,
        };
        command.check().and_then(|()| config.check()).map_err(invalid)?;
        if let Some(key) = config.instance_key() {
            let reason = "it is the instance's".to_owned();
            return Err(ExecuteError::Unsupported {
                instance: id.clone(),
                key: key.to_owned(),
                reason,
            });
        }
        start(id, command, base.overridden_by(&config))
    }

    async fn shutdown(&self, id: &InstanceId) -> Result<(), ShutdownError> {
        self.instances.lock().unwrap().remove(id);
        Ok(())
    }

    async fn list_instances(&self) -> Result<Vec<ComputeInstance>, ListError> {
        Ok(self
            .instances
            .lock()
            .unwrap()
            .values()
            .map(|(instance, _)| instance.clone())
            .collect())
    }

    async fn status(&self, id: &InstanceId) -> Result<Option<ComputeInstance>, ListError> {
        Ok(self
            .instances
            .lock()
            .unwrap()
            .get(id)
            .map(|(instance, _)| instance.clone()))
    }

    async fn files(&self, id: &InstanceId) -> Result<Box<dyn Files>, FilesError> {
        match self.instances.lock().unwrap().contains_key(id) {
            true => Ok(Box::new(NaiveFiles(id.clone()))),
            false => Err(FilesError::NoInstance { instance: id.clone() }),
        }
    }
}

fn start(id: &InstanceId, command: CommandLine, config: ComputeConfig) -> Result<Process, ExecuteError> {
    let argv = match command {
        CommandLine::Shell(text) => vec!["/bin/sh".into(), "-c".into(), text.into()],
        CommandLine::Argv(argv) => argv,
    };
    let mut prepared = Command::new(&argv[0]);
    prepared
        .args(&argv[1..])
        .envs(config.env.iter())
        .kill_on_drop(true);
    prepared
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(workdir) = &config.workdir {
        prepared.current_dir(workdir);
    }
    let mut child = match prepared.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(not_executed(&argv[0], error)),
    };
    let (sender, output) = mpsc::channel(16);
    let pumps = [
        tokio::spawn(pump(child.stdout.take().unwrap(), Stream::Stdout, sender.clone())),
        tokio::spawn(pump(child.stderr.take().unwrap(), Stream::Stderr, sender)),
    ];
    let control = Arc::new(NaiveControl {
        id: id.clone(),
        pid: child.id(),
        stdin: tokio::sync::Mutex::new(child.stdin.take()),
    });
    let given = config.stdin.clone();
    let feeder = Arc::clone(&control);
    tokio::spawn(async move {
        if let Some(Stdin::Bytes(bytes)) = &given {
            let _ = feeder.write_stdin(bytes).await;
        }
        if given != Some(Stdin::Stream) {
            let _ = feeder.close_stdin().await;
        }
    });
    let (exit, ended) = oneshot::channel();
    tokio::spawn(async move {
        let started = Instant::now();
        let limit = effective_timeout(&config).unwrap_or(Duration::from_secs(1 << 20));
        let status = tokio::time::timeout(limit, child.wait()).await;
        if status.is_err() {
            let _ = child.kill().await;
        }
        let mut total_bytes = [0; 2];
        for (total, mut pump) in total_bytes.iter_mut().zip(pumps) {
            // Who else holds the pipe is given up on, so that each case fails for its own reason.
            match tokio::time::timeout(Duration::from_secs(1), &mut pump).await {
                Ok(count) => *total = count.unwrap(),
                Err(_) => pump.abort(),
            }
        }
        let status = status.ok().map(Result::unwrap);
        let signal = status.and_then(|status| status.signal());
        let exit_code = status
            .and_then(|status| status.code())
            .or(signal.map(|signal| 128 + signal));
        let timed_out = status.is_none();
        let _ = exit.send(Ok(ProcessExit {
            exit_code,
            signal,
            timed_out,
            oom_killed: false,
            duration: started.elapsed(),
            total_bytes,
        }));
    });
    Ok(Process::with_channel(control, output, ended))
}

async fn pump(mut from: impl AsyncRead + Unpin, stream: Stream, to: mpsc::Sender<OutputChunk>) -> u64 {
    let (mut buffer, mut total) = (vec![0; 64 << 10], 0);
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        total += length as u64;
        let _ = to
            .send(OutputChunk {
                stream,
                bytes: buffer[..length].to_vec().into(),
            })
            .await;
    }
    total
}

fn not_executed(program: &std::ffi::OsStr, error: std::io::Error) -> Process {
    let (exit, ended) = oneshot::channel();
    let (sender, output) = mpsc::channel(1);
    let message = format!("{}: {error}\n", program.display());
    let total_bytes = [0, message.len() as u64];
    sender
        .try_send(OutputChunk {
            stream: Stream::Stderr,
            bytes: message.into(),
        })
        .unwrap();
    let code = if error.kind() == std::io::ErrorKind::NotFound {
        127
    } else {
        126
    };
    let duration = Duration::ZERO;
    let end = ProcessExit {
        exit_code: Some(code),
        signal: None,
        timed_out: false,
        oom_killed: false,
        duration,
        total_bytes,
    };
    exit.send(Ok(end)).unwrap();
    let control = NaiveControl {
        id: InstanceId::new(""),
        pid: None,
        stdin: tokio::sync::Mutex::new(None),
    };
    Process::with_channel(Arc::new(control), output, ended)
}

struct NaiveControl {
    id: InstanceId,
    pid: Option<u32>,
    stdin: tokio::sync::Mutex<Option<ChildStdin>>,
}

impl NaiveControl {
    fn refused(&self, reason: impl ToString) -> ExecuteError {
        ExecuteError::NotRunning {
            instance: self.id.clone(),
            reason: reason.to_string(),
        }
    }
}

#[async_trait]
impl ProcessControl for NaiveControl {
    async fn write_stdin(&self, bytes: &[u8]) -> Result<(), ExecuteError> {
        let mut stdin = self.stdin.lock().await;
        let stdin = stdin.as_mut().ok_or_else(|| self.refused("closed"))?;
        stdin.write_all(bytes).await.map_err(|error| self.refused(error))
    }

    async fn close_stdin(&self) -> Result<(), ExecuteError> {
        self.stdin.lock().await.take();
        Ok(())
    }

    async fn signal(&self, signal: i32, _: SignalTarget) -> Result<(), ExecuteError> {
        let pid = self.pid.ok_or_else(|| self.refused("not started"))?;
        let done = Command::new("kill")
            .arg(format!("-{signal}"))
            .arg(pid.to_string())
            .output()
            .await;
        match done {
            Ok(output) if output.status.success() => Ok(()),
            _ => Err(self.refused("not running")),
        }
    }

    async fn resize(&self, _: TerminalSize) -> Result<(), ExecuteError> {
        Err(self.refused("no terminal"))
    }

    async fn cancel(&self, _: Duration) -> Result<(), ExecuteError> {
        self.signal(9, SignalTarget::Leader).await
    }
}

struct NaiveFiles(InstanceId);

impl NaiveFiles {
    fn io<T>(&self, path: &Path, done: std::io::Result<T>) -> Result<T, FilesError> {
        let path = path.display().to_string();
        done.map_err(|source| FilesError::Io {
            instance: self.0.clone(),
            path,
            source,
        })
    }

    fn check(&self, path: &Path) -> Result<(), FilesError> {
        let shown = || path.display().to_string();
        let source = if path.as_os_str().as_bytes().contains(&0) {
            InvalidInput::Nul { what: shown() }
        } else if path.is_relative() {
            InvalidInput::RelativePath { path: shown() }
        } else {
            return Ok(());
        };
        Err(FilesError::Invalid {
            instance: self.0.clone(),
            source,
        })
    }
}

fn entry(path: &Path) -> std::io::Result<FileEntry> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let metadata = std::fs::symlink_metadata(path)?;
    let file_type = metadata.file_type();
    let kind = match file_type {
        _ if file_type.is_dir() => FileKind::Directory,
        _ if file_type.is_symlink() => FileKind::Symlink,
        _ if file_type.is_fifo() => FileKind::Fifo,
        _ if file_type.is_file() => FileKind::File,
        _ => FileKind::Device,
    };
    Ok(FileEntry {
        name: path.file_name().unwrap_or_default().to_owned(),
        kind,
        size: metadata.len(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: metadata.mtime(),
        link_target: std::fs::read_link(path).ok(),
    })
}

fn replace(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let parent = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent)?;
    let mut file = tempfile::NamedTempFile::new_in(parent)?;
    std::io::Write::write_all(&mut file, content)?;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.persist(path)?;
    Ok(())
}

fn entries(path: &Path) -> std::io::Result<Vec<FileEntry>> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(path)?
        .map(|found| found.map(|found| found.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    paths.iter().map(|path| entry(path)).collect()
}

#[async_trait]
impl Files for NaiveFiles {
    async fn read(&self, path: &Path) -> Result<Vec<u8>, FilesError> {
        self.check(path)?;
        let kind = self.io(path, entry(path))?.kind;
        let content = match kind {
            FileKind::File => std::fs::read(path),
            _ => Err(std::io::Error::other("not a regular file")),
        };
        self.io(path, content)
    }

    async fn write(&self, path: &Path, content: &[u8], mode: Option<u32>) -> Result<(), FilesError> {
        self.check(path)?;
        self.io(path, replace(path, content, mode.unwrap_or(0o644)))
    }

    async fn list(&self, path: &Path) -> Result<Vec<FileEntry>, FilesError> {
        self.check(path)?;
        self.io(path, entries(path))
    }

    async fn stat(&self, path: &Path) -> Result<FileEntry, FilesError> {
        self.check(path)?;
        self.io(path, entry(path))
    }

    async fn remove(&self, path: &Path) -> Result<(), FilesError> {
        self.check(path)?;
        let done = match self.io(path, entry(path))?.kind {
            FileKind::Directory => std::fs::remove_dir_all(path),
            _ => std::fs::remove_file(path),
        };
        self.io(path, done)
    }

    /// What `tar` thinks of it: some is refused, and what came before is there.
    async fn upload_tar(
        &self,
        directory: &Path,
        archive: &mut (dyn AsyncRead + Send + Unpin),
    ) -> Result<(), FilesError> {
        self.check(directory)?;
        self.io(directory, std::fs::create_dir_all(directory))?;
        let mut bytes = Vec::new();
        self.io(directory, archive.read_to_end(&mut bytes).await)?;
        let mut tar = Command::new("tar");
        tar.arg("-xpf")
            .arg("-")
            .arg("-C")
            .arg(directory)
            .stdin(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = self.io(directory, tar.spawn())?;
        let _ = child.stdin.take().unwrap().write_all(&bytes).await;
        match self.io(directory, child.wait().await)?.success() {
            true => Ok(()),
            false => Err(FilesError::Archive {
                instance: self.0.clone(),
                reason: "tar refused it".to_owned(),
            }),
        }
    }

    async fn download_tar(
        &self,
        directory: &Path,
        archive: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<(), FilesError> {
        self.check(directory)?;
        self.io(directory, entry(directory))?;
        let output = Command::new("tar")
            .arg("-cf")
            .arg("-")
            .arg("-C")
            .arg(directory)
            .arg(".")
            .output()
            .await;
        let packed = self.io(directory, output)?.stdout;
        self.io(directory, archive.write_all(&packed).await)
    }
}
