//! Any text is a configuration or an error that names its place.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = stead_cli::config::parse(text, "fuzz") {
        assert!(error.to_string().starts_with("fuzz: "));
    }
});
