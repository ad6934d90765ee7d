//! `umbo kv put`: one row from the command line, a file or stdin.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use umbo_api::admin::DurabilitySetting;
use umbo_client::{Condition, PutOptions};
use umbo_types::limits::VALUE_LEN_MAX;

use super::argument::{RowKey, condition, read_file, ttl};
use crate::cli_error::CliError;
use crate::connection::Connection;
use crate::output;

/// Arguments of `umbo kv put`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    key: RowKey,
    /// Value as text; where neither this nor --file is given, the value is read from stdin
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    value: Option<String>,
    /// File that holds the value
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Time to live (like 90s, 10m, 30d); the namespace's default where not given
    #[arg(long, value_name = "DURATION", value_parser = ttl)]
    ttl: Option<Duration>,
    /// Media type to store with the value
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Content encoding to store with the value
    #[arg(long, value_name = "ENCODING")]
    content_encoding: Option<String>,
    /// Store only if the row has this version ('*': any)
    #[arg(long, value_name = "VERSION", value_parser = condition)]
    if_match: Option<Condition>,
    /// Store only if there is no row
    #[arg(long, conflicts_with = "if_match")]
    if_absent: bool,
    /// When the write is acknowledged
    #[arg(long, value_enum)]
    durability: Option<Durability>,
}

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Durability {
    /// Once it is on the disk
    Sync,
    /// Once readers see it
    Async,
}

impl From<Durability> for DurabilitySetting {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Sync => Self::Sync,
            Durability::Async => Self::Async,
        }
    }
}

#[derive(Debug, Serialize)]
struct PutResult {
    created: bool,
    version: u64,
}

impl Arguments {
    /// Stores the row and prints its version.
    pub(super) async fn run(&self, connection: &Connection) -> Result<(), CliError> {
        let value = match (&self.value, &self.file) {
            (Some(text), _) => text.clone().into_bytes(),
            (None, Some(file)) => read_file(file, VALUE_LEN_MAX)?,
            (None, None) => read_file(Path::new("-"), VALUE_LEN_MAX)?,
        };
        let condition = match self.if_match {
            Some(condition) => condition,
            None if self.if_absent => Condition::Absent,
            None => Condition::None,
        };
        let options = PutOptions {
            ttl: self.ttl,
            content_type: self.content_type.clone(),
            content_encoding: self.content_encoding.clone(),
            condition,
            durability: self.durability.map(Into::into),
        };
        let key = &self.key;
        let written = connection
            .client()?
            .put(key.ns.as_str(), &key.pk.0, key.sort(), value, &options)
            .await?;
        let answer = PutResult {
            created: written.is_new,
            version: written.version,
        };
        let what = if answer.created {
            "created"
        } else {
            "replaced"
        };
        output::write_one(
            connection.listing_format(),
            &answer,
            &["DONE", "VERSION"],
            |answer| vec![what.to_owned(), answer.version.to_string()],
        )
    }
}
