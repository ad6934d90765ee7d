//! `umbo dlq …`: dead letters, the rows that failed in an import, in the files that it wrote of them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::kv::import::dead_letters::{FailureCount, census};
use super::kv::import::redrive;
use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output;

/// Arguments of `umbo dlq`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Count the rows of a file of failed rows, by namespace and reason
    Ls {
        /// File of failed rows, as 'umbo kv import' makes them; - for stdin
        file: PathBuf,
    },
    /// Send the rows of a file of failed rows again
    Redrive(redrive::Arguments),
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self.command {
            Command::Ls { file } => {
                let kinds = census(&file)?;
                output::write_list(connection.listing_format(), &kinds, HEADER, cells)
            }
            Command::Redrive(arguments) => block_on(arguments.run(connection)),
        }
    }
}

const HEADER: &str = "NAMESPACE  REASON  STATUS  TYPE  ROWS  EXAMPLE";

fn cells(kind: &FailureCount) -> Vec<String> {
    vec![
        kind.namespace.clone().unwrap_or_default(),
        kind.reason.clone(),
        match kind.status {
            0 => String::new(),
            status => status.to_string(),
        },
        kind.code.clone(),
        kind.rows.to_string(),
        kind.example.clone(),
    ]
}
