//! Isolation axes: facts about an instance, each observed on this machine and never claimed.

use serde::{Deserialize, Serialize};

/// One axis. The names are those of the JSON form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// It can neither see nor signal a process outside, and all it starts dies with the place.
    ProcessContained,
    /// A file of the host that was not granted can be neither read nor written.
    HostFilesystemRestricted,
    /// No way to more privilege than it was started with.
    PrivilegeEscalationBlocked,
    /// A list of dangerous system calls is refused.
    SyscallsRestricted,
    /// No address outside the place's policy can be reached.
    NetworkRestricted,
}

impl Axis {
    /// All axes, in the order in which they are printed.
    pub const ALL: [Axis; 5] = [
        Axis::ProcessContained,
        Axis::HostFilesystemRestricted,
        Axis::PrivilegeEscalationBlocked,
        Axis::SyscallsRestricted,
        Axis::NetworkRestricted,
    ];

    /// Its name in the JSON form.
    pub fn name(self) -> &'static str {
        match self {
            Self::ProcessContained => "process_contained",
            Self::HostFilesystemRestricted => "host_filesystem_restricted",
            Self::PrivilegeEscalationBlocked => "privilege_escalation_blocked",
            Self::SyscallsRestricted => "syscalls_restricted",
            Self::NetworkRestricted => "network_restricted",
        }
    }
}

/// What was observed for each axis: `Some(true)` a probe saw it hold, `Some(false)` it is known not to
/// hold, `None` nobody looked. Only `Some(true)` counts: "we do not know" is never a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axes {
    /// See [`Axis::ProcessContained`].
    pub process_contained: Option<bool>,
    /// See [`Axis::HostFilesystemRestricted`].
    pub host_filesystem_restricted: Option<bool>,
    /// See [`Axis::PrivilegeEscalationBlocked`].
    pub privilege_escalation_blocked: Option<bool>,
    /// See [`Axis::SyscallsRestricted`].
    pub syscalls_restricted: Option<bool>,
    /// See [`Axis::NetworkRestricted`].
    pub network_restricted: Option<bool>,
}

impl Axes {
    /// Nobody looked.
    pub const UNKNOWN: Axes = Axes {
        process_contained: None,
        host_filesystem_restricted: None,
        privilege_escalation_blocked: None,
        syscalls_restricted: None,
        network_restricted: None,
    };

    /// No isolation at all: a process of the host.
    pub const NONE: Axes = Axes {
        process_contained: Some(false),
        host_filesystem_restricted: Some(false),
        privilege_escalation_blocked: Some(false),
        syscalls_restricted: Some(false),
        network_restricted: Some(false),
    };

    /// What was observed for one axis.
    pub fn get(&self, axis: Axis) -> Option<bool> {
        match axis {
            Axis::ProcessContained => self.process_contained,
            Axis::HostFilesystemRestricted => self.host_filesystem_restricted,
            Axis::PrivilegeEscalationBlocked => self.privilege_escalation_blocked,
            Axis::SyscallsRestricted => self.syscalls_restricted,
            Axis::NetworkRestricted => self.network_restricted,
        }
    }

    /// Records an observation.
    pub fn set(&mut self, axis: Axis, held: Option<bool>) {
        let slot = match axis {
            Axis::ProcessContained => &mut self.process_contained,
            Axis::HostFilesystemRestricted => &mut self.host_filesystem_restricted,
            Axis::PrivilegeEscalationBlocked => &mut self.privilege_escalation_blocked,
            Axis::SyscallsRestricted => &mut self.syscalls_restricted,
            Axis::NetworkRestricted => &mut self.network_restricted,
        };
        *slot = held;
    }

    /// These, but for what is known of the other not to hold.
    pub fn weakened_by(mut self, cleared: Axes) -> Self {
        for axis in Axis::ALL {
            if cleared.get(axis) == Some(false) {
                self.set(axis, Some(false));
            }
        }
        self
    }

    /// Whether the axis was seen to hold.
    pub fn holds(&self, axis: Axis) -> bool {
        self.get(axis) == Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_one_name() {
        for axis in Axis::ALL {
            assert_eq!(serde_json::to_value(axis).unwrap(), axis.name());
        }
    }

    #[test]
    fn what_weakens_takes_away_and_never_gives() {
        let mut all = Axes::UNKNOWN;
        for axis in Axis::ALL {
            all.set(axis, Some(true));
        }
        let cleared = Axes {
            network_restricted: Some(false),
            ..Axes::UNKNOWN
        };
        let weakened = all.weakened_by(cleared);
        assert_eq!(weakened.network_restricted, Some(false));
        assert_eq!(weakened.process_contained, Some(true));
        assert_eq!(Axes::UNKNOWN.weakened_by(all), Axes::UNKNOWN);
    }

    #[test]
    fn unknown_does_not_hold() {
        for axis in Axis::ALL {
            assert!(!Axes::UNKNOWN.holds(axis));
            assert!(!Axes::NONE.holds(axis));
            let mut axes = Axes::UNKNOWN;
            axes.set(axis, Some(true));
            assert_eq!(
                Axis::ALL
                    .into_iter()
                    .filter(|a| axes.holds(*a))
                    .collect::<Vec<_>>(),
                [axis]
            );
        }
    }
}
