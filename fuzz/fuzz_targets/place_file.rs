//! Any bytes are a declared place or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_provider::PlaceFile;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = serde_json::from_slice::<PlaceFile>(bytes) {
        let _ = file.config();
        let _ = file.commands();
    }
});
