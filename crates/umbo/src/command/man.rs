//! `umbo man DIR`: the help pages as manual pages, one file per command. It is for makers of packages, so no help page
//! lists it.

use std::path::PathBuf;

use clap::Args;

use crate::cli_error::CliError;

/// Arguments of `umbo man`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of section 1, created if it is absent
    dir: PathBuf,
}

impl Arguments {
    /// Writes the pages of a command tree.
    pub(crate) fn run(&self, tree: clap::Command) -> Result<(), CliError> {
        let failed = || CliError::file("write", &self.dir);
        std::fs::create_dir_all(&self.dir).map_err(failed())?;
        clap_mangen::generate_to(without_help(tree), &self.dir).map_err(failed())
    }
}

/// Hides the `help` commands, which would be half of the pages.
fn without_help(mut tree: clap::Command) -> clap::Command {
    let names: Vec<String> = tree
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    for name in names {
        tree = tree.mut_subcommand(&name, |one| match name.as_str() {
            "help" => one.hide(true),
            _ => without_help(one),
        });
    }
    tree
}
