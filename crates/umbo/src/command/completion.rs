//! `umbo completion SHELL`: the completion script of a shell, on stdout.

use clap::Args;
use clap_complete::Shell;

use crate::cli_error::CliError;
use crate::output;

const HELP: &str = "\
Where to put the script; new shells then complete commands:
  bash  umbo completion bash > ~/.local/share/bash-completion/completions/umbo
  zsh   umbo completion zsh > ~/.zfunc/_umbo
        and in ~/.zshrc, before compinit: fpath+=(~/.zfunc)
  fish  umbo completion fish > ~/.config/fish/completions/umbo.fish
Create the folder first if it is missing.";

/// Arguments of `umbo completion`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
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
