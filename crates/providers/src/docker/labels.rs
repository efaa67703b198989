//! The labels by which our containers are found again, also by another process and after a crash.

use std::collections::HashMap;
use stead_types::InstanceId;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// On every container that we made.
pub const MANAGED: &str = "dev.stead.managed";
/// The process that provisioned it.
pub const OWNER: &str = "dev.stead.owner";
/// When that process was started, as the system counts; with the process id it names one process.
pub const OWNER_START: &str = "dev.stead.owner-start";
/// The boot of the machine on which that process runs.
pub const BOOT_ID: &str = "dev.stead.boot-id";
/// The instance's id.
pub const INSTANCE: &str = "dev.stead.instance";
/// When it was provisioned, RFC 3339.
pub const CREATED_AT: &str = "dev.stead.created-at";
/// Whether it outlives its owner.
pub const DETACHED: &str = "dev.stead.detached";

/// The process that an instance belongs to, named so that no later process can be taken for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its id.
    pub pid: u32,
    /// Its start, in ticks since the boot.
    pub start: u64,
    /// The boot in which it was started.
    pub boot_id: String,
}

/// What the labels of one container say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceLabels {
    /// The instance's id.
    pub instance: InstanceId,
    /// To whom it belongs; `None` when the labels do not say it readably.
    pub owner: Option<Owner>,
    /// When it was provisioned; `None` when the labels do not say it readably.
    pub created_at: Option<OffsetDateTime>,
    /// Whether it outlives its owner.
    pub detached: bool,
}

impl InstanceLabels {
    /// The labels to put on a container.
    pub fn to_map(&self) -> HashMap<String, String> {
        let mut labels = HashMap::new();
        let mut set = |name: &str, value: String| labels.insert(name.to_owned(), value);
        set(MANAGED, "true".to_owned());
        set(INSTANCE, self.instance.to_string());
        set(DETACHED, self.detached.to_string());
        if let Some(owner) = &self.owner {
            set(OWNER, owner.pid.to_string());
            set(OWNER_START, owner.start.to_string());
            set(BOOT_ID, owner.boot_id.clone());
        }
        if let Some(at) = self.created_at.and_then(|at| at.format(&Rfc3339).ok()) {
            set(CREATED_AT, at);
        }
        labels
    }

    /// Reads labels. `None` is a container that is not ours, or has no id that we make.
    pub fn from_map(labels: &HashMap<String, String>) -> Option<Self> {
        let get = |name: &str| labels.get(name).map(String::as_str);
        let instance = InstanceId::new(get(INSTANCE)?);
        if get(MANAGED) != Some("true") || !instance.is_generated() {
            return None;
        }
        let owner = || {
            let (pid, start) = (get(OWNER)?.parse().ok()?, get(OWNER_START)?.parse().ok()?);
            Some(Owner {
                pid,
                start,
                boot_id: get(BOOT_ID)?.to_owned(),
            })
        };
        Some(Self {
            instance,
            owner: owner(),
            created_at: get(CREATED_AT).and_then(|at| OffsetDateTime::parse(at, &Rfc3339).ok()),
            detached: get(DETACHED) == Some("true"),
        })
    }
}

/// The name of an instance's container. `None` for an id that we cannot have made, and that would not
/// be safe in a request.
pub fn container_name(instance: &InstanceId) -> Option<String> {
    instance.is_generated().then(|| format!("stead-{instance}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> InstanceLabels {
        InstanceLabels {
            instance: InstanceId::generate(),
            owner: Some(Owner {
                pid: 7,
                start: 8,
                boot_id: "b".to_owned(),
            }),
            created_at: Some(OffsetDateTime::UNIX_EPOCH),
            detached: true,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let labels = labels();
        assert_eq!(InstanceLabels::from_map(&labels.to_map()), Some(labels));
    }

    #[test]
    fn a_container_with_damaged_labels_is_still_ours() {
        let mut map = labels().to_map();
        map.insert(OWNER.to_owned(), "x".to_owned());
        map.insert(CREATED_AT.to_owned(), "yesterday".to_owned());
        let read = InstanceLabels::from_map(&map).unwrap();
        assert_eq!((read.owner, read.created_at, read.detached), (None, None, true));
    }

    #[test]
    fn a_strangers_container_is_not_ours() {
        let mut map = labels().to_map();
        map.insert(INSTANCE.to_owned(), "../x".to_owned());
        assert_eq!(InstanceLabels::from_map(&map), None);
        map = labels().to_map();
        map.remove(MANAGED);
        assert_eq!(InstanceLabels::from_map(&map), None);
        assert_eq!(container_name(&InstanceId::new("../x")), None);
    }
}
