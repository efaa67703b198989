//! Any bytes are a declared place or an error, as JSON and as TOML. What is accepted has only limits that a
//! place can have, and its tools can be called with any values.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use stead_provider::PlaceFile;

fn judge(file: &PlaceFile) {
    if let Ok(config) = file.config() {
        assert_eq!(config.check(), Ok(()));
        assert!(
            config
                .resources
                .cpu
                .is_none_or(|cpu| cpu.is_finite() && cpu > 0.0)
        );
    }
    let Ok(commands) = file.commands() else { return };
    assert_eq!(commands.len(), file.tools.len());
    for (_, command) in commands {
        assert_eq!(command.check(), Ok(()));
        for value in ["", "'; x '", "-x"] {
            let args: Map<String, Value> = command
                .placeholders()
                .into_iter()
                .map(|name| (name.to_owned(), Value::String(value.to_owned())))
                .collect();
            let (_, config) = command.render(&args).expect("no NUL");
            assert_eq!(config.check(), Ok(()));
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = serde_json::from_slice::<PlaceFile>(bytes) {
        judge(&file);
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(file) = toml::from_str::<PlaceFile>(text)
    {
        judge(&file);
    }
});
