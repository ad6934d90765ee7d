//! The `umbo` binary: parses the command line, runs one command, and maps its result to an exit code. Each
//! command is a module of [`command`], named after it.

use std::process::ExitCode;

use mimalloc::MiMalloc;

mod cli;
mod cli_error;
mod clock;
mod command;
mod connection;
mod history;
mod map_file;
mod node;
mod otlp;
mod output;
mod parts;
mod reload_watch;
mod run_to_end;
mod server;
mod settings;
mod signals;
mod tasks;

/// Measured: a tenth less CPU per request than the system's allocator.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match cli::Cli::of_command_line().run() {
        Ok(code) => code,
        Err(failure) => {
            failure.report();
            failure.exit_code()
        }
    }
}
