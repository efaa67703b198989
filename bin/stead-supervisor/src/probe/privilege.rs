//! Getting more rights than one was started with.

use super::{Attempt, Outcome, Targets};
use rustix::thread::CapabilitySet;
use std::fs;
use std::io;

pub fn attempts(_: &Targets) -> Vec<Attempt> {
    vec![
        ("gain privileges by executing", new_privileges()),
        ("trace the first process", traced()),
        ("regain the capability to administrate", capability()),
        ("enter a user namespace", namespace()),
        ("change the system's settings", setting()),
        ("set a cgroup's release agent", release_agent()),
    ]
}

fn new_privileges() -> Outcome {
    match rustix::thread::no_new_privs() {
        Ok(true) => Outcome::Refused("no_new_privs holds".to_owned()),
        Ok(false) => Outcome::Reached(
            "no_new_privs does not hold: a setuid program gives its owner's rights".to_owned(),
        ),
        Err(error) => Outcome::Unknown(error.to_string()),
    }
}

/// Our parent is the supervisor, or stands where it stands.
fn traced() -> Outcome {
    stead_sys::attempt_ptrace(1).into()
}

fn capability() -> Outcome {
    let Ok(mut sets) = rustix::thread::capabilities(None) else {
        return Outcome::Unknown("the capabilities cannot be read".to_owned());
    };
    sets.permitted |= CapabilitySet::SYS_ADMIN;
    sets.effective |= CapabilitySet::SYS_ADMIN;
    rustix::thread::set_capabilities(None, sets)
        .map_err(io::Error::from)
        .into()
}

/// In a child, so that the attempts after it are made from here.
fn namespace() -> Outcome {
    match stead_sys::fork_single_threaded() {
        Ok(stead_sys::Forked::Child) => {
            let entered = stead_sys::enter_user_namespace();
            stead_sys::exit_now(entered.err().and_then(|error| error.raw_os_error()).unwrap_or(0))
        }
        Ok(stead_sys::Forked::Parent { child }) => {
            let pid = rustix::process::Pid::from_raw(child);
            match rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()) {
                Ok(Some((_, status))) => match status.exit_status() {
                    Some(0) => Outcome::Reached("a user namespace with all rights was entered".to_owned()),
                    Some(errno) => Outcome::Refused(io::Error::from_raw_os_error(errno).to_string()),
                    None => Outcome::Refused("it was killed for it".to_owned()),
                },
                Ok(None) | Err(_) => Outcome::Unknown("its end was not seen".to_owned()),
            }
        }
        Err(error) => Outcome::Unknown(error.to_string()),
    }
}

/// Opened and not written.
fn setting() -> Outcome {
    let opened = fs::File::options()
        .write(true)
        .open("/proc/sys/kernel/core_pattern");
    opened.map(drop).into()
}

/// The way out that containers once had: a program of the host that a cgroup starts when it is empty.
fn release_agent() -> Outcome {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let writable = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .find_map(|fields| {
            let [_, at, "cgroup", ..] = fields[..] else {
                return None;
            };
            let agent = std::path::Path::new(at).join("release_agent");
            fs::File::options()
                .write(true)
                .open(agent)
                .ok()
                .map(|_| at.to_owned())
        });
    match writable {
        Some(at) => Outcome::Reached(format!("{at}/release_agent can be written")),
        None => Outcome::Refused("no release_agent can be written".to_owned()),
    }
}
