//! Configuration: what an instance is given holds for every command, a command's own keys go on top, and what
//! cannot be honoured is refused.

use super::case::{Case, Failure, Outcome, Verdict, case, ensure};
use super::outcomes::ensure_end;
use super::place::{Place, ensure_bytes, quoted, shown};
use super::subject::Subject;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_types::{
    ComputeConfig, Descendants, ExecuteError, InheritEnv, InvalidInput, Mount, NetworkPolicy, ProvisionError,
    Resources, Timeout,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(
            "1",
            "env of a command merges over that of the instance",
            env_merges
        ),
        case!("1", "workdir of a command replaces that of the instance", workdir),
        case!(
            "1",
            "timeout and output limit of the instance hold, a command's own replace them",
            limits
        ),
        case!(
            "1",
            "descendants of the instance's configuration hold",
            descendants
        ),
        case!(
            "2",
            "an instance's key given to a command is refused",
            instance_keys
        )
        .without_shell(),
        case!(
            "1",
            "a value that breaks a rule is refused at provision",
            bad_values
        )
        .without_shell(),
        case!(
            "1",
            "a working directory that breaks a rule is refused",
            bad_workdir
        ),
        case!("1", "a user that does not exist is refused", bad_user),
        case!("1", "a memory limit is honoured or refused", memory_limit),
        case!("1", "an image is honoured or refused", image).without_shell(),
        case!("1", "an option that nobody knows is refused", unknown_option).without_shell(),
    ]
}

async fn env_merges(subject: &Subject) -> Outcome {
    let config = subject.config.clone().env("CASE_A", "1").env("CASE_B", "2");
    let place = subject.fresh_with(config).await?;
    let text = "echo \"$CASE_A $CASE_B ${CASE_C-unset}\"";
    for (command, expected) in [
        (ComputeConfig::new(), "1 2 unset\n"),
        (
            ComputeConfig::new().env("CASE_B", "3").env("CASE_C", ""),
            "1 3 \n",
        ),
        (ComputeConfig::new(), "1 2 unset\n"),
    ] {
        let result = place.execute(text, command).await?;
        ensure_bytes("the environment", &result.stdout, expected.as_bytes())?;
    }
    Ok(Verdict::Passed)
}

/// The directory that a command of this configuration is in, links resolved.
async fn cwd(place: &Place<'_>, config: ComputeConfig) -> Result<Vec<u8>, Failure> {
    let result = place.execute("pwd -P", config).await?;
    ensure_end("pwd", &result, 0, None)?;
    Ok(result.stdout)
}

async fn real(place: &Place<'_>, path: &Path) -> Result<Vec<u8>, Failure> {
    Ok(place
        .sh_ok(format!("cd {} && pwd -P", quoted(path)))
        .await?
        .into_bytes())
}

async fn workdir(subject: &Subject) -> Outcome {
    let first = subject.shared().await?;
    let default = cwd(&first, ComputeConfig::new()).await?;
    ensure_bytes(
        "the default is the same each time",
        &cwd(&first, ComputeConfig::new()).await?,
        &default,
    )?;
    let path = first.directory().await?;
    let place = subject.fresh_with(subject.config.clone().workdir(&path)).await?;
    // Where places do not share their files it is made; a directory of its own tells.
    let own = real(&place, &path).await?;
    ensure_bytes(
        "that of the instance",
        &cwd(&place, ComputeConfig::new()).await?,
        &own,
    )?;
    ensure_bytes(
        "that of the command",
        &cwd(&place, ComputeConfig::new().workdir("/")).await?,
        b"/\n",
    )?;
    ensure_bytes(
        "that of the instance again",
        &cwd(&place, ComputeConfig::new()).await?,
        &own,
    )?;
    Ok(Verdict::Passed)
}

async fn limits(subject: &Subject) -> Outcome {
    let mut config = subject.config.clone().timeout(Duration::from_secs(2));
    config.max_output_bytes = Some(3);
    config.grace = Some(Duration::from_millis(300));
    let place = subject.fresh_with(config).await?;
    let result = place.execute("sleep 300", ComputeConfig::new()).await?;
    ensure!(
        result.timed_out,
        "the instance's timeout does not hold: {}",
        shown(&result)
    );
    let longer = ComputeConfig {
        timeout: Some(Timeout::Never),
        ..ComputeConfig::new()
    };
    let result = place.execute("sleep 3; echo abcdef", longer).await?;
    ensure_end("a command with its own timeout", &result, 0, None)?;
    ensure_bytes("the instance's output limit", &result.stdout, b"abc")?;
    let wider = ComputeConfig {
        max_output_bytes: Some(4),
        ..ComputeConfig::new()
    };
    let result = place.execute(["printf", "abcdef"], wider).await?;
    ensure_bytes("the command's output limit", &result.stdout, b"abcd")?;
    Ok(Verdict::Passed)
}

async fn descendants(subject: &Subject) -> Outcome {
    let config = ComputeConfig {
        descendants: Some(Descendants::Keep),
        ..subject.config.clone()
    };
    let place = subject.fresh_with(config).await?;
    let text = "sleep 300 >/dev/null 2>&1 & echo $!";
    let alive = |pid: String| format!("kill -0 {pid} 2>/dev/null && echo yes || echo no");
    let kept = place.sh_ok(text).await?;
    let answer = place.sh_ok(alive(kept.trim().to_owned())).await?;
    ensure!(
        answer == "yes\n",
        "the instance keeps descendants, and one is gone"
    );
    let sweep = ComputeConfig {
        descendants: Some(Descendants::Sweep),
        ..ComputeConfig::new()
    };
    let swept = place.execute(text, sweep).await?.stdout_text();
    let answer = place.sh_ok(alive(swept.trim().to_owned())).await?;
    ensure!(answer == "no\n", "the command sweeps descendants, and one lives");
    Ok(Verdict::Passed)
}

async fn instance_keys(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    let mount = Mount {
        host: PathBuf::from("/tmp"),
        place: PathBuf::from("/mnt"),
        read_only: true,
    };
    let resources = Resources {
        pids: Some(10),
        ..Resources::default()
    };
    for (key, config) in [
        ("image", ComputeConfig::new().image("x")),
        (
            "resources",
            ComputeConfig {
                resources,
                ..ComputeConfig::new()
            },
        ),
        ("network", ComputeConfig::new().network(NetworkPolicy::None)),
        (
            "mounts",
            ComputeConfig {
                mounts: vec![mount],
                ..ComputeConfig::new()
            },
        ),
        (
            "detached",
            ComputeConfig {
                detached: true,
                ..ComputeConfig::new()
            },
        ),
        (
            "inherit_env",
            ComputeConfig {
                inherit_env: Some(InheritEnv::None),
                ..ComputeConfig::new()
            },
        ),
        ("options", ComputeConfig::new().option("x", true)),
    ] {
        match place.execute(["true"], config).await {
            Err(ExecuteError::Unsupported { key: named, .. }) if named == key => {}
            other => {
                return Err(Failure::new(format!(
                    "{key}: expected Unsupported, got {other:?}"
                )));
            }
        }
    }
    Ok(Verdict::Passed)
}

async fn bad_values(subject: &Subject) -> Outcome {
    let before = subject.ids().await?;
    let with = |resources| ComputeConfig {
        resources,
        ..subject.config.clone()
    };
    for (what, config) in [
        (
            "cpu 0",
            with(Resources {
                cpu: Some(0.0),
                ..Resources::default()
            }),
        ),
        (
            "memory 1",
            with(Resources {
                memory: Some(1),
                ..Resources::default()
            }),
        ),
        (
            "pids 0",
            with(Resources {
                pids: Some(0),
                ..Resources::default()
            }),
        ),
        ("timeout 0", subject.config.clone().timeout(Duration::ZERO)),
        ("a relative workdir", subject.config.clone().workdir("relative")),
        ("a NUL in workdir", subject.config.clone().workdir("/a\0b")),
        ("a NUL in an env value", subject.config.clone().env("A", "a\0b")),
        ("a NUL in an env name", subject.config.clone().env("A\0B", "")),
        ("= in an env name", subject.config.clone().env("A=B", "")),
        ("an empty env name", subject.config.clone().env("", "")),
    ] {
        match subject.provider.provision(config).await {
            Err(ProvisionError::Invalid { .. }) => {}
            Err(other) => return Err(Failure::from(other).during(&format!("{what}: expected Invalid"))),
            Ok(instance) => {
                subject.adopt(&instance.id);
                return Err(Failure::new(format!(
                    "{what}: expected Invalid, but it was provisioned"
                )));
            }
        }
    }
    let left: Vec<_> = subject.ids().await?.difference(&before).cloned().collect();
    ensure!(left.is_empty(), "what was refused left instances: {left:?}");
    Ok(Verdict::Passed)
}

async fn bad_workdir(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    match place
        .execute(["true"], ComputeConfig::new().workdir("relative"))
        .await
    {
        Err(ExecuteError::Invalid {
            source: InvalidInput::RelativePath { .. },
            ..
        }) => {}
        other => return Err(Failure::new(format!("relative: expected Invalid, got {other:?}"))),
    }
    match place
        .execute(["true"], ComputeConfig::new().workdir("/no/such/directory-here"))
        .await
    {
        Err(ExecuteError::LaunchFailed { .. }) => Ok(Verdict::Passed),
        other => Err(Failure::new(format!(
            "not there: expected LaunchFailed, got {other:?}"
        ))),
    }
}

async fn bad_user(subject: &Subject) -> Outcome {
    let place = subject.shared().await?;
    match place
        .execute(["true"], ComputeConfig::new().user("no-such-user-here"))
        .await
    {
        Err(ExecuteError::LaunchFailed { .. } | ExecuteError::Unsupported { .. }) => {}
        other => return Err(Failure::new(format!("execute: expected an error, got {other:?}"))),
    }
    let before = subject.ids().await?;
    match subject
        .provider
        .provision(subject.config.clone().user("no-such-user-here"))
        .await
    {
        Err(ProvisionError::User { .. } | ProvisionError::Unsupported { .. }) => {}
        Err(other) => return Err(Failure::from(other).during("provision: expected User or Unsupported")),
        Ok(instance) => {
            subject.adopt(&instance.id);
            return Err(Failure::new(
                "provision: expected an error, but it was provisioned",
            ));
        }
    }
    let left: Vec<_> = subject.ids().await?.difference(&before).cloned().collect();
    ensure!(left.is_empty(), "what was refused left instances: {left:?}");
    Ok(Verdict::Passed)
}

/// Fails unless provision refuses the configuration because of `key`.
async fn ensure_refused(subject: &Subject, key: &str, config: ComputeConfig) -> Result<(), Failure> {
    match subject.provider.provision(config).await {
        Err(ProvisionError::Unsupported { key: named, .. }) if named.contains(key) => Ok(()),
        Err(other) => Err(Failure::from(other).during(&format!("{key}: expected Unsupported"))),
        Ok(instance) => {
            subject.adopt(&instance.id);
            Err(Failure::new(format!(
                "{key} is not honoured, and it was provisioned all the same"
            )))
        }
    }
}

async fn memory_limit(subject: &Subject) -> Outcome {
    let resources = Resources {
        memory: Some(64 << 20),
        ..subject.config.resources
    };
    let config = ComputeConfig {
        resources,
        ..subject.config.clone()
    };
    if !subject.facts.honours_memory_limit {
        ensure_refused(subject, "memory", config).await?;
        return Ok(Verdict::Passed);
    }
    let place = subject.fresh_with(config).await?;
    let copy = |size: &str| format!("dd if=/dev/zero of=/dev/null bs={size} count=1 2>/dev/null");
    let small = place.sh(copy("1048576")).await?;
    ensure!(small.success(), "the control does not run: {}", shown(&small));
    if !subject.facts.outlives_memory_limit {
        return ends_at_the_limit(&place, copy("536870912")).await;
    }
    let large = place.sh(copy("536870912")).await?;
    ensure!(!large.success(), "512 MiB were used where 64 MiB are allowed");
    ensure_end("the next command", &place.sh("true").await?, 0, None)?;
    Ok(Verdict::Passed)
}

/// The command has no result, or none of success; and what comes after it is told that the place is gone.
async fn ends_at_the_limit(place: &Place<'_>, command: String) -> Outcome {
    match place.execute(command.as_str(), ComputeConfig::new()).await {
        Err(ExecuteError::Lost { .. }) => {}
        Err(other) => return Err(Failure::from(other).during("expected Lost")),
        Ok(result) => {
            ensure!(!result.success(), "512 MiB were used where 64 MiB are allowed");
            return Ok(Verdict::Passed);
        }
    }
    match place.execute("true", ComputeConfig::new()).await {
        Err(ExecuteError::Lost { .. } | ExecuteError::NoInstance { .. }) => Ok(Verdict::Passed),
        Err(other) => Err(Failure::from(other).during("expected Lost or NoInstance")),
        Ok(_) => Err(Failure::new("a place that was lost runs a command")),
    }
}

async fn image(subject: &Subject) -> Outcome {
    let name = "stead.invalid/no-such-image:none";
    let config = subject.config.clone().image(name);
    if !subject.facts.honours_image {
        ensure_refused(subject, "image", config).await?;
        return Ok(Verdict::Passed);
    }
    let before = subject.ids().await?;
    match subject.provider.provision(config).await {
        Err(ProvisionError::ImageMissing { image, .. } | ProvisionError::PullFailed { image, .. }) => {
            ensure!(image == name, "the error names {image:?}, not {name:?}");
        }
        Err(other) => return Err(Failure::from(other).during("expected ImageMissing or PullFailed")),
        Ok(instance) => {
            subject.adopt(&instance.id);
            return Err(Failure::new("an image that does not exist was provisioned"));
        }
    }
    let left: Vec<_> = subject.ids().await?.difference(&before).cloned().collect();
    ensure!(left.is_empty(), "what was refused left instances: {left:?}");
    Ok(Verdict::Passed)
}

async fn unknown_option(subject: &Subject) -> Outcome {
    match subject
        .provider
        .provision(subject.config.clone().option("no_such_option_here", 1))
        .await
    {
        Err(ProvisionError::Option { option, .. }) if option.contains("no_such_option_here") => {
            Ok(Verdict::Passed)
        }
        Err(other) => Err(Failure::from(other).during("expected Option")),
        Ok(instance) => {
            subject.adopt(&instance.id);
            Err(Failure::new("an unknown option was ignored"))
        }
    }
}
