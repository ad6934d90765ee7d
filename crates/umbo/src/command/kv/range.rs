//! `umbo kv range`: rows of one partition, in order.

use clap::Args;
use umbo_client::RangeOptions;
use umbo_types::Namespace;

use super::argument::{Key, partition_key};
use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::rows::RowPrinter;

/// Arguments of `umbo kv range`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// Partition key
    #[arg(value_parser = partition_key)]
    pk: Key,
    /// Only sort keys with this prefix
    #[arg(long, value_name = "SK")]
    prefix: Option<Key>,
    /// First sort key, included
    #[arg(long, value_name = "SK")]
    start: Option<Key>,
    /// End of the sort keys, not included
    #[arg(long, value_name = "SK")]
    end: Option<Key>,
    /// Highest sort key first
    #[arg(long)]
    reverse: bool,
    /// Most rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Leave the values out
    #[arg(long)]
    keys_only: bool,
}

impl Arguments {
    /// Prints the rows.
    pub(super) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let options = RangeOptions {
            start: self.start.map(|key| key.0),
            end: self.end.map(|key| key.0),
            prefix: self.prefix.map(|key| key.0),
            is_reverse: self.reverse,
            limit: self.limit,
            page_bytes: None,
            keys_only: self.keys_only,
        };
        let client = connection.client()?;
        let reader = client.range(self.ns.as_str(), &self.pk.0, &options);
        RowPrinter::new(connection.row_format(), Some(&self.pk.0))
            .print(reader)
            .await
    }
}
