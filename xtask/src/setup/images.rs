//! The test images. They are imported from a tree that is made here, so that no registry is needed.

use super::engine::SOCKET;
use crate::{step, workspace};
use anyhow::{Context, Result, bail};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Goes up when the content of an image changes; an image of an older recipe is made anew.
const RECIPE: &str = "1";

/// A shell, the usual small programs, and a user without rights.
const BUSYBOX: &str = "stead-test/busybox:1";

/// One empty folder: no shell, no libc, no /etc/passwd.
const EMPTY: &str = "stead-test/empty:1";

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534:nobody:/:/bin/false
tester:x:1000:1000:tester:/home/tester:/bin/sh
";

const GROUP: &str = "root:x:0:\nnogroup:x:65534:\ntester:x:1000:\n";

/// Imports what the engine does not have yet.
pub fn build() -> Result<()> {
    if workspace::find_program("docker").is_none() {
        eprintln!("xtask: the docker client is missing, so the test images cannot be imported");
        return Ok(());
    }
    let folder = workspace::target().join("images");
    if !is_current(BUSYBOX) {
        let tree = busybox_tree(&folder.join("busybox"))?;
        import(
            BUSYBOX,
            &pack(&tree, &["home/tester"])?,
            &["ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
        )?;
    }
    if !is_current(EMPTY) {
        let tree = fresh(&folder.join("empty"))?;
        std::fs::create_dir(tree.join("empty"))?;
        import(EMPTY, &pack(&tree, &[])?, &[])?;
    }
    Ok(())
}

fn busybox_tree(at: &Path) -> Result<PathBuf> {
    let Some(busybox) = workspace::find_program("busybox") else {
        bail!("busybox is missing (Debian: busybox-static)");
    };
    let tree = fresh(at)?;
    for folder in [
        "bin",
        "sbin",
        "usr/bin",
        "usr/sbin",
        "etc",
        "root",
        "home/tester",
        "tmp",
    ] {
        std::fs::create_dir_all(tree.join(folder))?;
    }
    std::fs::set_permissions(tree.join("tmp"), std::fs::Permissions::from_mode(0o1777))?;
    std::fs::write(tree.join("etc/passwd"), PASSWD)?;
    std::fs::write(tree.join("etc/group"), GROUP)?;
    std::fs::copy(&busybox, tree.join("bin/busybox"))?;
    for applet in step::output(Command::new(&busybox).arg("--list-full"))?.lines() {
        let link = tree.join(applet);
        if let Some(folder) = link.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // busybox lists itself, and a link that leads nowhere here does not "exist".
        if link.symlink_metadata().is_err() {
            symlink("/bin/busybox", &link).with_context(|| format!("could not link {}", link.display()))?;
        }
    }
    Ok(tree)
}

fn fresh(tree: &Path) -> Result<PathBuf> {
    if tree.exists() {
        std::fs::remove_dir_all(tree).with_context(|| format!("could not clear {}", tree.display()))?;
    }
    std::fs::create_dir_all(tree)?;
    Ok(tree.to_owned())
}

/// Packs a tree as root's, but for what belongs to `tester`. The archive says who owns a file, so this
/// needs no root.
fn pack(tree: &Path, of_tester: &[&str]) -> Result<PathBuf> {
    let archive = tree.with_extension("tar");
    let mut command = tar("--create", &archive, tree, "0");
    command.args(of_tester.iter().map(|path| format!("--exclude=./{path}")));
    step::run(command.arg("."))?;
    if !of_tester.is_empty() {
        let mut command = tar("--append", &archive, tree, "1000");
        step::run(command.args(of_tester.iter().map(|path| format!("./{path}"))))?;
    }
    Ok(archive)
}

fn tar(mode: &str, archive: &Path, tree: &Path, owner: &str) -> Command {
    let mut command = Command::new("tar");
    command
        .arg(mode)
        .arg("--file")
        .arg(archive)
        .arg("--directory")
        .arg(tree);
    command.args(["--numeric-owner", "--owner", owner, "--group", owner]);
    command
}

fn import(image: &str, archive: &Path, changes: &[&str]) -> Result<()> {
    let mut command = docker();
    command
        .arg("import")
        .args(["--change", &format!("LABEL stead-test.recipe={RECIPE}")]);
    command.args(changes.iter().flat_map(|change| ["--change", *change]));
    step::run(command.arg(archive).arg(image))
}

fn is_current(image: &str) -> bool {
    let format = "{{index .Config.Labels \"stead-test.recipe\"}}";
    let inspect = ["image", "inspect", "--format", format, image];
    step::output(docker().args(inspect)).is_ok_and(|recipe| recipe.trim() == RECIPE)
}

/// The client with our socket, whatever context the user has chosen.
fn docker() -> Command {
    let mut command = Command::new(workspace::find_program("docker").unwrap_or_else(|| "docker".into()));
    command.arg("--host").arg(format!("unix://{SOCKET}"));
    command
}
