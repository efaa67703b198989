//! Results as JSON, and tables for people.

use base64::Engine;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use stead::{Axes, ExecResult};

/// The document of `stead run --json`.
pub fn result(result: &ExecResult, provider: &str, isolation: &Axes) -> Value {
    let mut document = Map::new();
    document.insert("exit_code".to_owned(), result.exit_code.into());
    document.insert("signal".to_owned(), result.signal.into());
    document.insert("timed_out".to_owned(), result.timed_out.into());
    // Only where it says something: the other keys are those of every result.
    if result.oom_killed {
        document.insert("oom_killed".to_owned(), true.into());
    }
    for (name, bytes, total, truncated) in [
        (
            "stdout",
            &result.stdout,
            result.stdout_total_bytes,
            result.stdout_truncated,
        ),
        (
            "stderr",
            &result.stderr,
            result.stderr_total_bytes,
            result.stderr_truncated,
        ),
    ] {
        text_or_bytes(&mut document, name, bytes);
        document.insert(format!("{name}_total_bytes"), total.into());
        document.insert(format!("{name}_truncated"), truncated.into());
    }
    let millis = u64::try_from(result.duration.as_millis()).unwrap_or(u64::MAX);
    document.insert("duration_ms".to_owned(), millis.into());
    document.insert("provider".to_owned(), provider.into());
    document.insert("isolation".to_owned(), json!(isolation));
    Value::Object(document)
}

/// Bytes as text, invalid ones replaced; when there are any, also as they are, in base64.
pub fn text_or_bytes(document: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    document.insert(name.to_owned(), String::from_utf8_lossy(bytes).into());
    if std::str::from_utf8(bytes).is_err() {
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        document.insert(format!("{name}_base64"), text.into());
    }
}

/// Prints one line; a reader that is gone is no failure.
pub fn print(line: impl std::fmt::Display) -> io::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Bytes for people, in powers of 1024.
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut divisor = 1u64;
    while unit + 1 < units.len() && bytes / divisor >= 1024 {
        unit += 1;
        divisor *= 1024;
    }
    if unit == 0 {
        return format!("{bytes} B");
    }
    let tenths = u128::from(bytes) * 10 / u128::from(divisor);
    format!("{}.{} {}", tenths / 10, tenths % 10, units[unit])
}

/// Columns that are as wide as their widest cell.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let rows = rows
        .iter()
        .map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(header.to_vec()))
        .chain(rows)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_come_as_base64_too() {
        let text = ExecResult {
            stdout: b"a".to_vec(),
            ..ExecResult::default()
        };
        assert!(result(&text, "p", &Axes::NONE).get("stdout_base64").is_none());
        let bytes = ExecResult {
            stdout: vec![0xff, b'a'],
            ..ExecResult::default()
        };
        let document = result(&bytes, "p", &Axes::NONE);
        assert_eq!(
            (&document["stdout"], &document["stdout_base64"]),
            (&json!("\u{fffd}a"), &json!("/2E="))
        );
    }

    #[test]
    fn sizes_are_told_in_powers_of_1024() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_600_000, "1.5 MiB"),
            (u64::MAX, "16777215.9 TiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn a_table_lines_up() {
        let rows = [
            vec!["a".to_owned(), "b".to_owned()],
            vec!["long".to_owned(), String::new()],
        ];
        assert_eq!(table(&["X", "Y"], &rows), "X     Y\na     b\nlong");
    }
}
