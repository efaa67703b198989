//! Builds the small static program that is started on both sides.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=program/main.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join("program");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args([
        "--edition",
        "2024",
        "-O",
        "-C",
        "panic=abort",
        "-C",
        "strip=symbols",
    ]);
    rustc.args([
        "-C",
        "target-feature=+crt-static",
        "-C",
        "relocation-model=static",
    ]);
    let built = rustc.arg("-o").arg(&out).arg("program/main.rs").status();
    if !built.is_ok_and(|status| status.success()) {
        println!("cargo::error=the benchmark's program could not be built");
    }
}
