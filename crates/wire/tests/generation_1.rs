//! The bytes of generation 1, frozen. Every message of both directions stands in generation_1.txt as it is
//! on the wire. A change that makes this fail needs a new generation: hosts and supervisors of different
//! releases meet, because a supervisor outlives the daemon that started it.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::fmt::Write;
use stead_wire::*;

const FROZEN: &str = include_str!("generation_1.txt");

const ID: CommandId = CommandId([0xc0; 16]);

fn to_supervisor() -> Vec<ToSupervisor> {
    let size = TerminalSize { rows: 24, cols: 80 };
    let path = || b"/a".to_vec();
    let file = |request| ToSupervisor::File { tag: 5, request };
    vec![
        ToSupervisor::Hello {
            oldest: 1,
            newest: 1,
            nonce: [1; 32],
            epoch: 7,
        },
        ToSupervisor::Proof { proof: [2; 32] },
        ToSupervisor::Ready,
        ToSupervisor::StartPart { id: ID },
        ToSupervisor::Start { id: ID },
        ToSupervisor::Stdin { id: ID, offset: 300 },
        ToSupervisor::StdinEnd { id: ID, offset: 300 },
        ToSupervisor::Ack {
            id: ID,
            stream: Stream::Stderr,
            next: 4,
        },
        ToSupervisor::Signal {
            id: ID,
            signal: 15,
            target: SignalTarget::Leader,
        },
        ToSupervisor::Signal {
            id: ID,
            signal: 15,
            target: SignalTarget::Group,
        },
        ToSupervisor::Resize { id: ID, size },
        ToSupervisor::Cancel {
            id: ID,
            grace_ms: 2000,
        },
        ToSupervisor::Release { id: ID },
        file(FileRequest::Stat {
            path: path(),
            follow: true,
        }),
        file(FileRequest::List {
            path: path(),
            after: b"b".to_vec(),
            limit: 100,
        }),
        file(FileRequest::OpenRead { path: path() }),
        file(FileRequest::Read {
            handle: 1,
            offset: 2,
            length: 3,
        }),
        file(FileRequest::OpenWrite {
            path: path(),
            mode: 0o644,
            create_parents: true,
        }),
        file(FileRequest::Write { handle: 1 }),
        file(FileRequest::Commit {
            handle: 1,
            mtime: Some(-1),
        }),
        file(FileRequest::Close { handle: 1 }),
        file(FileRequest::MakeDirectory {
            path: path(),
            mode: 0o755,
            parents: false,
        }),
        file(FileRequest::MakeSymlink {
            path: path(),
            target: b"t".to_vec(),
        }),
        file(FileRequest::Remove { path: path() }),
        ToSupervisor::Ping { tag: 9 },
        ToSupervisor::Shutdown,
    ]
}

fn from_supervisor() -> Vec<FromSupervisor> {
    let exit = |status, stopped| Exit {
        status,
        stopped,
        duration_us: 1000,
        tree_gone: true,
        oom_killed: true,
    };
    let entry = FileEntry {
        name: b"n".to_vec(),
        kind: FileKind::Symlink,
        size: 1,
        mode: 0o777,
        uid: 2,
        gid: 3,
        mtime: 4,
        link_target: Some(b"t".to_vec()),
    };
    let report = CommandReport {
        id: ID,
        fingerprint: [3; 32],
        unacknowledged: [1, 2],
        stdin_accepted: 3,
        exit: Some(exit(ExitStatus::Unknown, None)),
    };
    let problem = Some(PlaceProblem {
        stage: LaunchStage::Cwd,
        errno: 2,
    });
    let file = |answer| FromSupervisor::File { tag: 5, answer };
    let mut messages = vec![
        FromSupervisor::Challenge {
            generation: 1,
            nonce: [4; 32],
            proof: [5; 32],
        },
        FromSupervisor::Welcome {
            tree: TreeTracking::CgroupV2,
            pid: 1,
            problem,
            commands: vec![report],
        },
        FromSupervisor::Welcome {
            tree: TreeTracking::CgroupV1,
            pid: 1,
            problem: None,
            commands: vec![],
        },
        FromSupervisor::Welcome {
            tree: TreeTracking::Reaper,
            pid: 1,
            problem: None,
            commands: vec![],
        },
        FromSupervisor::Incompatible { oldest: 1, newest: 2 },
        FromSupervisor::Started { id: ID, pid: 42 },
        FromSupervisor::Output {
            id: ID,
            stream: Stream::Stdout,
            sequence: 1,
            observed_at_us: 1 << 50,
        },
        FromSupervisor::StreamEnd {
            id: ID,
            stream: Stream::Stdout,
            next: 2,
            total_bytes: 3,
        },
        FromSupervisor::StreamMark {
            id: ID,
            stream: Stream::Stderr,
            next: 2,
            total_bytes: 3,
        },
        FromSupervisor::StdinTaken { id: ID, through: 8 },
        FromSupervisor::StdinClosed { id: ID },
        FromSupervisor::Exited {
            id: ID,
            exit: exit(ExitStatus::Code(7), None),
        },
        FromSupervisor::Exited {
            id: ID,
            exit: exit(
                ExitStatus::Signal {
                    signal: 9,
                    core_dumped: false,
                },
                Some(StopCause::Timeout),
            ),
        },
        FromSupervisor::Exited {
            id: ID,
            exit: exit(ExitStatus::Code(0), Some(StopCause::Cancel)),
        },
        FromSupervisor::TreeGone { id: ID },
        file(FileAnswer::Done),
        file(FileAnswer::Entry(entry.clone())),
        file(FileAnswer::Entries(vec![entry])),
        file(FileAnswer::Opened { handle: 1, size: 2 }),
        file(FileAnswer::Content),
        file(FileAnswer::Failed { errno: 13 }),
        FromSupervisor::Pong { tag: 9 },
        FromSupervisor::Bye,
    ];
    for stage in [
        LaunchStage::User,
        LaunchStage::Cwd,
        LaunchStage::Exec,
        LaunchStage::Setup,
    ] {
        messages.push(FromSupervisor::LaunchFailed {
            id: ID,
            stage,
            errno: 2,
        });
    }
    for reason in [
        Refusal::OtherFingerprint,
        Refusal::CancelledBefore,
        Refusal::BadCommand,
        Refusal::ShuttingDown,
        Refusal::TooMany,
    ] {
        messages.push(FromSupervisor::Refused { id: ID, reason });
    }
    messages
}

fn spec() -> CommandSpec {
    CommandSpec {
        program: Program::Argv(vec![b"a".to_vec(), b"\xff".to_vec()]),
        cwd: Some(b"/w".to_vec()),
        env: vec![(b"N".to_vec(), b"v".to_vec())],
        user: Some("u".to_owned()),
        stdin: StdinMode::Stream,
        tty: Some(TerminalSize { rows: 1, cols: 2 }),
        timeout_ms: Some(60_000),
        grace_ms: 2000,
        descendants: Descendants::Keep,
        output_limit: Some(10 << 20),
    }
}

fn line(text: &mut String, what: &str, message: &impl std::fmt::Debug, bytes: &[u8]) {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(text, "{what} {message:?}\n  {hex}").unwrap();
}

#[test]
fn the_bytes_of_every_message_are_as_they_were_released() {
    let mut text = String::new();
    for message in to_supervisor() {
        let mut bytes = Vec::new();
        frame::encode(&message, b"body", &mut bytes).unwrap();
        line(&mut text, ">", &message, &bytes);
    }
    for message in from_supervisor() {
        let mut bytes = Vec::new();
        frame::encode(&message, b"body", &mut bytes).unwrap();
        line(&mut text, "<", &message, &bytes);
    }
    line(
        &mut text,
        "=",
        &spec(),
        &postcard::to_extend(&spec(), Vec::new()).unwrap(),
    );
    let shell = CommandSpec {
        program: Program::Shell(b"x".to_vec()),
        cwd: None,
        env: vec![],
        user: None,
        stdin: StdinMode::Empty,
        tty: None,
        timeout_ms: None,
        descendants: Descendants::Sweep,
        output_limit: None,
        ..spec()
    };
    line(
        &mut text,
        "=",
        &shell,
        &postcard::to_extend(&shell, Vec::new()).unwrap(),
    );
    if std::env::var_os("STEAD_WRITE_GENERATION").is_some() {
        std::fs::write(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/generation_1.txt"),
            &text,
        )
        .unwrap();
    }
    assert_eq!(
        text, FROZEN,
        "generation 1 is frozen: make a new generation instead"
    );
}

#[test]
fn the_frozen_bytes_are_still_read() {
    let mut direction = "";
    let mut read = 0;
    for row in FROZEN.lines() {
        let Some(hex) = row.strip_prefix("  ") else {
            direction = &row[..1];
            continue;
        };
        let bytes: Vec<u8> = hex
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect();
        read += 1;
        if direction == "=" {
            assert!(
                postcard::take_from_bytes::<CommandSpec>(&bytes)
                    .unwrap()
                    .1
                    .is_empty()
            );
            continue;
        }
        let mut decoder = FrameDecoder::new(MAX_FRAME);
        decoder.push(&bytes);
        let frame = decoder.next_frame().unwrap().unwrap();
        assert_eq!(frame.body, b"body");
        match direction {
            ">" => drop(frame.message::<ToSupervisor>().unwrap()),
            _ => drop(frame.message::<FromSupervisor>().unwrap()),
        }
    }
    assert_eq!(read, to_supervisor().len() + from_supervisor().len() + 2);
}
