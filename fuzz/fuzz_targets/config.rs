//! Any text is a configuration or an error that names its file and says a reason.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match stead_cli::config::parse(text, "fuzz") {
        // Read again it is the same. A number that is none is not equal to itself.
        Ok(file) if file.cpu.is_none_or(|cpu| !cpu.is_nan()) => {
            assert_eq!(stead_cli::config::parse(text, "fuzz"), Ok(file));
        }
        Ok(_) => {}
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz: "));
            assert!(!error.reason.is_empty());
        }
    }
});
