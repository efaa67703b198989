//! Standard input and output in quantity, and pipes that others hold open.

use super::case::{Case, Outcome, Verdict, case, ensure};
use super::outcomes::ensure_end;
use super::own_process::resident_while;
use super::place::{ensure_bytes, pattern, shown};
use super::subject::Subject;
use std::time::Duration;
use stead_types::config::DEFAULT_MAX_OUTPUT;
use stead_types::{ComputeConfig, ExecuteError, Stdin};

/// SHA-256 of 50 MiB of [`pattern`].
const PATTERN_50_MIB: &str = "33667c8c4241722c1802c263c7c41c44f9eef5dfadacf0510916ded8bb70034a";

/// How much the caller's memory may grow while 1 GiB passes; 10 MiB of it are kept.
const GROWTH_LIMIT: u64 = 64 << 20;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            "9.4",
            "1 GiB of output: flat memory, first bytes kept, all counted",
            gibibyte
        )
        .limit(600),
        case!(
            "9.4",
            "much standard error while standard output is idle",
            stderr_flood
        ),
        case!("9.4", "much of both streams at once", both_flood),
        case!(
            "9.6",
            "a descendant that holds the output open does not delay the result",
            held_pipe
        ),
        case!("9.8", "standard input is empty and closed unless given", no_stdin),
        case!("9.8", "standard input arrives byte exact", stdin_bytes),
        case!("9.8", "50 MiB of standard input are exact", stdin_large).limit(300),
        case!(
            "9.8",
            "a program that stops to read early is no error",
            early_close
        ),
        case!("2", "execute refuses a stream as standard input", stream_refused),
    ]
}

fn patient() -> ComputeConfig {
    ComputeConfig::new().timeout(Duration::from_secs(600))
}

async fn gibibyte(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let command = place.execute(["head", "-c", "1073741824", "/dev/zero"], patient());
    let (result, growth) = resident_while(command).await;
    let result = result?;
    ensure_end("head", &result, 0, None)?;
    let kept = (
        result.stdout.len() as u64,
        result.stdout_total_bytes,
        result.stdout_truncated,
    );
    let expected = (DEFAULT_MAX_OUTPUT, 1 << 30, true);
    ensure!(
        kept == expected,
        "kept, counted, marked: {kept:?}, expected {expected:?}"
    );
    ensure!(
        result.stdout.iter().all(|byte| *byte == 0),
        "the kept bytes are not those that were written"
    );
    match growth {
        None => Verdict::skipped("this process cannot see how much memory it has; the output was right"),
        Some(growth) => {
            ensure!(
                growth < GROWTH_LIMIT,
                "this process grew by {growth} bytes, over {GROWTH_LIMIT}"
            );
            Ok(Verdict::Passed)
        }
    }
}

async fn stderr_flood(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for size in [64 << 10, 5 << 20] {
        let result = place.sh(format!("head -c {size} /dev/zero >&2; echo ok")).await?;
        ensure_end("a flood of standard error", &result, 0, None)?;
        ensure_bytes("standard output", &result.stdout, b"ok\n")?;
        ensure!(
            result.stderr == vec![0; size],
            "{} bytes of standard error, not {size}",
            result.stderr.len()
        );
    }
    Ok(Verdict::Passed)
}

async fn both_flood(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place
        .sh("head -c 5000000 /dev/zero >&2 & seq 1 500000; wait")
        .await?;
    ensure_end("floods of both streams", &result, 0, None)?;
    let expected: String = (1..=500_000).map(|number| format!("{number}\n")).collect();
    ensure_bytes("standard output", &result.stdout, expected.as_bytes())?;
    ensure!(
        result.stderr == vec![0; 5_000_000],
        "{} bytes of standard error",
        result.stderr.len()
    );
    Ok(Verdict::Passed)
}

async fn held_pipe(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    // The descendant would hold the pipe until this case counts as hanging: a result at all is one at once.
    for text in ["sleep 300 & echo ok", "(sleep 300; echo late) & echo ok"] {
        for descendants in [stead_types::Descendants::Sweep, stead_types::Descendants::Keep] {
            let config = ComputeConfig {
                descendants: Some(descendants),
                ..patient()
            };
            // Kept descendants are not to outlive this case: they get a place of their own.
            let place = match descendants {
                stead_types::Descendants::Sweep => subject.shared().await?,
                stead_types::Descendants::Keep => subject.fresh().await?,
            };
            let result = place.execute(text, config).await?;
            ensure_end(text, &result, 0, None)?;
            ensure_bytes(text, &result.stdout, b"ok\n")?;
        }
    }
    ensure_end("the next command", &place.sh("true").await?, 0, None)?;
    Ok(Verdict::Passed)
}

async fn no_stdin(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place.execute(["cat"], ComputeConfig::new()).await?;
    ensure_end("cat", &result, 0, None)?;
    ensure!(
        result.stdout.is_empty(),
        "cat without standard input printed {}",
        shown(&result)
    );
    let empty = place.execute(["cat"], ComputeConfig::new().stdin("")).await?;
    ensure_end("cat of nothing", &empty, 0, None)?;
    Ok(Verdict::Passed)
}

async fn stdin_bytes(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let bytes: Vec<u8> = (0..=255).collect();
    for input in [b"one\ntwo".to_vec(), bytes, pattern(3 << 20)] {
        let result = place
            .execute(["cat"], ComputeConfig::new().stdin(input.clone()))
            .await?;
        ensure_end("cat", &result, 0, None)?;
        ensure_bytes("what cat gave back", &result.stdout, &input)?;
    }
    Ok(Verdict::Passed)
}

async fn stdin_large(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place
        .execute(["sha256sum"], patient().stdin(pattern(50 << 20)))
        .await?;
    ensure_end("sha256sum", &result, 0, None)?;
    ensure!(
        result.stdout_text().starts_with(PATTERN_50_MIB),
        "another sum: {}",
        shown(&result)
    );
    Ok(Verdict::Passed)
}

async fn early_close(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let input = pattern(5 << 20);
    for (text, output) in [
        ("head -c 10 >/dev/null; echo done", "done\n"),
        ("exec <&-; echo done", "done\n"),
        (":", ""),
        ("sleep 1; echo done", "done\n"),
    ] {
        let result = place
            .execute(text, ComputeConfig::new().stdin(input.clone()))
            .await?;
        ensure_end(text, &result, 0, None)?;
        ensure_bytes(text, &result.stdout, output.as_bytes())?;
    }
    Ok(Verdict::Passed)
}

async fn stream_refused(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let config = ComputeConfig {
        stdin: Some(Stdin::Stream),
        ..ComputeConfig::new()
    };
    match place.execute(["cat"], config).await {
        Err(ExecuteError::Unsupported { key, .. }) if key == "stdin" => Ok(Verdict::Passed),
        other => Err(super::Failure::new(format!(
            "expected Unsupported for stdin, got {other:?}"
        ))),
    }
}
