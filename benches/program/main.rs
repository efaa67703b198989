//! The program that is started on both sides of a row: static, so that no loader is measured.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("say") => {
            println!("known");
            ExitCode::SUCCESS
        }
        Some("seven") => ExitCode::from(7),
        _ => ExitCode::SUCCESS,
    }
}
