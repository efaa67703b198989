//! Who is who: the maps of the user namespace, and our own identity in it.

use super::{During, StepFailed};
use crate::plan::{IdRange, Plan, UserNamespace};
use rustix::process::{Gid, Uid};
use std::fs;
use std::io;

/// What is written for the child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maps {
    uids: IdRange,
    gids: IdRange,
    /// An ordinary user may map its own group only when nobody inside can leave a group.
    deny_setgroups: bool,
}

impl Maps {
    /// Those of root's places.
    pub fn of_users(users: &UserNamespace) -> Self {
        let (uids, gids) = users.maps();
        Self {
            uids,
            gids,
            deny_setgroups: false,
        }
    }

    /// Those of a plan; `is_root` is the caller's.
    pub fn of(plan: &Plan, is_root: bool) -> Self {
        let (uids, gids) = plan.users.maps();
        Self {
            uids,
            gids,
            deny_setgroups: !is_root,
        }
    }
}

/// Writes the maps of a child's user namespace, from outside of it.
pub fn write_maps(child: i32, maps: &Maps) -> io::Result<()> {
    let write = |file: &str, text: String| fs::write(format!("/proc/{child}/{file}"), text);
    let line = |range: IdRange| format!("{} {} {}\n", range.inside, range.outside, range.count);
    if maps.deny_setgroups {
        write("setgroups", "deny".to_owned())?;
    }
    write("gid_map", line(maps.gids))?;
    write("uid_map", line(maps.uids))
}

/// Becomes root of the place, with no other group.
pub fn take_root() -> Result<(), StepFailed> {
    // Denied where an ordinary user's maps had to deny it; then the caller's groups stay, which are of no use
    // for what is not mounted.
    if fs::read_to_string("/proc/self/setgroups").map_or(true, |text| text.trim() != "deny") {
        rustix::thread::set_thread_groups(&[]).during("leave all groups")?;
    }
    let gid = Gid::ROOT;
    rustix::thread::set_thread_res_gid(gid, gid, gid).during("take the place's group")?;
    let uid = Uid::ROOT;
    rustix::thread::set_thread_res_uid(uid, uid, uid).during("take the place's user")
}
