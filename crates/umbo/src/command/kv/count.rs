//! `umbo kv count`: the number of rows of a namespace or partition. Reads every key, like a scan without values.

use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;
use umbo_client::{Client, PageReader, RangeOptions, ScanOptions};
use umbo_types::Namespace;

use super::argument::{Key, partition_key};
use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output;

/// Segments read in parallel.
const SEGMENTS: u32 = 4;

/// Arguments of `umbo kv count`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// Partition key [default: the whole namespace]
    #[arg(value_parser = partition_key)]
    pk: Option<Key>,
    /// Only sort keys of the partition that begin with this
    #[arg(long, value_name = "SK", requires = "pk")]
    prefix: Option<Key>,
}

impl Arguments {
    /// Prints the number of rows.
    pub(super) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let rows = match &self.pk {
            Some(partition) => {
                let options = RangeOptions {
                    prefix: self.prefix.map(|key| key.0),
                    keys_only: true,
                    ..RangeOptions::default()
                };
                let client = connection.client()?;
                rows_of(client.range(self.ns.as_str(), &partition.0, &options)).await?
            }
            None => count_namespace(connection, &self.ns).await?,
        };
        output::write_report(connection.listing_format(), &json!({"rows": rows}), || {
            output::write_bytes(format!("{rows}\n").as_bytes())
        })
    }
}

/// Returns readers of all keys of a namespace, to be read in parallel.
pub(in crate::command) fn key_scans(client: &Client, ns: &Namespace) -> Vec<PageReader> {
    let reader = |segment| {
        let options = ScanOptions {
            segment: Some((segment, SEGMENTS)),
            keys_only: true,
            ..ScanOptions::default()
        };
        client.scan(ns.as_str(), options)
    };
    (0..SEGMENTS).map(reader).collect()
}

async fn count_namespace(connection: &ConnectionArgs, ns: &Namespace) -> Result<u64, CliError> {
    let client = connection.bulk_client()?;
    let mut counts = JoinSet::new();
    for keys in key_scans(&client, ns) {
        counts.spawn(rows_of(keys));
    }
    let counts: Result<Vec<u64>, CliError> = counts.join_all().await.into_iter().collect();
    Ok(counts?.into_iter().sum())
}

async fn rows_of(mut reader: PageReader) -> Result<u64, CliError> {
    while reader.next_block().await?.is_some() {}
    Ok(reader.rows())
}
