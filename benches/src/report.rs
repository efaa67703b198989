//! The table.

use crate::measure::Times;
use std::fmt::Write;
use std::time::Duration;

/// One row that was measured, or the reason why it was not.
pub struct Row {
    /// Its number.
    pub id: &'static str,
    /// What it is.
    pub figure: String,
    /// What it is compared with.
    pub compared: &'static str,
    /// What must be reached.
    pub must: &'static str,
    /// What came out.
    pub measured: Measured,
}

/// What came out.
pub enum Measured {
    /// Two times and their ratio.
    Ratio {
        /// Ours.
        ours: Times,
        /// The other.
        theirs: Times,
        /// The highest ratio that is allowed.
        limit: f64,
    },
    /// A time that is compared with nothing.
    Time(Times),
    /// A size in bytes and the highest that is allowed.
    Size {
        /// Ours.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Not measured.
    Skipped(String),
}

fn millis(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1000.0)
}

fn tail(times: &Times) -> String {
    format!("{} (p99 {})", millis(times.p50), millis(times.p99))
}

fn cells(measured: &Measured) -> [String; 4] {
    match measured {
        Measured::Ratio { ours, theirs, limit } => {
            let ratio = ours.p50.as_secs_f64() / theirs.p50.as_secs_f64();
            let shown = if ratio < 0.1 {
                format!("1/{:.0}", 1.0 / ratio)
            } else {
                format!("{ratio:.2}×")
            };
            [
                tail(ours),
                tail(theirs),
                shown,
                if ratio <= *limit { "yes" } else { "NO" }.to_owned(),
            ]
        }
        Measured::Time(times) => [tail(times), "-".to_owned(), "-".to_owned(), "-".to_owned()],
        Measured::Size { bytes, limit } => {
            let mib = format!("{:.2} MiB", *bytes as f64 / f64::from(1 << 20));
            [
                mib,
                "-".to_owned(),
                "-".to_owned(),
                if bytes <= limit { "yes" } else { "NO" }.to_owned(),
            ]
        }
        Measured::Skipped(reason) => [
            format!("not measured: {reason}"),
            "-".to_owned(),
            "-".to_owned(),
            "unknown".to_owned(),
        ],
    }
}

/// The whole document.
pub fn markdown(machine: &[String], rows: &[Row]) -> String {
    let mut text = "# Benchmarks\n\nWritten by `cargo xtask bench`. Both sides of a row are taken in turns in one run; times are \
                    medians. `true` is one small static program on both sides, and each side is first seen to \
                    print a known text and to exit with 7.\n\n"
        .to_owned();
    for line in machine {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "- {line}");
    }
    text.push_str("\n| # | figure | compared with | measured | the other | ratio | must reach | reached |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
    for row in rows {
        let [ours, theirs, ratio, reached] = cells(&row.measured);
        let Row {
            id,
            figure,
            compared,
            must,
            ..
        } = row;
        let _ = writeln!(
            text,
            "| {id} | {figure} | {compared} | {ours} | {theirs} | {ratio} | {must} | {reached} |"
        );
    }
    text
}
