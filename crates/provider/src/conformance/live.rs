//! `spawn`: live input and output, signals, cancelling, waiting.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::place::{ensure_bytes, pattern, shown_bytes};
use super::subject::Subject;
use super::tree_script::{Escape, Runaway};
use crate::{Process, ProcessExit, SignalTarget};
use std::time::Duration;
use stead_types::{CommandLine, ComputeConfig, ExecuteError, Stdin, Stream, TerminalSize, Timeout};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("2", "a spawned program takes input while it gives output", live),
        case!("2", "output comes as it is written, not at the end", as_it_comes),
        case!(
            "2",
            "input that a program took before its end is no error",
            taken_input
        ),
        case!("2", "output of both streams is told apart", both_streams),
        case!(
            "2",
            "a program waits while nobody reads its output",
            back_pressure
        ),
        case!(
            "2",
            "a spawned program without input reads the end at once",
            no_stdin
        ),
        case!("2", "wait answers the same each time", wait_twice),
        case!("2", "a signal reaches the leader", signal_leader),
        case!(
            "2",
            "a signal to the group reaches the leader's children",
            signal_group
        ),
        case!("2", "a signal that nobody handles is the outcome", signal_outcome),
        case!("2", "a signal right after spawn is not lost", signal_at_once),
        case!("2", "cancelling ends the tree, and wait says Cancelled", cancel),
        case!("2", "a timeout of a spawned program is its own outcome", timeout),
        case!("2", "what comes after the end is refused", after_the_end),
        case!(
            "2",
            "commands of one instance do not wait for each other",
            concurrent
        ),
    ]
}

pub(super) fn interactive() -> ComputeConfig {
    ComputeConfig {
        stdin: Some(Stdin::Stream),
        ..ComputeConfig::new()
    }
}

/// Reads standard output until it ends with `end`, and returns what came.
pub(super) async fn read_until(process: &mut Process, end: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut seen = Vec::new();
    while !seen.ends_with(end) {
        match process.next_output().await {
            Some(chunk) if chunk.stream == Stream::Stdout => seen.extend_from_slice(&chunk.bytes),
            Some(_) => {}
            None => {
                let (seen, end) = (shown_bytes(&seen), shown_bytes(end));
                return Err(Failure::new(format!(
                    "the output ended with {seen}, without {end}"
                )));
            }
        }
    }
    Ok(seen)
}

/// Fails unless the program ended with this code by itself.
pub(super) fn ensure_exit(exit: &ProcessExit, code: i32, signal: Option<i32>) -> Result<(), Failure> {
    let same = exit.exit_code == Some(code) && exit.signal == signal && !exit.timed_out;
    ensure!(same, "expected exit_code {code}, signal {signal:?}, got {exit:?}");
    Ok(())
}

async fn live(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let mut process = place.spawn(["cat"], interactive()).await?;
    let control = process.control();
    for part in ["one", "two\n", "\u{1f980}"] {
        control.write_stdin(part.as_bytes()).await?;
        ensure_bytes(
            "what cat gave back",
            &read_until(&mut process, part.as_bytes()).await?,
            part.as_bytes(),
        )?;
    }
    control.close_stdin().await?;
    let exit = process.wait_discarding_output().await?;
    ensure_exit(&exit, 0, None)?;
    ensure!(
        exit.total_bytes == [11, 0],
        "counted {:?}, expected [11, 0]",
        exit.total_bytes
    );
    Ok(Verdict::Passed)
}

async fn as_it_comes(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let mut process = place
        .spawn("echo a; read line; echo \"b $line\"; exit 5", interactive())
        .await?;
    // The program goes on only after its first line was read here.
    read_until(&mut process, b"a\n").await?;
    process.control().write_stdin(b"go\n").await?;
    ensure_bytes("the rest", &read_until(&mut process, b"\n").await?, b"b go\n")?;
    ensure_exit(&process.wait_discarding_output().await?, 5, None)?;
    Ok(Verdict::Passed)
}

async fn taken_input(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    // The end comes at the same time as the answer to the write, in either order: so one tries often.
    for _ in 0..200 {
        let mut process = place.spawn("read line; exit 3", interactive()).await?;
        process.control().write_stdin(b"go\n").await?;
        ensure_exit(&process.wait_discarding_output().await?, 3, None)?;
    }
    Ok(Verdict::Passed)
}

async fn both_streams(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let mut process = place
        .spawn("seq 1 30000; seq 30000 -1 1 >&2", ComputeConfig::new())
        .await?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    while let Some(chunk) = process.next_output().await {
        ensure!(!chunk.bytes.is_empty(), "a chunk is empty");
        match chunk.stream {
            Stream::Stdout => out.extend_from_slice(&chunk.bytes),
            Stream::Stderr => err.extend_from_slice(&chunk.bytes),
        }
    }
    ensure_exit(&process.wait().await?, 0, None)?;
    let up: String = (1..=30_000).map(|number| format!("{number}\n")).collect();
    let down: String = (1..=30_000).rev().map(|number| format!("{number}\n")).collect();
    ensure_bytes("standard output", &out, up.as_bytes())?;
    ensure_bytes("standard error", &err, down.as_bytes())?;
    Ok(Verdict::Passed)
}

async fn back_pressure(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let done = place.directory().await?.join("done");
    let input = pattern(1 << 20);
    let size = 64 << 20;
    let text = format!("head -c {size} /dev/zero; : > {}; cat", done.display());
    let config = ComputeConfig {
        max_output_bytes: Some(1 << 30),
        ..ComputeConfig::new()
    };
    let mut process = place.spawn(text, config.stdin(input.clone())).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    ensure!(
        !place.exists(&done).await?,
        "64 MiB were written though nobody reads"
    );
    let (mut zeros, mut rest) = (0, Vec::new());
    while let Some(chunk) = process.next_output().await {
        let take = chunk.bytes.len().min(size - zeros);
        ensure!(
            chunk.bytes[..take].iter().all(|byte| *byte == 0),
            "another byte within the first {size}"
        );
        zeros += take;
        rest.extend_from_slice(&chunk.bytes[take..]);
    }
    ensure!(zeros == size, "{zeros} bytes of {size} came");
    ensure_bytes("what came after", &rest, &input)?;
    ensure_exit(&process.wait().await?, 0, None)?;
    ensure!(place.exists(&done).await?, "the program went no further");
    Ok(Verdict::Passed)
}

async fn no_stdin(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let mut process = place.spawn(["cat"], ComputeConfig::new()).await?;
    ensure_exit(&process.wait_discarding_output().await?, 0, None)?;
    let mut process = place.spawn(["cat"], ComputeConfig::new().stdin("given")).await?;
    ensure_bytes(
        "given input",
        &read_until(&mut process, b"given").await?,
        b"given",
    )?;
    ensure_exit(&process.wait_discarding_output().await?, 0, None)?;
    Ok(Verdict::Passed)
}

async fn wait_twice(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let mut process = place.spawn("exit 3", ComputeConfig::new()).await?;
    let first = process.wait_discarding_output().await?;
    ensure_exit(&first, 3, None)?;
    let second = process.wait().await?;
    ensure!(first == second, "the first time {first:?}, the second {second:?}");
    Ok(Verdict::Passed)
}

const USR1: i32 = 10;
const TERM: i32 = 15;

async fn signal_leader(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let text = "trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 1; done";
    let mut process = place.spawn(text, ComputeConfig::new()).await?;
    read_until(&mut process, b"ready\n").await?;
    process.control().signal(USR1, SignalTarget::Leader).await?;
    ensure_bytes(
        "the answer to the signal",
        &read_until(&mut process, b"got\n").await?,
        b"got\n",
    )?;
    ensure_exit(&process.wait_discarding_output().await?, 5, None)?;
    Ok(Verdict::Passed)
}

async fn signal_group(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let text = "trap 'echo leader' USR1
        sh -c 'trap \"echo child; exit 0\" USR1; echo ready; while :; do sleep 1; done' &
        wait; wait; echo end";
    let mut process = place.spawn(text, ComputeConfig::new()).await?;
    read_until(&mut process, b"ready\n").await?;
    process.control().signal(USR1, SignalTarget::Group).await?;
    let rest = String::from_utf8_lossy(&read_until(&mut process, b"end\n").await?).into_owned();
    ensure!(
        rest.contains("leader\n") && rest.contains("child\n"),
        "not both got the signal: {rest:?}"
    );
    ensure_exit(&process.wait_discarding_output().await?, 0, None)?;
    Ok(Verdict::Passed)
}

async fn signal_outcome(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for signal in [USR1, TERM, 9] {
        let mut process = place
            .spawn("echo ready; exec sleep 300", ComputeConfig::new())
            .await?;
        read_until(&mut process, b"ready\n").await?;
        process.control().signal(signal, SignalTarget::Leader).await?;
        ensure_exit(
            &process.wait_discarding_output().await?,
            128 + signal,
            Some(signal),
        )?;
    }
    Ok(Verdict::Passed)
}

async fn signal_at_once(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for _ in 0..20 {
        // The control is the outcome: a signal that is lost leaves only the timeout.
        let config = ComputeConfig::new().timeout(Duration::from_secs(20));
        let mut process = place.spawn(["sleep", "300"], config).await?;
        process.control().signal(9, SignalTarget::Leader).await?;
        ensure_exit(&process.wait_discarding_output().await?, 137, Some(9))?;
    }
    Ok(Verdict::Passed)
}

async fn cancel(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for (escape, grace) in [(Escape::Session, 300), (Escape::IgnoresTerm, 0)] {
        let runaway = Runaway::new(&place, escape).await?;
        let text = CommandLine::Shell(runaway.command("echo ready; sleep 300"));
        let mut process = place.spawn(text, ComputeConfig::new()).await?;
        read_until(&mut process, b"ready\n").await?;
        process.control().cancel(Duration::from_millis(grace)).await?;
        match process.wait_discarding_output().await {
            Err(ExecuteError::Cancelled { .. }) => {}
            other => return Err(Failure::new(format!("expected Cancelled, got {other:?}"))),
        }
        runaway.ensure_gone().await?;
    }
    Ok(Verdict::Passed)
}

async fn timeout(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let config = ComputeConfig {
        grace: Some(Duration::from_millis(300)),
        ..interactive()
    };
    let mut process = place
        .spawn(["cat"], config.timeout(Duration::from_secs(1)))
        .await?;
    let exit = process.wait_discarding_output().await?;
    let is_timeout = exit.timed_out && exit.exit_code.is_none() && exit.signal.is_none();
    ensure!(is_timeout, "expected a timeout, got {exit:?}");
    Ok(Verdict::Passed)
}

async fn after_the_end(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let mut process = place.spawn("exit 0", interactive()).await?;
    ensure_exit(&process.wait_discarding_output().await?, 0, None)?;
    let control = process.control();
    let size = TerminalSize { rows: 10, cols: 10 };
    for (what, answer) in [
        ("input", control.write_stdin(b"late").await),
        ("a signal", control.signal(TERM, SignalTarget::Leader).await),
        (
            "a signal to the group",
            control.signal(TERM, SignalTarget::Group).await,
        ),
        ("a size", control.resize(size).await),
    ] {
        match answer {
            Err(ExecuteError::NotRunning { .. }) => {}
            other => {
                return Err(Failure::new(format!(
                    "{what}: expected NotRunning, got {other:?}"
                )));
            }
        }
    }
    ensure_exit(&process.wait().await?, 0, None)?;
    Ok(Verdict::Passed)
}

async fn concurrent(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let dir = place.directory().await?;
    let dir = dir.display();
    let config = || ComputeConfig {
        timeout: Some(Timeout::Never),
        ..ComputeConfig::new()
    };
    // Each waits for what only the next one does: one after the other they would never end.
    let step = |own: usize, next: usize| {
        let text = format!(": > {dir}/{own}; while [ ! -e {dir}/{next} ]; do sleep 1; done; echo {own}");
        place.execute(text, config())
    };
    let results = futures_util::future::join_all((0..8).map(|own| step(own, (own + 1) % 8))).await;
    for (own, result) in results.into_iter().enumerate() {
        ensure_bytes("its output", &result?.stdout, format!("{own}\n").as_bytes())?;
    }
    Ok(Verdict::Passed)
}
