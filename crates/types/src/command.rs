//! What is executed, and the rules that hold for every name and argument before anything starts.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A command: text for a shell, or an argument vector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandLine {
    /// Run by the place's `/bin/sh -c`.
    Shell(String),
    /// Executed as is, without a shell. The first is looked up in the place's `PATH` unless it has a slash.
    Argv(Vec<OsString>),
}

impl From<&str> for CommandLine {
    fn from(text: &str) -> Self {
        Self::Shell(text.to_owned())
    }
}

impl From<String> for CommandLine {
    fn from(text: String) -> Self {
        Self::Shell(text)
    }
}

impl<A: Into<OsString>, const N: usize> From<[A; N]> for CommandLine {
    fn from(argv: [A; N]) -> Self {
        Self::Argv(argv.into_iter().map(Into::into).collect())
    }
}

impl<A: Into<OsString>> From<Vec<A>> for CommandLine {
    fn from(argv: Vec<A>) -> Self {
        Self::Argv(argv.into_iter().map(Into::into).collect())
    }
}

/// Input that cannot be handed to a program. Nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInput {
    /// The argument vector is empty, or its first entry is.
    #[error("the command is empty")]
    EmptyCommand,
    /// A NUL byte, which ends a string for the system.
    #[error("{what} has a NUL byte")]
    Nul {
        /// Which argument, name, value or path.
        what: String,
    },
    /// An environment name that is empty or has an `=`.
    #[error("the environment name {name:?} is empty or has an '='")]
    EnvName {
        /// The name.
        name: String,
    },
    /// A working directory that is not absolute.
    #[error("the path {path:?} is not absolute")]
    RelativePath {
        /// The path.
        path: String,
    },
    /// A number outside its range.
    #[error("{what} is out of range: {reason}")]
    OutOfRange {
        /// Which field.
        what: String,
        /// The range.
        reason: String,
    },
    /// More than the protocol carries.
    #[error("the command with its environment takes {bytes} bytes, at most {limit} are possible")]
    TooLarge {
        /// What it takes.
        bytes: usize,
        /// What is possible.
        limit: usize,
    },
}

/// Refuses a NUL byte; `what` names the value in the error.
pub fn check_nul(what: &str, value: &OsStr) -> Result<(), InvalidInput> {
    if value.as_bytes().contains(&0) {
        return Err(InvalidInput::Nul {
            what: what.to_owned(),
        });
    }
    Ok(())
}

impl CommandLine {
    /// Checks what no place can execute: an empty command or a NUL byte.
    pub fn check(&self) -> Result<(), InvalidInput> {
        match self {
            CommandLine::Shell(text) => check_nul("the shell text", OsStr::new(text)),
            CommandLine::Argv(argv) => {
                if argv.first().is_none_or(|program| program.is_empty()) {
                    return Err(InvalidInput::EmptyCommand);
                }
                argv.iter()
                    .enumerate()
                    .try_for_each(|(at, arg)| check_nul(&format!("argument {at}"), arg))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_shell_and_a_list_is_argv() {
        assert_eq!(CommandLine::from("a b"), CommandLine::Shell("a b".into()));
        assert_eq!(
            CommandLine::from(["a", "b"]),
            CommandLine::Argv(vec!["a".into(), "b".into()])
        );
    }

    #[test]
    fn what_no_program_can_get_is_refused() {
        assert_eq!(CommandLine::from(["a", "b"]).check(), Ok(()));
        assert!(matches!(
            CommandLine::from(["a", "b\0"]).check(),
            Err(InvalidInput::Nul { .. })
        ));
        assert!(matches!(
            CommandLine::from("a\0").check(),
            Err(InvalidInput::Nul { .. })
        ));
        assert_eq!(CommandLine::from([""]).check(), Err(InvalidInput::EmptyCommand));
        assert_eq!(
            CommandLine::Argv(Vec::new()).check(),
            Err(InvalidInput::EmptyCommand)
        );
    }
}
