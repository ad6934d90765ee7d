//! `umbo kv mget`: rows by their keys, in the order of the keys.

use std::path::PathBuf;

use clap::Args;
use umbo_api::batch::{KeyFields, MultiGetRow};
use umbo_types::limits::{BATCH_BODY_LEN_MAX, MULTI_GET_KEYS_MAX};
use umbo_types::{KeyError, Namespace};

use super::argument::{Key, partition_key, read_file};
use crate::cli_error::{CliError, usage};
use crate::connection::ConnectionArgs;
use crate::output::rows::shown;
use crate::output::{self, Listing};

/// Arguments of `umbo kv mget`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Namespace
    ns: Namespace,
    /// Partition keys (of rows without sort key), or with --partition sort keys
    #[arg(required_unless_present_any = ["file", "row"])]
    keys: Vec<Key>,
    /// Partition key and sort key of a row; may be repeated
    #[arg(long, num_args = 2, value_names = ["PK", "SK"], conflicts_with_all = ["keys", "partition", "file"])]
    row: Vec<Key>,
    /// Partition of the given sort keys
    #[arg(long, value_name = "PK", value_parser = partition_key)]
    partition: Option<Key>,
    /// File of keys, one {"pk":…,"sk":…} a line; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keys", "partition"])]
    file: Option<PathBuf>,
}

impl Arguments {
    /// Prints the rows.
    pub(super) async fn run(&self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let keys = self.key_fields()?;
        let client = connection.client()?;
        let mut rows: Vec<MultiGetRow> = Vec::with_capacity(keys.len());
        for keys in keys.chunks(MULTI_GET_KEYS_MAX) {
            let before = rows.len() as u32;
            let page = client.multi_get(self.ns.as_str(), keys.to_vec()).await?;
            rows.extend(page.into_iter().map(|mut row| {
                row.i += before;
                row
            }));
        }
        Listing::new("PK  SK  STATUS  VERSION  BYTES  VALUE")
            .with("PK", |row: &MultiGetRow| {
                output::key(row.row.partition().map(Option::unwrap_or_default))
            })
            .with("SK", |row| output::key(row.row.sort()))
            .with("BYTES", |row| {
                output::or_empty(value(row).map(|value| value.len()))
            })
            .with("VALUE", |row| {
                output::or_empty(value(row).as_deref().map(shown))
            })
            .write(connection.row_format(), &rows)?;
        let is_failed = |row: &&MultiGetRow| !matches!(row.status, 200 | 404);
        match rows.iter().filter(is_failed).count() {
            0 => Ok(()),
            failed => Err(CliError::Partial {
                failed: failed as u64,
                rows: rows.len() as u64,
                hint: rows
                    .iter()
                    .find_map(|row| row.error.as_ref())
                    .map_or_else(String::new, |error| {
                        format!("; the first: {}", error.detail)
                    }),
            }),
        }
    }

    fn key_fields(&self) -> Result<Vec<KeyFields>, CliError> {
        if let Some(file) = &self.file {
            let text = read_file(file, BATCH_BODY_LEN_MAX)?;
            let lines = text.split(|&byte| byte == b'\n').enumerate();
            let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
            let fields = lines.map(|(at, line)| {
                serde_json::from_slice(line).map_err(|error| usage!("line {}: {error}", at + 1))
            });
            return fields.collect();
        }
        let key = |key: &Key| match &self.partition {
            Some(partition) => (partition.0.clone(), key.0.clone()),
            None => (key.0.clone(), Vec::new()),
        };
        let pairs = self.row.chunks_exact(2);
        let pairs = pairs.map(|pair| (pair[0].0.clone(), pair[1].0.clone()));
        let keys: Vec<_> = pairs.chain(self.keys.iter().map(key)).collect();
        if keys.iter().any(|(partition, _)| partition.is_empty()) {
            return Err(usage!("{}", KeyError::PartitionEmpty));
        }
        let keys = keys.iter();
        Ok(keys.map(|(pk, sk)| KeyFields::of(pk, sk)).collect())
    }
}

fn value(row: &MultiGetRow) -> Option<Vec<u8>> {
    row.row.value().ok().flatten()
}
