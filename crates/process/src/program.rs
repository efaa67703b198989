//! From a [`CommandSpec`] to what `execve` takes.

use crate::user::{self, User};
use std::ffi::CString;
use stead_wire::{CommandSpec, Program};

/// Where an instance's commands start from, unless they say otherwise.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// The environment that every command gets.
    pub env: Vec<(Vec<u8>, Vec<u8>)>,
    /// The working directory.
    pub cwd: Vec<u8>,
    /// The user; `None` is ours.
    pub user: Option<String>,
}

/// All that is needed to launch, owned.
#[derive(Debug)]
pub struct Prepared {
    pub candidates: Vec<CString>,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub cwd: CString,
    pub user: Option<User>,
}

/// Why a description cannot be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareError {
    /// It breaks a rule that the host has to check: an empty command, a NUL byte, `=` in a name.
    Invalid,
    /// The user is not known here.
    User,
}

/// The search path of a place that has none, as the C library's.
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Resolves the user, merges the environment and finds the candidates for the program.
pub fn prepare(spec: &CommandSpec, place: &Place) -> Result<Prepared, PrepareError> {
    let argv: Vec<&[u8]> = match &spec.program {
        Program::Shell(text) => vec![b"/bin/sh", b"-c", text],
        Program::Argv(argv) => argv.iter().map(Vec::as_slice).collect(),
    };
    let program = *argv
        .first()
        .filter(|program| !program.is_empty())
        .ok_or(PrepareError::Invalid)?;
    let user = match spec.user.as_deref().or(place.user.as_deref()) {
        Some(name) => Some(user::resolve(name).map_err(|_| PrepareError::User)?),
        None => None,
    };
    let env = merge_env(spec, place, user.as_ref())?;
    let path = env
        .iter()
        .find(|(name, _)| name == b"PATH")
        .map_or(DEFAULT_PATH, |(_, value)| value);
    Ok(Prepared {
        candidates: candidates(program, path)?,
        argv: argv.into_iter().map(c_string).collect::<Result<_, _>>()?,
        env: env
            .into_iter()
            .map(|(n, v)| c_string(&[&n, &b"="[..], &v].concat()))
            .collect::<Result<_, _>>()?,
        cwd: c_string(spec.cwd.as_deref().unwrap_or(&place.cwd))?,
        user,
    })
}

type Env = Vec<(Vec<u8>, Vec<u8>)>;

fn merge_env(spec: &CommandSpec, place: &Place, user: Option<&User>) -> Result<Env, PrepareError> {
    let mut env = place.env.clone();
    if let Some(user) = user {
        set(&mut env, b"HOME", user.home.as_bytes());
    }
    if spec.tty.is_some() && !env.iter().any(|(name, _)| name == b"TERM") {
        set(&mut env, b"TERM", b"xterm-256color");
    }
    for (name, value) in &spec.env {
        if name.is_empty() || name.contains(&b'=') {
            return Err(PrepareError::Invalid);
        }
        set(&mut env, name, value);
    }
    Ok(env)
}

fn set(env: &mut Env, name: &[u8], value: &[u8]) {
    match env.iter_mut().find(|(known, _)| known == name) {
        Some((_, slot)) => *slot = value.to_vec(),
        None => env.push((name.to_vec(), value.to_vec())),
    }
}

fn candidates(program: &[u8], path: &[u8]) -> Result<Vec<CString>, PrepareError> {
    if program.contains(&b'/') {
        return Ok(vec![c_string(program)?]);
    }
    path.split(|byte| *byte == b':')
        // An empty entry is the working directory.
        .map(|dir| if dir.is_empty() { &b"."[..] } else { dir })
        .map(|dir| c_string(&[dir, b"/", program].concat()))
        .collect()
}

fn c_string(bytes: &[u8]) -> Result<CString, PrepareError> {
    CString::new(bytes).map_err(|_| PrepareError::Invalid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_wire::{Descendants, StdinMode};

    fn spec(program: Program) -> CommandSpec {
        CommandSpec {
            program,
            cwd: None,
            env: vec![(b"B".to_vec(), b"2".to_vec())],
            user: None,
            stdin: StdinMode::Empty,
            tty: None,
            timeout_ms: None,
            grace_ms: 0,
            descendants: Descendants::Sweep,
            output_limit: None,
        }
    }

    fn place() -> Place {
        let pair = |n: &[u8], v: &[u8]| (n.to_vec(), v.to_vec());
        Place {
            env: vec![pair(b"PATH", b"/a::/b"), pair(b"B", b"1")],
            cwd: b"/w".to_vec(),
            user: None,
        }
    }

    #[test]
    fn a_name_is_looked_up_and_a_path_is_not() {
        let argv = |program: &[u8]| Program::Argv(vec![program.to_vec()]);
        let found = prepare(&spec(argv(b"x")), &place()).unwrap();
        assert_eq!(
            found.candidates,
            [c"/a/x".to_owned(), c"./x".to_owned(), c"/b/x".to_owned()]
        );
        assert_eq!(found.env, [c"PATH=/a::/b".to_owned(), c"B=2".to_owned()]);
        assert_eq!(found.cwd, c"/w".to_owned());
        assert_eq!(
            prepare(&spec(argv(b"./x")), &place()).unwrap().candidates,
            [c"./x".to_owned()]
        );
    }

    #[test]
    fn what_cannot_be_executed_is_refused() {
        for argv in [vec![], vec![b"".to_vec()], vec![b"a\0".to_vec()]] {
            let refused = prepare(&spec(Program::Argv(argv)), &place());
            assert_eq!(refused.unwrap_err(), PrepareError::Invalid);
        }
        let mut bad = spec(Program::Shell(b"true".to_vec()));
        bad.env = vec![(b"A=".to_vec(), Vec::new())];
        assert_eq!(prepare(&bad, &place()).unwrap_err(), PrepareError::Invalid);
        bad.env.clear();
        assert!(prepare(&bad, &place()).is_ok());
        bad.user = Some("no-such-user-here".into());
        assert_eq!(prepare(&bad, &place()).unwrap_err(), PrepareError::User);
    }
}
