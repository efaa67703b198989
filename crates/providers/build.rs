//! Builds the supervisor as a static program, so that its bytes can be embedded.
//!
//! It is a build of its own, with its own target folder and flags: static, small, always optimised. The
//! gnu target links statically with `+crt-static` and needs no other toolchain.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=STEAD_SUPERVISOR_BINARY");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("stead-supervisor");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() != Ok("linux") {
        // Without Linux there is no provider that starts it; the file only has to exist.
        write_empty(&out);
        return;
    }
    // For packagers who build it apart.
    if let Some(binary) = env::var_os("STEAD_SUPERVISOR_BINARY") {
        println!("cargo::rerun-if-changed={}", Path::new(&binary).display());
        copy(Path::new(&binary), &out);
        return;
    }
    let workspace = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../..");
    for source in [
        "bin/stead-supervisor",
        "crates/confine",
        "crates/process",
        "crates/sys",
        "crates/wire",
    ] {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    copy(&build(&workspace), &out);
}

fn build(workspace: &Path) -> PathBuf {
    let target = env::var("TARGET").unwrap_or_default();
    let target_dir = shared_target_dir();
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(workspace)
        .args([
            "build",
            "--locked",
            "--quiet",
            "--package",
            "stead-supervisor",
            "--profile",
            "supervisor",
        ])
        .args(["--target", &target, "--target-dir"])
        .arg(&target_dir)
        .env(
            "RUSTFLAGS",
            "-C target-feature=+crt-static -C relocation-model=static -C force-unwind-tables=no",
        )
        // Flags of the outer build (lints, coverage, another linker) are not meant for this one.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER");
    match cargo.status() {
        Ok(status) if status.success() => target_dir.join(target).join("supervisor/stead-supervisor"),
        Ok(status) => fail(&format!("building the supervisor ended with {status}")),
        Err(error) => fail(&format!(
            "cargo could not be started to build the supervisor: {error}"
        )),
    }
}

/// One folder for all profiles and commands of the outer build, so that it is built once. `OUT_DIR` is
/// TARGET/[triple/]PROFILE/build/PACKAGE-HASH/out.
fn shared_target_dir() -> PathBuf {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    out.ancestors().nth(4).unwrap_or(&out).join("stead-supervisor")
}

fn copy(from: &Path, to: &Path) {
    if let Err(error) = std::fs::copy(from, to) {
        fail(&format!("{} could not be copied: {error}", from.display()));
    }
    tell_hash(to);
}

fn write_empty(to: &Path) {
    if let Err(error) = std::fs::write(to, b"") {
        fail(&format!("{} could not be written: {error}", to.display()));
    }
    tell_hash(to);
}

/// By which another supervisor is told from this one, without reading it when Stead starts.
fn tell_hash(supervisor: &Path) {
    use sha2::{Digest, Sha256};
    let bytes = std::fs::read(supervisor).unwrap_or_default();
    let digest = Sha256::digest(&bytes);
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=SUPERVISOR_HASH={hash}");
}

#[expect(
    clippy::disallowed_methods,
    reason = "a build script has nothing to clean up and no other way to fail"
)]
fn fail(what: &str) -> ! {
    println!("cargo::error={what}");
    std::process::exit(1)
}
