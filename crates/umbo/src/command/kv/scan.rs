//! `umbo kv scan`: rows of a namespace, one segment after the other, in no particular order.

use clap::Args;
use umbo_client::ScanOptions;
use umbo_types::Namespace;

use crate::cli_error::{CliError, usage};
use crate::connection::ConnectionArgs;
use crate::output::rows::RowPrinter;

/// Arguments of `umbo kv scan`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// Most rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Leave the values out
    #[arg(long)]
    keys_only: bool,
    /// Divide the namespace into this many segments, 1 to 4096, and read only one of them
    #[arg(long, value_name = "N", requires = "segment", value_parser = clap::value_parser!(u32).range(1..=4096))]
    segments: Option<u32>,
    /// Which segment to read, from 0
    #[arg(long, value_name = "I", requires = "segments")]
    segment: Option<u32>,
}

impl Arguments {
    /// Prints the rows.
    pub(super) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let segment = self.segment.zip(self.segments);
        if let Some((segment, segments)) = segment
            && segment >= segments
        {
            return Err(usage!(
                "--segment {segment} is none of {segments}: they count from 0"
            ));
        }
        let options = ScanOptions {
            segment,
            limit: self.limit,
            page_bytes: None,
            keys_only: self.keys_only,
            version: None,
        };
        let reader = connection.client()?.scan(self.ns.as_str(), options);
        RowPrinter::new(connection.row_format(), None)
            .print(reader)
            .await
    }
}
