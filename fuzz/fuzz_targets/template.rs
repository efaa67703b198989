//! A template is refused, or every value that is put in is one single-quoted word.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};
use stead_provider::tool::ShellTemplate;

fuzz_target!(|input: (&str, &str)| {
    let (text, value) = input;
    let Ok(template) = ShellTemplate::parse(text) else { return };
    let names: Vec<String> = template.placeholders().map(str::to_owned).collect();
    let mut args = Map::new();
    for name in &names {
        args.insert(name.clone(), Value::String(value.to_owned()));
    }
    match template.render(&args) {
        Ok(rendered) => {
            let quoted = format!("'{}'", value.replace('\'', r"'\''"));
            assert!(names.is_empty() || rendered.contains(&quoted));
            assert!(!rendered.contains('\0') || text.contains('\0'));
        }
        Err(_) => assert!(value.contains('\0') || text.contains('\0')),
    }
});
