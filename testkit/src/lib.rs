//! What the tests of several packages share: how a test that cannot run here says so.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::{Command, Stdio};

/// The image that the set-up makes: busybox, and nothing else.
pub const BUSYBOX_IMAGE: &str = "stead-test/busybox:1";

/// Says that a test is skipped, on the output and in the file that `STEAD_SKIP_LOG` names.
///
/// # Panics
/// With `STEAD_TEST_NO_SKIP=1`: where everything can run, a skip is a failure.
pub fn skip(test: &str, reason: &str) {
    assert!(
        std::env::var_os("STEAD_TEST_NO_SKIP").is_none_or(|set| set != "1"),
        "{test} cannot run: {reason}"
    );
    note_skip(test, reason);
}

/// The same for what no machine of its kind can run, so that it is never a failure.
///
/// # Panics
/// When the file that `STEAD_SKIP_LOG` names cannot be written: a skip must be seen.
pub fn note_skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}\n");
    print!("{line}");
    if let Some(log) = std::env::var_os("STEAD_SKIP_LOG") {
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(log);
        let written = opened.and_then(|mut log| log.write_all(line.as_bytes()));
        assert!(
            written.is_ok(),
            "the file of skips cannot be written: {written:?}"
        );
    }
}

/// Whether there is an engine here with [`BUSYBOX_IMAGE`]; `false` after the skip was said.
pub fn engine_or_skip(test: &str) -> bool {
    let found = Command::new("docker")
        .args(["image", "inspect", BUSYBOX_IMAGE])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !found {
        skip(test, "no engine with the test image");
    }
    found
}
