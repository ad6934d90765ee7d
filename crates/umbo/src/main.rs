//! The `umbo` binary: parses the command line, runs one command, turns its result into an exit
//! code. Owns nothing else: each command is a module of [`command`], named after it.

use std::process::ExitCode;

use clap::Parser as _;

mod cli;
mod command;
mod failure;
mod output;
mod settings;

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
