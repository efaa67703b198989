//! Removing a folder of an instance, whatever ran there did to it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes it. Gone already is what we want, and nobody is left to be told of what stays; `prune` finds it.
pub fn remove(folder: &Path) {
    if fs::remove_dir_all(folder).is_err() {
        open_directories(folder);
        let _ = fs::remove_dir_all(folder);
    }
}

/// Gives us the rights over all directories below, following no link.
fn open_directories(path: &Path) {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        return;
    }
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        open_directories(&entry.path());
    }
}
