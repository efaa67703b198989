//! What in a configuration weakens the isolation, and which axes it takes away.

use super::capability;
use super::options::{NetworkMode, Options, SecurityOpt};
use super::plan::GrantedMount;
use crate::grants;
use std::path::PathBuf;
use stead_types::Axis;

/// One thing that needs consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weakening {
    /// The option or key, with its value where that is what matters.
    pub option: String,
    /// What is then known not to hold.
    pub axes: &'static [Axis],
}

/// Everything in the options and the mounts that needs consent. `sockets` are those of engines.
pub fn weakenings(options: &Options, mounts: &[GrantedMount], sockets: &[PathBuf]) -> Vec<Weakening> {
    let mut found = Vec::new();
    let mut add = |option: String, axes| found.push(Weakening { option, axes });
    if options.privileged {
        add("privileged".to_owned(), &Axis::ALL);
    }
    match &options.network_mode {
        Some(NetworkMode::Host) => add("network_mode=host".to_owned(), &[Axis::NetworkRestricted]),
        // Whatever else is attached to it can be reached.
        Some(NetworkMode::Named(name)) => add(format!("network_mode={name}"), &[Axis::NetworkRestricted]),
        Some(NetworkMode::None | NetworkMode::Bridge) | None => {}
    }
    if options.host_pid {
        add("pid_mode=host".to_owned(), &[Axis::ProcessContained]);
    }
    for name in options
        .cap_add
        .iter()
        .filter(|name| !capability::is_default(name))
    {
        add(format!("cap_add={name}"), capability::axes_lost(name));
    }
    for opt in &options.security_opt {
        match opt {
            SecurityOpt::NoNewPrivileges => {}
            SecurityOpt::SeccompUnconfined => {
                add(
                    "security_opt=seccomp=unconfined".to_owned(),
                    &[Axis::SyscallsRestricted],
                );
            }
            SecurityOpt::AppArmorUnconfined => {
                add(
                    "security_opt=apparmor=unconfined".to_owned(),
                    &[Axis::HostFilesystemRestricted],
                );
            }
            SecurityOpt::LabelDisable => {
                add(
                    "security_opt=label=disable".to_owned(),
                    &[Axis::HostFilesystemRestricted],
                );
            }
        }
    }
    for mount in mounts {
        if let Some(axes) = grants::weakened(&mount.grant.host, &mount.source, sockets) {
            add(format!("mounts={}", mount.source.display()), axes);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_types::Mount;

    fn mount(host: &str) -> GrantedMount {
        GrantedMount::as_given(&Mount {
            host: host.into(),
            place: "/x".into(),
            read_only: true,
        })
    }

    fn of(options: Options) -> Vec<String> {
        weakenings(&options, &[], &[])
            .into_iter()
            .map(|weakening| weakening.option)
            .collect()
    }

    #[test]
    fn tightening_needs_no_consent_and_loosening_does() {
        let tight = Options {
            read_only: true,
            cap_drop: vec!["ALL".to_owned()],
            cap_add: vec!["CHOWN".to_owned()],
            network_mode: Some(NetworkMode::None),
            security_opt: vec![SecurityOpt::NoNewPrivileges],
            ..Options::default()
        };
        assert_eq!(of(tight), [""; 0]);
        let loose = Options {
            privileged: true,
            cap_add: vec!["SYS_ADMIN".to_owned()],
            network_mode: Some(NetworkMode::Host),
            host_pid: true,
            security_opt: vec![SecurityOpt::SeccompUnconfined],
            ..Options::default()
        };
        let names = [
            "privileged",
            "network_mode=host",
            "pid_mode=host",
            "cap_add=SYS_ADMIN",
            "security_opt=seccomp=unconfined",
        ];
        assert_eq!(of(loose), names);
    }

    #[test]
    fn the_engines_socket_is_seen_also_through_a_folder_above_it() {
        let sockets = [PathBuf::from("/run/docker.sock")];
        let axes = |host| {
            let found = weakenings(&Options::default(), &[mount(host)], &sockets);
            found.first().map(|weakening| weakening.axes.len())
        };
        assert_eq!(axes("/run/docker.sock"), Some(5));
        assert_eq!(axes("/run"), Some(5));
        assert_eq!(axes("/"), Some(5));
        assert_eq!(axes("/run/docker.sock.d"), None);
        assert_eq!(axes("/dev/kvm"), Some(3));
        assert_eq!(axes("/home/me"), None);
    }

    #[test]
    fn a_link_to_the_engines_socket_is_seen() {
        let mut linked = mount("/home/me/innocent");
        linked.source = "/run/docker.sock".into();
        let found = weakenings(&Options::default(), &[linked], &["/run/docker.sock".into()]);
        assert_eq!(found.len(), 1);
    }
}
