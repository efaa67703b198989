//! Arguments and environment reach the program verbatim; what cannot is refused before anything starts.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::outcomes::ensure_end;
use super::place::{ensure_bytes, quoted};
use super::subject::Subject;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use stead_types::{CommandLine, ComputeConfig, ExecuteError, InvalidInput};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!("9.9", "arguments are verbatim", arguments),
        case!("9.9", "empty arguments are arguments", empty_arguments),
        case!("9.9", "no shell sees an argument vector", no_shell_expansion),
        case!("9.9", "shell text is verbatim", shell_text),
        case!("9.9", "env values are verbatim", env_values),
        case!(
            "9.9",
            "env names that no shell takes reach the program",
            env_names
        ),
        case!(
            "9.10",
            "an argument that looks like a command stays one argument",
            injection
        ),
        case!(
            "9.9",
            "a program's name with spaces and quotes is found",
            program_name
        ),
        case!("3", "a NUL is an error before anything starts", nul),
        case!("3", "an env name that is empty or has = is an error", env_name),
        case!("3", "an empty command is an error", empty_command).without_shell(),
    ]
}

/// What tends to be changed on its way.
fn awkward() -> Vec<OsString> {
    let long: String = "0123456789abcdef' \"$x\n"
        .chars()
        .cycle()
        .take(100 << 10)
        .collect();
    let mut values: Vec<OsString> = [
        "plain",
        "",
        " ",
        "a b",
        "  two  spaces  ",
        "'",
        "\"",
        "'\"'\"'",
        "\\",
        "\\n",
        "a\nb\n",
        "\n",
        "\r\n",
        "\t",
        "$HOME",
        "${HOME}",
        "$(id)",
        "`id`",
        "$$",
        "!",
        "!!",
        "*",
        "?",
        "[a]",
        "~",
        "#",
        "a;b",
        "a&b",
        "a|b",
        "a>b",
        "%s",
        "%",
        "=",
        "a=b",
        "{{x}}",
        "\u{1f980}",
        "\u{e9}e\u{301}",
        "\u{feff}bom",
        "\u{7f}\u{1b}[0m",
    ]
    .map(OsString::from)
    .to_vec();
    values.push(OsString::from_vec(b"\xff\xfe\x80a\xc3".to_vec()));
    values.push(OsString::from_vec((1..=255).collect()));
    values.push(OsString::from(long));
    values
}

async fn arguments(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for value in awkward() {
        let mut argv = ["sh", "-c", "printf %s \"$1\"; printf %s \"$#\" >&2", "sh"]
            .map(OsString::from)
            .to_vec();
        argv.push(value.clone());
        let result = place.execute(argv, ComputeConfig::new()).await?;
        ensure_bytes("the argument", &result.stdout, value.as_bytes())?;
        ensure_bytes("the number of arguments", &result.stderr, b"1")?;
    }
    Ok(Verdict::Passed)
}

async fn empty_arguments(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let argv = ["sh", "-c", "printf '<%s>' \"$@\"", "sh", "", "a", "", "b c", ""];
    let result = place.execute(argv, ComputeConfig::new()).await?;
    ensure_bytes("the arguments", &result.stdout, b"<><a><><b c><>")?;
    Ok(Verdict::Passed)
}

async fn no_shell_expansion(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place
        .execute(["echo", "$HOME", "*", "a  b", ">x"], ComputeConfig::new())
        .await?;
    ensure_bytes("what echo got", &result.stdout, b"$HOME * a  b >x\n")?;
    Ok(Verdict::Passed)
}

async fn shell_text(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let result = place
        .sh("printf '%s' 'a  b\n\"c\" $HOME \u{1f980}'; echo $((2 + 2))")
        .await?;
    ensure_bytes(
        "what the shell printed",
        &result.stdout,
        "a  b\n\"c\" $HOME \u{1f980}4\n".as_bytes(),
    )?;
    let long = "x".repeat(100 << 10);
    let result = place.sh(format!("printf %s {long}")).await?;
    ensure_bytes("100 KiB of shell text", &result.stdout, long.as_bytes())?;
    Ok(Verdict::Passed)
}

async fn env_values(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for value in awkward() {
        let config = ComputeConfig::new().env("CASE_VALUE", value.clone());
        let result = place
            .execute(
                "printf %s \"$CASE_VALUE\"; printf %s \"${CASE_VALUE+set}\" >&2",
                config,
            )
            .await?;
        ensure_bytes("the value", &result.stdout, value.as_bytes())?;
        ensure_bytes("whether it is set", &result.stderr, b"set")?;
    }
    Ok(Verdict::Passed)
}

async fn env_names(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for name in ["case.dotted-name", "1CASE", "CASE NAME", "CASE\u{e9}"] {
        let result = place
            .execute(["env"], ComputeConfig::new().env(name, "a value"))
            .await?;
        ensure_end("env", &result, 0, None)?;
        let line = format!("{name}=a value");
        let found = result
            .stdout
            .split(|byte| *byte == b'\n')
            .any(|other| other == line.as_bytes());
        ensure!(found, "the environment has no {line:?}");
    }
    Ok(Verdict::Passed)
}

async fn injection(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let marker = place.directory().await?.join("marker");
    let touch = format!(": > {}", marker.display());
    // The control: as shell text it does what it threatens to do.
    place.sh_ok(touch.as_str()).await?;
    ensure!(place.exists(&marker).await?, "the control made no marker");
    place.sh_ok(format!("rm {}", quoted(&marker))).await?;
    for value in [
        format!("a; {touch}"),
        format!("$({touch})"),
        format!("`{touch}`"),
        format!("'; {touch}; '"),
        format!("\"; {touch}; \""),
        format!("a\n{touch}\n"),
        format!("&& {touch}"),
        format!("| {touch}"),
    ] {
        let result = place
            .execute(["printf", "%s", value.as_str()], ComputeConfig::new())
            .await?;
        ensure_bytes("the argument", &result.stdout, value.as_bytes())?;
        let config = ComputeConfig::new().env("CASE_VALUE", value.as_str());
        let result = place.execute("printf %s \"$CASE_VALUE\"", config).await?;
        ensure_bytes("the env value", &result.stdout, value.as_bytes())?;
        ensure!(!place.exists(&marker).await?, "{value:?} was run as a command");
    }
    Ok(Verdict::Passed)
}

async fn program_name(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let program = place.directory().await?.join("a 'b' \"c\" $d");
    place
        .sh_ok(format!(
            "printf '#!/bin/sh\\necho ran\\n' > {0}; chmod 755 {0}",
            quoted(&program)
        ))
        .await?;
    let result = place
        .execute(vec![program.into_os_string()], ComputeConfig::new())
        .await?;
    ensure_end("the program", &result, 0, None)?;
    ensure_bytes("its output", &result.stdout, b"ran\n")?;
    Ok(Verdict::Passed)
}

async fn nul(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let marker = place.directory().await?.join("marker");
    let touch = format!(": > {}", marker.display());
    let argv = |last: &str| CommandLine::from(["sh", "-c", touch.as_str(), "sh", last]);
    let plain = ComputeConfig::new;
    for (what, command, config) in [
        ("an argument", argv("a\0b"), plain()),
        (
            "the program",
            CommandLine::from(["sh\0", "-c", touch.as_str()]),
            plain(),
        ),
        (
            "shell text",
            CommandLine::Shell(format!("{touch}; echo a\0b")),
            plain(),
        ),
        ("an env name", argv("a"), plain().env("CASE\0A", "")),
        ("an env value", argv("a"), plain().env("CASE_A", "a\0b")),
        ("workdir", argv("a"), plain().workdir("/\0")),
        ("user", argv("a"), plain().user("root\0")),
    ] {
        match place.execute(command, config).await {
            Err(ExecuteError::Invalid {
                source: InvalidInput::Nul { .. },
                ..
            }) => {}
            other => {
                return Err(Failure::new(format!(
                    "a NUL in {what}: expected Invalid, got {other:?}"
                )));
            }
        }
        ensure!(
            !place.exists(&marker).await?,
            "a NUL in {what}: the command was started"
        );
    }
    // The control: without a NUL the same command makes its marker.
    place.execute(argv("a"), plain()).await?;
    ensure!(place.exists(&marker).await?, "the control made no marker");
    Ok(Verdict::Passed)
}

async fn env_name(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let marker = place.directory().await?.join("marker");
    let touch = format!(": > {}", marker.display());
    for name in ["", "=", "A=B", "=A"] {
        match place
            .execute(touch.as_str(), ComputeConfig::new().env(OsStr::new(name), "x"))
            .await
        {
            Err(ExecuteError::Invalid {
                source: InvalidInput::EnvName { .. },
                ..
            }) => {}
            other => return Err(Failure::new(format!("{name:?}: expected Invalid, got {other:?}"))),
        }
        ensure!(!place.exists(&marker).await?, "{name:?}: the command was started");
    }
    Ok(Verdict::Passed)
}

async fn empty_command(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    for command in [
        CommandLine::Argv(Vec::new()),
        CommandLine::from([""]),
        CommandLine::from(["", "a"]),
    ] {
        match place.execute(command.clone(), ComputeConfig::new()).await {
            Err(ExecuteError::Invalid {
                source: InvalidInput::EmptyCommand,
                ..
            }) => {}
            other => {
                return Err(Failure::new(format!(
                    "{command:?}: expected Invalid, got {other:?}"
                )));
            }
        }
    }
    Ok(Verdict::Passed)
}
