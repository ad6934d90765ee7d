//! `umbo completion SHELL`: the completion script of a shell, on stdout.

use clap::Args;
use clap_complete::Shell;

use crate::cli_error::CliError;
use crate::output;

/// Arguments of `umbo completion`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Shell to complete for
    shell: Shell,
}

impl Arguments {
    /// Prints the script for a command tree.
    pub(crate) fn run(&self, tree: &mut clap::Command) -> Result<(), CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, tree, "umbo", &mut script);
        output::write_bytes(&script)
    }
}
