//! The table of outcomes: codes, signals, what cannot be executed, a place without a shell.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::place::{Place, quoted, shown};
use super::subject::Subject;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stead_types::{CommandLine, ComputeConfig, ExecResult, ExecuteError};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("3", "an exit code is passed on", exit_codes),
        case!(
            "3",
            "a signal from the program itself is 128 and its number",
            own_signal
        ),
        case!(
            "3",
            "a signal from another process is 128 and its number",
            foreign_signal
        ),
        case!(
            "9.3",
            "a program's own 124, 137 and 143 are no timeout",
            own_high_codes
        ),
        case!(
            "9.3",
            "TERM and KILL by the program's own hand are no timeout",
            own_term_and_kill
        ),
        case!("3", "a program that is not found is 127 and named", not_found).without_shell(),
        case!(
            "3",
            "a program that is not executable is 126 and named",
            not_executable
        ),
        case!(
            "3",
            "a command that the shell does not find is the shell's 127",
            shell_not_found
        ),
        case!(
            "9.14",
            "shell text in a place without a shell is a clear error",
            no_shell
        )
        .without_shell(),
    ]
}

/// Fails unless the program ended by itself in exactly this way.
pub(super) fn ensure_end(
    what: &str,
    result: &ExecResult,
    code: i32,
    signal: Option<i32>,
) -> Result<(), Failure> {
    let same = result.exit_code == Some(code) && result.signal == signal && !result.timed_out;
    ensure!(
        same,
        "{what}: expected exit_code {code}, signal {signal:?}, got {}",
        shown(result)
    );
    Ok(())
}

async fn exit_codes(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for code in [0, 1, 3, 42, 126, 127, 128, 255] {
        let text = format!("exit {code}");
        ensure_end(&text, &place.sh(text.as_str()).await?, code, None)?;
    }
    ensure_end(
        "argv",
        &place
            .execute(["sh", "-c", "exit 9"], ComputeConfig::new())
            .await?,
        9,
        None,
    )?;
    Ok(Verdict::Passed)
}

async fn own_signal(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for (name, signal) in [("HUP", 1), ("INT", 2), ("USR1", 10), ("ALRM", 14)] {
        let text = format!("kill -{name} $$; sleep 300");
        ensure_end(&text, &place.sh(text.as_str()).await?, 128 + signal, Some(signal))?;
    }
    Ok(Verdict::Passed)
}

async fn foreign_signal(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for (name, signal) in [("TERM", 15), ("KILL", 9)] {
        let pid = place.directory().await?.join("pid");
        let temporary = format!("{}.new", pid.display());
        // Renamed, so that nobody reads half a number.
        let text = format!(
            "echo $$ > {temporary}; mv {temporary} {}; exec sleep 300",
            pid.display()
        );
        let victim = place.execute(text, ComputeConfig::new());
        let killer = async {
            place.until_exists(&pid).await?;
            place.sh_ok(format!("kill -{name} $(cat {})", quoted(&pid))).await
        };
        let (result, killed) = tokio::join!(victim, killer);
        killed?;
        ensure_end(
            &format!("kill -{name} from outside"),
            &result?,
            128 + signal,
            Some(signal),
        )?;
    }
    Ok(Verdict::Passed)
}

async fn own_high_codes(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for code in [124, 137, 143] {
        let text = format!("exit {code}");
        ensure_end(&text, &place.sh(text.as_str()).await?, code, None)?;
    }
    Ok(Verdict::Passed)
}

async fn own_term_and_kill(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for (name, signal) in [("TERM", 15), ("KILL", 9)] {
        let text = format!("kill -{name} $$; sleep 300");
        ensure_end(&text, &place.sh(text.as_str()).await?, 128 + signal, Some(signal))?;
    }
    Ok(Verdict::Passed)
}

async fn not_found(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for program in ["no-such-program-here", "/no/such/program-here"] {
        let result = place.execute([program, "x"], ComputeConfig::new()).await?;
        ensure_end(program, &result, 127, None)?;
        ensure!(
            result.stderr_text().contains(program),
            "stderr does not name {program}: {}",
            shown(&result)
        );
    }
    Ok(Verdict::Passed)
}

async fn not_executable(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let directory = place.directory().await?;
    let file = directory.join("plain-file");
    place
        .sh_ok(format!("echo 'echo ran' > {0}; chmod 644 {0}", quoted(&file)))
        .await?;
    ensure_cannot_execute(&place, &file).await?;
    ensure_cannot_execute(&place, &directory).await?;
    // The control: the same file runs as soon as it may.
    place
        .sh_ok(format!(
            "echo '#!/bin/sh' > {0}; echo 'echo ran' >> {0}; chmod 755 {0}",
            quoted(&file)
        ))
        .await?;
    let result = place
        .execute(vec![file.into_os_string()], ComputeConfig::new())
        .await?;
    ensure!(
        result.success() && result.stdout == b"ran\n",
        "the control does not run: {}",
        shown(&result)
    );
    Ok(Verdict::Passed)
}

async fn ensure_cannot_execute(place: &Place<'_>, path: &Path) -> Result<(), Failure> {
    let result = place
        .execute(vec![OsString::from(path)], ComputeConfig::new())
        .await?;
    ensure_end(&path.display().to_string(), &result, 126, None)?;
    let name = path.as_os_str().as_bytes();
    let named = result.stderr.windows(name.len()).any(|window| window == name);
    ensure!(named, "stderr does not name {path:?}: {}", shown(&result));
    Ok(())
}

async fn shell_not_found(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place.sh("no-such-program-here").await?;
    ensure_end("shell text", &result, 127, None)?;
    ensure!(
        result.stderr_text().contains("no-such-program-here"),
        "not named: {}",
        shown(&result)
    );
    Ok(Verdict::Passed)
}

async fn no_shell(subject: &Subject) -> Outcome {
    let Some(config) = &subject.without_shell else {
        return Verdict::skipped("the test gave no configuration for a place without a shell");
    };
    let place = subject.fresh_with(config.clone()).await?;
    // The control: the place takes commands, it only has no shell.
    let result = place
        .execute(["no-such-program-here"], ComputeConfig::new())
        .await?;
    ensure_end("argv", &result, 127, None)?;
    match place
        .execute(CommandLine::Shell("echo hi".to_owned()), ComputeConfig::new())
        .await
    {
        Err(ExecuteError::NoShell { instance }) => {
            ensure!(
                instance == place.id,
                "the error is about {instance}, not about {}",
                place.id
            );
            Ok(Verdict::Passed)
        }
        Err(other) => Err(Failure::from(other).during("expected NoShell")),
        Ok(result) => Err(Failure::new(format!("expected NoShell, got {}", shown(&result)))),
    }
}
