//! The supervisor against a host that breaks, lies, stalls or dies; and the link against a supervisor that
//! does. Each denial has a positive control: the same exchange, done right, is answered.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_providers::link::{Dial, Ended, Link, Transport};
use stead_providers::supervisor;
use stead_wire::proof::Transcript;
use stead_wire::{
    CommandId, CommandSpec, Descendants, ExitStatus, FrameDecoder, FromSupervisor, Key, MAX_FRAME, Program,
    Refusal, Role, StdinMode, Stream, ToSupervisor, frame,
};

const KEY: [u8; 32] = [7; 32];

/// A supervisor of its own in a temporary folder.
struct Place {
    child: Child,
    dir: tempfile::TempDir,
}

impl Place {
    fn start(extra: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = supervisor::install(dir.path()).unwrap();
        let key_file = dir.path().join("key");
        std::fs::write(&key_file, KEY).unwrap();
        let name = dir.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let child = Command::new(program)
            .args([
                "serve",
                "--instance",
                &name,
                "--workdir",
                "/",
                "--unlink-key",
                "--key-file",
            ])
            .arg(&key_file)
            .arg("--socket")
            .arg(dir.path().join("s"))
            .args(extra)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let place = Self { child, dir };
        let until = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(place.socket()).is_err() {
            assert!(Instant::now() < until, "no supervisor came up");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(!key_file.exists(), "the key is gone once it was read");
        place
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn connect(&self) -> Host {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Host {
            stream,
            decoder: FrameDecoder::new(MAX_FRAME),
        }
    }

    /// A connection that was welcomed.
    fn host(&self, epoch: u64) -> Host {
        let mut host = self.connect();
        let welcome = host.handshake(&KEY, epoch);
        assert!(
            matches!(welcome, Some(FromSupervisor::Welcome { .. })),
            "{welcome:?}"
        );
        host.send(&ToSupervisor::Ready, &[]);
        host
    }

    fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What a supervisor leaves that was itself killed.
    fn remove_cgroup(&self) {
        let Ok(cgroup) = std::fs::read_to_string(self.dir.path().join("cgroup")) else {
            return;
        };
        for command in std::fs::read_dir(&cgroup).into_iter().flatten().flatten() {
            let _ = std::fs::write(command.path().join("cgroup.kill"), "1");
            let until = Instant::now() + Duration::from_secs(10);
            while command.path().is_dir() && Instant::now() < until {
                let _ = std::fs::remove_dir(command.path());
            }
        }
        let _ = std::fs::remove_dir(&cgroup);
    }

    fn wait_for_end(&mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.is_alive() {
            assert!(Instant::now() < until, "the supervisor does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // In order first, so that it removes its cgroup.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let until = Instant::now() + Duration::from_secs(10);
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.remove_cgroup();
    }
}

/// A host that speaks frame by frame.
struct Host {
    stream: UnixStream,
    decoder: FrameDecoder,
}

impl Host {
    fn send(&mut self, message: &ToSupervisor, body: &[u8]) {
        let mut bytes = Vec::new();
        frame::encode(message, body, &mut bytes).unwrap();
        // The other side may have closed: the next read says so.
        let _ = self.stream.write_all(&bytes);
    }

    /// The next message, `None` when the connection is closed.
    fn receive(&mut self) -> Option<(FromSupervisor, Vec<u8>)> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return Some((frame.message().unwrap(), frame.body));
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.decoder.push(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("neither an answer nor the end: {error}"),
            }
        }
    }

    /// Reads what was on its way, and then the end.
    fn is_closed(&mut self) {
        while self.receive().is_some() {}
    }

    fn handshake(&mut self, key: &[u8; 32], epoch: u64) -> Option<FromSupervisor> {
        let nonce = [9; 32];
        self.send(
            &ToSupervisor::Hello {
                oldest: 1,
                newest: 1,
                nonce,
                epoch,
            },
            &[],
        );
        let FromSupervisor::Challenge {
            generation,
            nonce: theirs,
            proof,
        } = self.receive()?.0
        else {
            panic!("no challenge")
        };
        let transcript = Transcript {
            host: nonce,
            supervisor: theirs,
            generation,
            epoch,
        };
        assert!(
            transcript.verify(Role::Supervisor, &Key::new(KEY), &proof),
            "the supervisor proves the key too"
        );
        let proof = transcript.prove(Role::Host, &Key::new(*key));
        self.send(&ToSupervisor::Proof { proof }, &[]);
        self.receive().map(|(message, _)| message)
    }

    fn start(&mut self, id: u8, shell: &str) -> CommandId {
        let id = CommandId([id; 16]);
        self.send(
            &ToSupervisor::Start { id },
            &postcard::to_extend(&spec(shell), Vec::new()).unwrap(),
        );
        id
    }

    /// Everything until a message that `is_last` takes.
    fn until(&mut self, is_last: impl Fn(&FromSupervisor) -> bool) -> Vec<(FromSupervisor, Vec<u8>)> {
        let mut all = Vec::new();
        loop {
            let next = self.receive().expect("the connection stays open");
            let last = is_last(&next.0);
            all.push(next);
            if last {
                return all;
            }
        }
    }
}

fn spec(shell: &str) -> CommandSpec {
    CommandSpec {
        program: Program::Shell(shell.as_bytes().to_vec()),
        cwd: None,
        env: vec![(b"PATH".to_vec(), b"/usr/bin:/bin".to_vec())],
        user: None,
        stdin: StdinMode::Empty,
        tty: None,
        timeout_ms: Some(60_000),
        grace_ms: 2000,
        descendants: Descendants::Sweep,
        output_limit: None,
    }
}

fn exited(message: &FromSupervisor) -> bool {
    matches!(message, FromSupervisor::Exited { .. })
}

#[test]
fn only_the_key_opens_it() {
    let place = Place::start(&[]);
    assert_eq!(
        place.connect().handshake(&[8; 32], 1),
        None,
        "a wrong key is closed without a word"
    );
    let mut silent = place.connect();
    silent.send(
        &ToSupervisor::Start {
            id: CommandId([1; 16]),
        },
        &[],
    );
    assert!(silent.receive().is_none(), "nothing is done before the proof");
    let mut host = place.host(1);
    host.start(1, "echo hello");
    let all = host.until(exited);
    assert!(all.iter().any(|(_, body)| body == b"hello\n"));
}

#[test]
fn garbage_oversized_cut_and_slow_frames_end_only_their_connection() {
    let mut place = Place::start(&[]);
    let mut host = place.host(1);
    for bytes in [
        &b"\xff\xff\xff\xff"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        &[1, 0, 0, 0, 9],
        &[3, 0, 0, 0, 1, 0, 99],
    ] {
        let mut bad = place.connect();
        bad.stream.write_all(bytes).unwrap();
        bad.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(bad.receive().is_none(), "{bytes:?}");
    }
    // More half-open connections than are kept: they push each other out, and nobody else.
    let stalled: Vec<Host> = (0..64).map(|_| place.connect()).collect();
    host.start(1, "echo still here");
    assert!(host.until(exited).iter().any(|(_, body)| body == b"still here\n"));
    drop(stalled);
    // After the proof: an unknown message, then one of the handshake.
    let mut bytes = Vec::new();
    frame::encode(&200u8, &[], &mut bytes).unwrap();
    host.stream.write_all(&bytes).unwrap();
    host.is_closed();
    let mut host = place.host(1);
    host.send(&ToSupervisor::Proof { proof: [0; 32] }, &[]);
    host.is_closed();
    assert!(place.is_alive());
}

#[test]
fn generations_that_do_not_overlap_are_told_so() {
    let place = Place::start(&[]);
    let mut host = place.connect();
    host.send(
        &ToSupervisor::Hello {
            oldest: 900,
            newest: 901,
            nonce: [0; 32],
            epoch: 1,
        },
        &[],
    );
    assert!(matches!(
        host.receive(),
        Some((FromSupervisor::Incompatible { oldest: 1, newest: 1 }, _))
    ));
    assert!(host.receive().is_none());
}

#[test]
fn a_newer_host_fences_the_older_and_a_lower_epoch_is_refused() {
    let place = Place::start(&[]);
    let mut first = place.host(5);
    let mut second = place.host(5);
    assert!(first.receive().is_none(), "the older connection is closed");
    assert_eq!(place.connect().handshake(&KEY, 4), None, "a lower epoch");
    second.start(1, "echo mine");
    assert!(second.until(exited).iter().any(|(_, body)| body == b"mine\n"));
}

#[test]
fn one_id_runs_once() {
    let place = Place::start(&[]);
    let marker = place.dir.path().join("marker");
    let mut host = place.host(1);
    let text = format!("echo x >> {}; echo done", marker.display());
    let id = host.start(1, &text);
    host.until(exited);
    host.start(1, &text);
    host.start(1, "echo another");
    let (refused, _) = host
        .until(|m| matches!(m, FromSupervisor::Refused { .. }))
        .pop()
        .unwrap();
    assert_eq!(
        refused,
        FromSupervisor::Refused {
            id,
            reason: Refusal::OtherFingerprint
        }
    );
    // Cancelled before it was started.
    let late = CommandId([2; 16]);
    host.send(
        &ToSupervisor::Cancel {
            id: late,
            grace_ms: 0,
        },
        &[],
    );
    host.start(2, &text);
    let (refused, _) = host
        .until(|m| matches!(m, FromSupervisor::Refused { .. }))
        .pop()
        .unwrap();
    assert_eq!(
        refused,
        FromSupervisor::Refused {
            id: late,
            reason: Refusal::CancelledBefore
        }
    );
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "x\n");
}

#[test]
fn a_command_survives_its_host_and_its_output_waits() {
    let place = Place::start(&[]);
    let mut host = place.host(1);
    let id = host.start(1, "for i in 1 2 3 4 5; do echo $i; sleep 0.05; done; exit 4");
    // Takes one chunk, acknowledges nothing, and is gone.
    host.until(|m| matches!(m, FromSupervisor::Output { .. }));
    drop(host);
    std::thread::sleep(Duration::from_millis(500));
    let mut host = place.host(1);
    let both_ended = |all: &[(FromSupervisor, Vec<u8>)]| {
        all.iter()
            .filter(|(m, _)| matches!(m, FromSupervisor::StreamEnd { .. }))
            .count()
            == 2
    };
    let mut all = Vec::new();
    while !both_ended(&all) {
        all.push(host.receive().unwrap());
    }
    let text: Vec<u8> = all.iter().flat_map(|(_, body)| body.clone()).collect();
    assert_eq!(
        text, b"1\n2\n3\n4\n5\n",
        "all of it again, since nothing was acknowledged"
    );
    for stream in Stream::ALL {
        host.send(
            &ToSupervisor::Ack {
                id,
                stream,
                next: 1000,
            },
            &[],
        );
    }
    host.send(&ToSupervisor::Release { id }, &[]);
    drop(host);
    let mut host = place.connect();
    let Some(FromSupervisor::Welcome { commands, .. }) = host.handshake(&KEY, 1) else {
        panic!("no welcome")
    };
    assert_eq!(commands, vec![], "released and gone");
}

#[test]
fn the_outcome_waits_for_a_host_too() {
    let place = Place::start(&[]);
    let mut host = place.host(1);
    host.start(1, "exit 9");
    host.until(|m| matches!(m, FromSupervisor::Started { .. }));
    drop(host);
    std::thread::sleep(Duration::from_millis(300));
    let Some(FromSupervisor::Welcome { commands, .. }) = place.connect().handshake(&KEY, 1) else {
        panic!("no welcome")
    };
    assert_eq!(
        commands[0].exit.as_ref().map(|exit| exit.status),
        Some(ExitStatus::Code(9))
    );
}

#[test]
fn a_host_that_reads_nothing_holds_up_only_the_program() {
    let mut place = Place::start(&[]);
    let mut host = place.host(1);
    host.start(1, "yes");
    std::thread::sleep(Duration::from_millis(800));
    let status = std::fs::read_to_string(format!("/proc/{}/status", place.child.id())).unwrap();
    let resident: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().split(' ').next())
        .and_then(|number| number.parse().ok())
        .unwrap();
    assert!(resident < 8 * 1024, "the supervisor holds {resident} KiB");
    // It still answers somebody else.
    place.host(1);
    assert!(place.is_alive());
}

#[test]
fn without_its_owner_it_ends_all_and_removes_what_it_was_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let doomed = folder.path().join("doomed");
    std::fs::create_dir(&doomed).unwrap();
    for tree in ["cgroup2", "reaper"] {
        std::fs::create_dir_all(&doomed).unwrap();
        let mut place = Place::start(&[
            "--owner-grace",
            "1",
            "--tree",
            tree,
            "--remove-at-end",
            doomed.to_str().unwrap(),
        ]);
        let mut host = place.host(1);
        host.start(1, "setsid sleep 4321 & echo $!; exec sleep 4322");
        let all = host.until(|m| matches!(m, FromSupervisor::Output { .. }));
        let pid = String::from_utf8(all.last().unwrap().1.clone()).unwrap();
        let proc = PathBuf::from(format!("/proc/{}", pid.trim()));
        assert!(proc.exists());
        drop(host);
        place.wait_for_end();
        assert!(!proc.exists() && !doomed.exists());
    }
}

#[test]
fn a_reaper_that_is_killed_loses_its_command_and_nothing_stays() {
    let place = Place::start(&["--tree", "reaper"]);
    let mut host = place.host(1);
    // The reaper is the leader's parent.
    host.start(1, "setsid sleep 4323 & echo $! $PPID; sleep 4324");
    let all = host.until(|m| matches!(m, FromSupervisor::Output { .. }));
    let text = String::from_utf8(all.last().unwrap().1.clone()).unwrap();
    let (sleeper, reaper) = text.trim().split_once(' ').unwrap();
    assert!(
        Command::new("kill")
            .args(["-9", reaper])
            .status()
            .unwrap()
            .success()
    );
    let all = host.until(exited);
    let Some((FromSupervisor::Exited { exit, .. }, _)) = all.last() else {
        panic!("no exit")
    };
    assert_eq!(exit.status, ExitStatus::Unknown);
    let proc = PathBuf::from(format!("/proc/{sleeper}"));
    let until = Instant::now() + Duration::from_secs(20);
    while proc.exists() {
        assert!(Instant::now() < until, "an orphan stays");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Dials through a proxy that breaks each connection after so many bytes.
struct Breaking {
    socket: PathBuf,
    after: usize,
}

impl Breaking {
    async fn open(&self) -> std::io::Result<Transport> {
        let inner = stead_providers::link::connect(&self.socket).await?;
        let (ours, theirs) = tokio::net::UnixStream::pair()?;
        let after = self.after;
        tokio::spawn(async move {
            let (mut from_host, mut to_host) = theirs.into_split();
            let (mut from_place, mut to_place) = inner.into_split();
            let forward = tokio::spawn(async move {
                let _ = tokio::io::copy(&mut from_host, &mut to_place).await;
            });
            let mut limited = tokio::io::AsyncReadExt::take(&mut from_place, after as u64);
            let _ = tokio::io::copy(&mut limited, &mut to_host).await;
            forward.abort();
        });
        Ok(ours.into())
    }
}

#[async_trait::async_trait]
impl Dial for Breaking {
    async fn dial(&self) -> std::io::Result<Transport> {
        self.open().await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_breaks_again_and_again_loses_and_doubles_nothing() {
    let place = Place::start(&[]);
    let breaking = Arc::new(Breaking {
        socket: place.socket(),
        after: 150_000,
    });
    let first = breaking.open().await.unwrap();
    let link = Link::establish(first, breaking, Key::new(KEY), 1).await.unwrap();
    let marker = place.dir.path().join("ran");
    let text = format!(
        "echo ran >> {}; i=0; while [ $i -lt 60000 ]; do echo $i; i=$((i+1)); done",
        marker.display()
    );
    let Ended::Exited {
        collected: [stdout, _],
        total_bytes,
        exit,
    } = link.execute(&spec(&text), None).await.unwrap()
    else {
        panic!("lost")
    };
    let expected: String = (0..60_000).map(|i| format!("{i}\n")).collect();
    assert_eq!(exit.status, ExitStatus::Code(0));
    assert_eq!(total_bytes[0], expected.len() as u64);
    assert!(
        stdout == expected.as_bytes(),
        "{} bytes of {}",
        stdout.len(),
        expected.len()
    );
    assert_eq!(std::fs::read_to_string(marker).unwrap(), "ran\n");
    // And the other way: input that is sent again must not be doubled.
    let input: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
    let cat = CommandSpec {
        stdin: StdinMode::Stream,
        ..spec("cat")
    };
    let Ended::Exited {
        collected: [stdout, _],
        ..
    } = link.execute(&cat, Some(input.clone())).await.unwrap()
    else {
        panic!("lost")
    };
    assert!(stdout == input, "{} bytes of {}", stdout.len(), input.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_dies_loses_its_commands_at_once() {
    let mut place = Place::start(&[]);
    let dial = Arc::new(stead_providers::link::DialPath(place.socket()));
    let first = dial.dial().await.unwrap();
    let link = Link::establish(first, dial, Key::new(KEY), 1).await.unwrap();
    let (one, two) = (spec("sleep 4325"), spec("sleep 4326"));
    let kill = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        place.child.kill().unwrap();
    };
    let (one, two, ()) = tokio::join!(link.execute(&one, None), link.execute(&two, None), kill);
    assert!(
        matches!(one, Ok(Ended::Lost(_))) && matches!(two, Ok(Ended::Lost(_))),
        "{one:?} {two:?}"
    );
    let _ = Command::new("pkill")
        .args(["-9", "-f", "^sleep 432[56]$"])
        .status();
}

#[tokio::test]
async fn an_impostor_and_a_liar_are_not_believed() {
    // Somebody in the place sits at the supervisor's address without knowing the key.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    for answer in [
        FromSupervisor::Challenge {
            generation: 1,
            nonce: [0; 32],
            proof: [0; 32],
        },
        FromSupervisor::Bye,
        FromSupervisor::Incompatible { oldest: 7, newest: 8 },
    ] {
        let thread = std::thread::spawn({
            let listener = listener.try_clone().unwrap();
            move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut bytes = Vec::new();
                frame::encode(&answer, &[], &mut bytes).unwrap();
                stream.write_all(&bytes).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
        let dial = Arc::new(stead_providers::link::DialPath(path.clone()));
        let first = dial.dial().await.unwrap();
        assert!(Link::establish(first, dial, Key::new(KEY), 1).await.is_err());
        thread.join().unwrap();
    }
}
