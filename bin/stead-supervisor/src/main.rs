//! The supervisor: a small static program that runs inside every place, starts and reaps processes, and
//! speaks the wire protocol. It is PID 1 where there is a PID namespace. It has one thread and a poll
//! loop, so that it can fork and stays small.
//!
//! It is started by Stead alone; its options are no interface for people.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod args;
#[cfg(target_os = "linux")]
mod begin;
#[cfg(target_os = "linux")]
mod commands;
#[cfg(target_os = "linux")]
mod confined;
#[cfg(target_os = "linux")]
mod connection;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod guard;
#[cfg(target_os = "linux")]
mod handshake;
#[cfg(target_os = "linux")]
mod keep;
#[cfg(target_os = "linux")]
mod parking;
#[cfg(target_os = "linux")]
mod probe;
#[cfg(target_os = "linux")]
mod relay;
#[cfg(target_os = "linux")]
mod removal;
#[cfg(target_os = "linux")]
mod server;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let result = match args::parse(std::env::args_os().skip(1)) {
        Ok(args::Mode::Serve(options)) => server::serve(*options),
        Ok(args::Mode::ServeHere) => begin::serve_here(),
        Ok(args::Mode::Relay { socket }) => relay::relay(&socket),
        Ok(args::Mode::Guard) => guard::guard(),
        Ok(args::Mode::Probe(targets)) => probe::probe(&targets),
        Err(usage) => {
            eprintln!("stead-supervisor: {usage}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stead-supervisor: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("stead-supervisor: only Linux has the process control that it needs");
    ExitCode::FAILURE
}
