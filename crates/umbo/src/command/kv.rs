//! `umbo kv …`: rows. Each command has a module; keys have the same syntax in all of them, in input and
//! output ([`umbo_api::key_text`]).

mod argument;
pub(super) mod bar;
mod batch;
mod count;
mod export;
pub(super) mod file_name;
pub(super) mod format;
mod get;
pub(super) mod import;
mod inc;
mod mget;
pub(super) mod patience;
mod put;
mod range;
mod rm;
mod scan;
mod touch;

use clap::Subcommand;

use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};

pub(super) use argument::{Key, partition_key, read_file, ttl};
pub(super) use count::key_scans;
pub(crate) use put::DurabilityOption;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print the value of a row, as it was stored
    Get(get::Arguments),
    /// Store a row
    Put(put::Arguments),
    /// Change the expiry of a row, without its value
    Touch(touch::Arguments),
    /// Add to the number that a row holds
    Inc(inc::Arguments),
    /// Remove a row, or a range of rows of a partition
    Rm(rm::Arguments),
    /// List rows of a partition, in order
    Range(range::Arguments),
    /// List rows by their keys
    Mget(mget::Arguments),
    /// Write the lines of a small file as one batch
    Batch(batch::Arguments),
    /// List all rows of a namespace, in no particular order
    Scan(scan::Arguments),
    /// Count the rows of a namespace or partition
    Count(count::Arguments),
    /// Write the rows of a file, of any size
    Import(import::Arguments),
    /// Read all rows of a namespace into a file that import takes
    Export(export::Arguments),
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self {
            Self::Get(arguments) => block_on(arguments.run(connection)),
            Self::Put(arguments) => block_on(arguments.run(connection)),
            Self::Touch(arguments) => block_on(arguments.run(connection)),
            Self::Inc(arguments) => block_on(arguments.run(connection)),
            Self::Rm(arguments) => block_on(arguments.run(connection)),
            Self::Range(arguments) => block_on(arguments.run(connection)),
            Self::Mget(arguments) => block_on(arguments.run(connection)),
            Self::Batch(arguments) => block_on(arguments.run(connection)),
            Self::Scan(arguments) => block_on(arguments.run(connection)),
            Self::Count(arguments) => block_on(arguments.run(connection)),
            Self::Import(arguments) => block_on(arguments.run(connection)),
            Self::Export(arguments) => block_on(arguments.run(connection)),
        }
    }
}
