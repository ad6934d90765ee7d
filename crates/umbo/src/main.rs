//! The `umbo` binary: parses the command line, runs one command, turns its result into an exit
//! code. Owns nothing else: each command is a module of [`command`], named after it.

use std::process::ExitCode;

use clap::Parser as _;
use mimalloc::MiMalloc;

mod cli;
mod command;
mod connection;
mod failure;
mod map_file;
mod node;
mod output;
mod reload_watch;
mod server;
mod settings;
mod signals;
mod spans;

/// Measured against the system's: a tenth less CPU a request.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli.run() {
        Ok(code) => code,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}
