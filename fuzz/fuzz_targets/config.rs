//! Any text is a configuration or an error that names its file and says a reason; and as a value of any key it is one
//! or an error with a reason.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_cli::config::{ConfigError, value};

const KEYS: [&str; 9] = ["provider", "image", "network", "timeout", "cpu", "memory", "pids", "state_dir", "log"];

fuzz_target!(|text: &str| {
    match stead_cli::config::parse(text, "fuzz") {
        // Read again it is the same. A number that is none is not equal to itself.
        Ok(file) if file.cpu.is_none_or(|cpu| !cpu.is_nan()) => {
            assert_eq!(stead_cli::config::parse(text, "fuzz"), Ok(file));
        }
        Ok(_) => {}
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz: "));
            assert!(matches!(error, ConfigError::File { reason, .. } if !reason.is_empty()));
        }
    }
    for key in KEYS {
        if let Err(reason) = value::check(key, text) {
            assert!(!reason.is_empty());
        }
    }
});
