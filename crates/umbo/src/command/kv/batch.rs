//! `umbo kv batch`: a small file of writes as one batch. `umbo kv import` takes large files.

use std::path::PathBuf;

use clap::Args;
use umbo_api::batch::WriteRow;
use umbo_client::BatchOptions;
use umbo_types::Namespace;
use umbo_types::limits::BATCH_BODY_LEN_MAX;

use super::argument::read_file;
use super::put::DurabilityOption;
use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::{self, Listing};

/// Arguments of `umbo kv batch`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// File of writes, one {"op":"put"|"del"|"inc","pk":…,"sk":…,"v":…,"by":…} a line; - for stdin
    file: PathBuf,
    /// Write the rows of each partition completely or not at all
    #[arg(long)]
    atomic: bool,
    /// When the batch is acknowledged
    #[arg(long, value_enum)]
    durability: Option<DurabilityOption>,
}

impl Arguments {
    /// Writes, and prints the result of each line.
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let lines = read_file(&self.file, BATCH_BODY_LEN_MAX)?;
        let options = BatchOptions {
            is_atomic: self.atomic,
            durability: self.durability.map(Into::into),
            ..BatchOptions::default()
        };
        let result = connection
            .client()?
            .batch_write(self.ns.as_str(), lines, options)
            .await?;
        Listing::new("ROW  STATUS  VERSION  REASON")
            .with("ROW", |row: &WriteRow| row.i.to_string())
            .with("REASON", |row| {
                output::or_empty(row.error.as_ref().map(|error| &error.detail))
            })
            .write(connection.row_format(), &result.rows)?;
        match result.end.failed {
            0 => Ok(()),
            failed => Err(CliError::Partial {
                failed,
                rows: result.end.rows,
                hint: String::new(),
            }),
        }
    }
}
