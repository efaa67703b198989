//! Takes the first whole program out of the README, so that the example there is the one that is run.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let readme = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../README.md");
    println!("cargo::rerun-if-changed={}", readme.display());
    let text = std::fs::read_to_string(&readme).map_err(|error| format!("README.md: {error}"))?;
    let blocks = text
        .split("```rust\n")
        .skip(1)
        .filter_map(|rest| rest.split_once("\n```"));
    let program = blocks
        .map(|(block, _)| block)
        .find(|block| block.contains("fn main("));
    let program = program.ok_or("README.md has no ```rust block with a main function")?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("example.rs"), program)?;
    Ok(())
}
