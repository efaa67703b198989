//! Running one command and saying so.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// Announces and runs a command; anything but success is an error that shows the command line.
pub fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    eprintln!("xtask: {line}");
    let status = command
        .status()
        .with_context(|| format!("could not start: {line}"))?;
    if !status.success() {
        bail!("{line}: {status}");
    }
    Ok(())
}

/// Runs a command and gives its standard output; its standard error is part of the error.
pub fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command
        .output()
        .with_context(|| format!("could not start: {line}"))?;
    if !output.status.success() {
        bail!(
            "{line}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    String::from_utf8(output.stdout).with_context(|| format!("{line}: printed what is not UTF-8"))
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}
