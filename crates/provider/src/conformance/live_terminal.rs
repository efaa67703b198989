//! Terminals.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::live::{ensure_exit, interactive};
use super::place::shown;
use super::subject::Subject;
use crate::Process;
use stead_types::{ComputeConfig, ExecuteError, TerminalSize};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            "2",
            "a terminal has the size it was given, and takes another",
            resize
        ),
        case!(
            "2",
            "the end of input reaches a program on a terminal",
            end_of_input
        ),
        case!("2", "execute gives a terminal too", execute),
        case!(
            "2",
            "without a terminal there is none, and no size to change",
            none
        ),
    ]
}

const NO_TERMINALS: &str = "commands have no terminals here";

fn sized(config: ComputeConfig) -> ComputeConfig {
    ComputeConfig {
        tty: Some(TerminalSize { rows: 31, cols: 97 }),
        ..config
    }
}

/// Reads until the output has `text` somewhere; a terminal also echoes and changes line ends.
async fn read_until_seen(process: &mut Process, text: &str) -> Result<(), Failure> {
    let mut seen = String::new();
    while !seen.contains(text) {
        match process.next_output().await {
            Some(chunk) => seen.push_str(&String::from_utf8_lossy(&chunk.bytes)),
            None => {
                return Err(Failure::new(format!(
                    "the output ended with {seen:?}, without {text:?}"
                )));
            }
        }
    }
    Ok(())
}

async fn resize(subject: &Subject) -> Outcome {
    if !subject.facts.has_terminals {
        return Verdict::skipped(NO_TERMINALS);
    }
    let place = subject.shared().await?;
    let mut process = place
        .spawn("stty size; read line; stty size; exit 6", sized(interactive()))
        .await?;
    read_until_seen(&mut process, "31 97").await?;
    let control = process.control();
    control.resize(TerminalSize { rows: 52, cols: 143 }).await?;
    control.write_stdin(b"go\n").await?;
    read_until_seen(&mut process, "52 143").await?;
    ensure_exit(&process.wait_discarding_output().await?, 6, None)?;
    Ok(Verdict::Passed)
}

async fn end_of_input(subject: &Subject) -> Outcome {
    if !subject.facts.has_terminals {
        return Verdict::skipped(NO_TERMINALS);
    }
    let place = subject.shared().await?;
    let mut process = place
        .spawn("echo ready; cat; echo 'cat ended'", sized(interactive()))
        .await?;
    read_until_seen(&mut process, "ready").await?;
    let control = process.control();
    control.write_stdin(b"hello\n").await?;
    read_until_seen(&mut process, "hello").await?;
    control.close_stdin().await?;
    read_until_seen(&mut process, "cat ended").await?;
    ensure_exit(&process.wait_discarding_output().await?, 0, None)?;
    Ok(Verdict::Passed)
}

async fn execute(subject: &Subject) -> Outcome {
    if !subject.facts.has_terminals {
        return Verdict::skipped(NO_TERMINALS);
    }
    let place = subject.shared().await?;
    let text = "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo terminal; stty size; exit 3";
    let result = place.execute(text, sized(ComputeConfig::new())).await?;
    let right = result.stdout_text().contains("terminal") && result.stdout_text().contains("31 97");
    ensure!(
        right && result.exit_code == Some(3),
        "no terminal of 31 by 97: {}",
        shown(&result)
    );
    Ok(Verdict::Passed)
}

async fn none(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place.sh("[ -t 0 ] || [ -t 1 ] || [ -t 2 ] || echo none").await?;
    ensure!(
        result.stdout == b"none\n",
        "there is a terminal that nobody asked for: {}",
        shown(&result)
    );
    let mut process = place.spawn(["cat"], interactive()).await?;
    match process
        .control()
        .resize(TerminalSize { rows: 10, cols: 10 })
        .await
    {
        Err(ExecuteError::NotRunning { .. } | ExecuteError::Unsupported { .. }) => {}
        other => return Err(Failure::new(format!("a size without a terminal: got {other:?}"))),
    }
    process.control().close_stdin().await?;
    ensure_exit(&process.wait_discarding_output().await?, 0, None)?;
    Ok(Verdict::Passed)
}
