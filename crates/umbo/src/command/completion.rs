//! `umbo completion SHELL`: the completion script of a shell, on stdout.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output;

/// Arguments of `umbo completion`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Shell to complete for
    shell: Shell,
}

impl Arguments {
    /// Prints the script.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "umbo", &mut script);
        output::write_bytes(&script)
    }
}
