//! How a test that cannot run here says so.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

/// Says that a test is skipped, on the output and in the file that `STEAD_SKIP_LOG` names.
pub fn skip(test: &str, reason: &str) {
    use std::io::Write;
    assert!(
        std::env::var_os("STEAD_TEST_NO_SKIP").is_none_or(|set| set != "1"),
        "{test} cannot run: {reason}"
    );
    let line = format!("SKIPPED {test}: {reason}\n");
    print!("{line}");
    if let Some(log) = std::env::var_os("STEAD_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(log)
            .unwrap();
        log.write_all(line.as_bytes()).unwrap();
    }
}
