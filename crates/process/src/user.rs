//! Users and groups by name, from the place's own files. No C library is asked: a place need not have one.

use std::fs;
use stead_sys::Identity;

/// Files larger than this are not read: they are the place's, so they are untrusted.
const MAX_FILE: u64 = 4 << 20;

/// A user as a command gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Ids to take on.
    pub identity: Identity,
    /// Home directory, `/` when the user has no entry.
    pub home: String,
}

/// The user or group is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownUser;

/// Resolves `name`, `uid`, `name:group` or `uid:gid`. A uid without an entry is taken as it is.
pub fn resolve(user: &str) -> Result<User, UnknownUser> {
    let read = |path: &str| {
        let small = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= MAX_FILE);
        if small {
            fs::read(path).unwrap_or_default()
        } else {
            Vec::new()
        }
    };
    resolve_in(user, &read("/etc/passwd"), &read("/etc/group"))
}

fn resolve_in(user: &str, passwd: &[u8], group: &[u8]) -> Result<User, UnknownUser> {
    let passwd = String::from_utf8_lossy(passwd);
    let group = String::from_utf8_lossy(group);
    let (name, group_name) = match user.split_once(':') {
        Some((name, group_name)) => (name, Some(group_name)),
        None => (user, None),
    };
    let number = name.parse::<u32>().ok();
    let entry = passwd
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| {
            fields.len() >= 6 && (fields[0] == name || number.is_some_and(|n| fields[2].parse() == Ok(n)))
        });
    let (uid, own_gid, login, home) = match (&entry, number) {
        (Some(f), _) => (
            f[2].parse().map_err(|_| UnknownUser)?,
            f[3].parse().map_err(|_| UnknownUser)?,
            Some(f[0]),
            f[5].to_owned(),
        ),
        (None, Some(uid)) => (uid, 0, None, "/".to_owned()),
        (None, None) => return Err(UnknownUser),
    };
    let gid = match group_name {
        Some(name) => group_id(&group, name).ok_or(UnknownUser)?,
        None => own_gid,
    };
    // The kernel reads the last number as "leave it as it is": the command would stay who we are.
    if uid == u32::MAX || gid == u32::MAX {
        return Err(UnknownUser);
    }
    // With a group of its own the user gets that one alone, as container engines do.
    let groups = match (group_name, login) {
        (None, Some(login)) => supplementary(&group, login, gid),
        _ => vec![gid],
    };
    Ok(User {
        identity: Identity { uid, gid, groups },
        home,
    })
}

fn group_id(group: &str, name: &str) -> Option<u32> {
    let by_name = group
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.len() >= 3 && fields[0] == name)
        .and_then(|fields| fields[2].parse().ok());
    by_name.or_else(|| name.parse().ok())
}

fn supplementary(group: &str, login: &str, gid: u32) -> Vec<u32> {
    let mut ids = vec![gid];
    for line in group.lines() {
        let fields: Vec<_> = line.split(':').collect();
        if let [_, _, id, members, ..] = fields[..]
            && members.split(',').any(|member| member == login)
            && let Ok(id) = id.parse()
            && id != u32::MAX
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\nann:x:1000:1001::/home/ann:/bin/sh\nbad\n";
    const GROUP: &[u8] = b"root:x:0:\nann:x:1001:\nwork:x:50:ann,bob\n";

    fn user(text: &str) -> Result<(u32, u32, Vec<u32>, String), UnknownUser> {
        resolve_in(text, PASSWD, GROUP).map(|u| (u.identity.uid, u.identity.gid, u.identity.groups, u.home))
    }

    #[test]
    fn every_form_resolves() {
        assert_eq!(user("ann"), Ok((1000, 1001, vec![1001, 50], "/home/ann".into())));
        assert_eq!(user("1000"), user("ann"));
        assert_eq!(user("ann:work"), Ok((1000, 50, vec![50], "/home/ann".into())));
        assert_eq!(user("7:8"), Ok((7, 8, vec![8], "/".into())));
        assert_eq!(user("7"), Ok((7, 0, vec![0], "/".into())));
    }

    #[test]
    fn unknown_names_are_errors() {
        for text in [
            "eve",
            "ann:eve",
            "",
            ":",
            "-1",
            "4294967296",
            // (uid_t)-1, which means "no change"
            "4294967295",
            "4294967295:0",
            "0:4294967295",
            "ann:4294967295",
        ] {
            assert_eq!(user(text), Err(UnknownUser), "{text}");
        }
    }
}
