//! Outcomes of output: limits, truncation, timeouts that keep what was printed.

use super::case::{Case, Outcome, Verdict, case, ensure};
use super::outcomes::ensure_end;
use super::place::{ensure_bytes, shown};
use super::subject::Subject;
use std::time::Duration;
use stead_types::{ComputeConfig, ExecResult, Timeout};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("3", "a timeout is its own outcome", timeout),
        case!("3", "output before a timeout is kept", output_before_timeout),
        case!(
            "3",
            "a program that exits 0 on our SIGTERM was ended by the timeout",
            polite_timeout
        ),
        case!("3", "a command that ends in time is not touched", no_timeout),
        case!(
            "3",
            "output over the limit is drained, counted and marked",
            over_limit
        ),
        case!("3", "output at the limit is not marked", at_limit),
        case!("3", "a limit of 0 keeps nothing and counts all", zero_limit),
        case!("3", "streams are kept apart", streams_apart),
        case!("3", "output is bytes", bytes),
        case!("3", "nothing of a long output is lost at the end", complete_tail),
    ]
}

fn after(seconds: u64) -> ComputeConfig {
    let mut config = ComputeConfig::new().timeout(Duration::from_secs(seconds));
    config.grace = Some(Duration::from_millis(500));
    config
}

fn is_timeout(result: &ExecResult) -> bool {
    result.timed_out && result.exit_code.is_none() && result.signal.is_none()
}

async fn timeout(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    // Only the timeout can end it before this case counts as hanging.
    let result = place.execute("sleep 300; echo hi", after(1)).await?;
    ensure!(is_timeout(&result), "expected a timeout, got {}", shown(&result));
    ensure!(
        result.stdout.is_empty(),
        "what comes after the deadline ran: {}",
        shown(&result)
    );
    let result = place.execute(["sleep", "300"], after(1)).await?;
    ensure!(
        is_timeout(&result),
        "argv: expected a timeout, got {}",
        shown(&result)
    );
    Ok(Verdict::Passed)
}

async fn output_before_timeout(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let text = "echo early; echo wrong >&2; sleep 300; echo late";
    // A busy host may take long to start a shell: only a longer timeout tells that from lost output.
    for seconds in [1, 4, 16] {
        let result = place.execute(text, after(seconds)).await?;
        ensure!(is_timeout(&result), "expected a timeout, got {}", shown(&result));
        if result.stdout == b"early\n" && result.stderr == b"wrong\n" {
            ensure!(
                result.stdout_total_bytes == 6,
                "counted {} bytes of 6",
                result.stdout_total_bytes
            );
            return Ok(Verdict::Passed);
        }
        ensure!(
            seconds < 16,
            "the output before the timeout is not there: {}",
            shown(&result)
        );
    }
    Ok(Verdict::Passed)
}

async fn polite_timeout(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let text = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 1; done";
    let mut config = after(3);
    config.grace = Some(Duration::from_secs(30));
    let result = place.execute(text, config).await?;
    ensure!(is_timeout(&result), "expected a timeout, got {}", shown(&result));
    ensure!(
        result.stdout == b"ready\nbye\n",
        "SIGTERM and the grace did not let the program say bye: {}",
        shown(&result)
    );
    Ok(Verdict::Passed)
}

async fn no_timeout(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for timeout in [Timeout::After(Duration::from_secs(60)), Timeout::Never] {
        let config = ComputeConfig {
            timeout: Some(timeout),
            ..ComputeConfig::new()
        };
        let result = place.execute("sleep 1; echo done; exit 4", config).await?;
        ensure_end("a command within its time", &result, 4, None)?;
        ensure_bytes("its output", &result.stdout, b"done\n")?;
    }
    Ok(Verdict::Passed)
}

fn limited(bytes: u64) -> ComputeConfig {
    ComputeConfig {
        max_output_bytes: Some(bytes),
        ..ComputeConfig::new()
    }
}

async fn over_limit(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let text = "seq 1 100000; echo err >&2; exit 7";
    let result = place.execute(text, limited(20)).await?;
    ensure_end("a command over its limit", &result, 7, None)?;
    ensure_bytes(
        "the first bytes",
        &result.stdout,
        b"1\n2\n3\n4\n5\n6\n7\n8\n9\n10",
    )?;
    ensure_bytes("the other stream", &result.stderr, b"err\n")?;
    let totals = (result.stdout_total_bytes, result.stderr_total_bytes);
    ensure!(totals == (588_895, 4), "counted {totals:?} bytes of (588895, 4)");
    let marks = (result.stdout_truncated, result.stderr_truncated);
    ensure!(
        marks == (true, false),
        "truncated is {marks:?}, expected (true, false)"
    );
    Ok(Verdict::Passed)
}

async fn at_limit(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place.execute(["printf", "12345"], limited(5)).await?;
    ensure_bytes("all of it", &result.stdout, b"12345")?;
    let marks = (result.stdout_truncated, result.stdout_total_bytes);
    ensure!(
        marks == (false, 5),
        "truncated and total are {marks:?}, expected (false, 5)"
    );
    Ok(Verdict::Passed)
}

async fn zero_limit(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place
        .execute("head -c 200000 /dev/zero; exit 3", limited(0))
        .await?;
    ensure_end("a command whose output nobody wants", &result, 3, None)?;
    let seen = (
        result.stdout.len(),
        result.stdout_total_bytes,
        result.stdout_truncated,
    );
    ensure!(
        seen == (0, 200_000, true),
        "kept, counted, marked: {seen:?}, expected (0, 200000, true)"
    );
    Ok(Verdict::Passed)
}

async fn streams_apart(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place.sh("echo a; echo b >&2; echo c; echo d >&2").await?;
    ensure_bytes("standard output", &result.stdout, b"a\nc\n")?;
    ensure_bytes("standard error", &result.stderr, b"b\nd\n")?;
    let silent = place.sh(":").await?;
    let none = silent.stdout.is_empty() && silent.stderr.is_empty() && silent.stdout_total_bytes == 0;
    ensure!(
        none && silent.success(),
        "a silent program printed: {}",
        shown(&silent)
    );
    Ok(Verdict::Passed)
}

async fn bytes(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place.sh(r"printf '\377\000\376\001\r\n\033'").await?;
    ensure_bytes("standard output", &result.stdout, b"\xff\0\xfe\x01\r\n\x1b")?;
    Ok(Verdict::Passed)
}

async fn complete_tail(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    let result = place
        .execute(["seq", "1", "200000"], ComputeConfig::new())
        .await?;
    ensure_end("seq", &result, 0, None)?;
    ensure_bytes("its output", &result.stdout, expected.as_bytes())?;
    Ok(Verdict::Passed)
}
