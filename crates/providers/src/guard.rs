//! The guard: one small process for each owner, which outlives it and removes the containers and folders
//! that it left. It holds the reading end of a pipe; when the owner ends, by whatever signal, the pipe ends.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is to be removed when this process ends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Charge {
    kind: &'static str,
    first: Vec<u8>,
    second: Vec<u8>,
}

#[derive(Default)]
struct State {
    charges: BTreeSet<Charge>,
    process: Option<(Child, ChildStdin)>,
}

static STATE: Mutex<State> = Mutex::new(State {
    charges: BTreeSet::new(),
    process: None,
});

/// Whatever the guard was told about one instance. Dropping it changes nothing: what nobody has seen to be gone is
/// the guard's when this process ends.
#[derive(Debug)]
pub struct Guarded(Vec<Charge>);

impl Guarded {
    /// The instance is gone.
    pub fn release(self) {
        let mut state = lock();
        for charge in &self.0 {
            state.charges.remove(charge);
            // A guard that cannot be told removes something that is gone already, which does no harm.
            let _ = tell(&mut state, "drop", charge);
        }
    }
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Guards an instance's folder, and its container on an engine that listens at `engine`.
pub fn guard(supervisor: &Path, folder: &Path, container: Option<(&Path, &str)>) -> io::Result<Guarded> {
    let mut charges = Vec::new();
    if let Some((engine, name)) = container {
        let first = engine.as_os_str().as_bytes().to_vec();
        charges.push(Charge {
            kind: "container",
            first,
            second: name.as_bytes().to_vec(),
        });
    }
    charges.push(Charge {
        kind: "directory",
        first: folder.as_os_str().as_bytes().to_vec(),
        second: Vec::new(),
    });
    let mut state = lock();
    state.charges.extend(charges.iter().cloned());
    let told = charges.iter().try_for_each(|charge| {
        ensure(&mut state, supervisor)?;
        tell(&mut state, "add", charge)
    });
    // A guard that was killed is started again, and told everything.
    if told.is_err() {
        state.process = None;
        ensure(&mut state, supervisor)?;
    }
    Ok(Guarded(charges))
}

/// Starts the guard if there is none, and tells it all that is guarded.
fn ensure(state: &mut State, supervisor: &Path) -> io::Result<()> {
    if let Some((child, _)) = &mut state.process
        && child.try_wait()?.is_none()
    {
        return Ok(());
    }
    let mut command = Command::new(supervisor);
    command.arg("guard").env_clear().current_dir("/");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    state.process = Some((child, stdin));
    let charges: Vec<Charge> = state.charges.iter().cloned().collect();
    charges.iter().try_for_each(|charge| tell(state, "add", charge))
}

fn tell(state: &mut State, verb: &str, charge: &Charge) -> io::Result<()> {
    let Some((_, stdin)) = &mut state.process else {
        return Ok(());
    };
    let operation = format!("{verb}-{}", charge.kind).into_bytes();
    let record = [&operation[..], &charge.first, &charge.second]
        .map(|field| [field, &[0]].concat())
        .concat();
    stdin.write_all(&record)
}
