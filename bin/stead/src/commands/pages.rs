//! What the definition of the command line is turned into: completions, manual pages and help.

use super::show::unprintable;
use crate::args::{Cli, Man};
use crate::failure::Failure;
use crate::output::print;
use crate::usage;
use clap::{Command, CommandFactory, Parser};
use std::ffi::OsString;
use std::path::Path;

/// `stead completions`.
pub fn completions(shell: clap_complete::Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "stead", &mut text);
    print(String::from_utf8_lossy(&text)).map_err(unprintable)?;
    Ok(0)
}

/// `stead man`.
pub fn man(man: &Man) -> Result<u8, Failure> {
    if let Some(folder) = &man.dir {
        let written = std::fs::create_dir_all(folder).and_then(|()| write_pages(&root(), folder));
        return match written {
            Ok(()) => Ok(0),
            Err(error) => {
                let message = format!("the pages could not be written to {}: {error}", folder.display());
                let remedy = "Give --dir a directory that you may write to.";
                Err(Failure::new("output_failed", message, remedy))
            }
        };
    }
    let mut text = Vec::new();
    page(&find(&man.command)?)
        .render(&mut text)
        .map_err(unprintable)?;
    print(String::from_utf8_lossy(&text)).map_err(unprintable)?;
    Ok(0)
}

/// `stead help`: what `--help` after the command prints.
pub fn help(names: &[String]) -> Result<u8, Failure> {
    find(names)?;
    let args: Vec<OsString> = ["stead"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .chain(["--help"])
        .map(OsString::from)
        .collect();
    match Cli::try_parse_from(&args) {
        Err(answer) => Ok(usage::report(answer, &args)),
        // `--help` is always answered.
        Ok(_) => Ok(0),
    }
}

/// The whole definition, in which each command knows its full name.
fn root() -> Command {
    let mut root = Cli::command();
    root.build();
    root
}

/// The command that these names lead to; without any the program itself.
fn find(names: &[String]) -> Result<Command, Failure> {
    let mut found = root();
    for name in names {
        found = match found.find_subcommand(name) {
            Some(next) => next.clone(),
            None => return Err(unknown(&found, name)),
        };
    }
    Ok(found)
}

fn unknown(parent: &Command, name: &str) -> Failure {
    let full = parent.get_bin_name().unwrap_or("stead");
    let message = format!("there is no command `{full} {name}`");
    let names: Vec<&str> = parent.get_subcommands().map(Command::get_name).collect();
    let remedy = match names.is_empty() {
        true => format!("`{full}` has no commands of its own."),
        false => format!("`{full}` has {}.", names.join(", ")),
    };
    Failure::usage(message, remedy)
}

fn page(command: &Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command.clone()).source(concat!("stead ", env!("CARGO_PKG_VERSION")))
}

/// One file for each command, all in one folder, as `man` expects it.
fn write_pages(command: &Command, folder: &Path) -> std::io::Result<()> {
    page(command).generate_to(folder)?;
    command
        .get_subcommands()
        .try_for_each(|command| write_pages(command, folder))
}
