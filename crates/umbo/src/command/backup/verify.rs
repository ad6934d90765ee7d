//! `umbo backup verify`: reads a backup, and checks every file and row of it.

use clap::Args;
use serde::Serialize;
use umbo_control::restored_records;
use umbo_store_redb::BackupCheck;
use umbo_types::Clock as _;

use super::location::Location;
use super::manifest::{Manifest, ShardFiles};
use crate::cli_error::CliError;
use crate::connection::ConnectionArgs;
use crate::output::listing::Listing;
use crate::server::SystemClock;

/// Arguments of `umbo backup verify`.
#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Folder or address of the backup
    #[arg(long, value_name = "LOCATION")]
    from: String,
}

/// What is wrong with a part of a backup.
#[derive(Debug, Serialize)]
struct CheckedPart {
    part: String,
    rows: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Verify {
    pub(super) async fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        let location = Location::open(&self.from)?;
        let manifest = Manifest::read(&location).await?;
        let records = check_records(&location, &manifest).await;
        let mut parts = vec![CheckedPart {
            part: "records".to_owned(),
            rows: 0,
            reason: records.err().map(|error| error.to_string()),
        }];
        for shard in &manifest.shards {
            let checked = check_shard(&location, shard).await;
            let number = shard.shard;
            parts.push(CheckedPart {
                part: format!("shard {number}"),
                rows: *checked.as_ref().unwrap_or(&0),
                reason: checked.err().map(|error| error.to_string()),
            });
        }
        Listing::new("PART  ROWS  REASON").write(connection.listing_format(), &parts)?;
        let bad = parts.iter().filter(|part| part.reason.is_some()).count();
        if bad > 0 {
            let all = parts.len();
            let text = format!("{bad} of {all} parts of the backup are damaged");
            return Err(CliError::Backup(text));
        }
        Ok(())
    }
}

async fn check_records(location: &Location, manifest: &Manifest) -> Result<(), CliError> {
    let content = manifest.records.read(location).await?;
    let now = SystemClock.wall();
    let read = restored_records(content, manifest.revision, None, now);
    read.map(|_| ())
        .map_err(|error| CliError::Backup(error.to_string()))
}

async fn check_shard(location: &Location, shard: &ShardFiles) -> Result<u64, CliError> {
    let mut check = BackupCheck::default();
    let bad = |error| CliError::Backup(format!("{error}"));
    for file in &shard.files {
        check.read(&file.read(location).await?).map_err(bad)?;
    }
    let rows = check.end().map_err(bad)?;
    if rows != shard.rows {
        let expected = shard.rows;
        let text = format!("it has {rows} rows, and was written with {expected}");
        return Err(CliError::Backup(text));
    }
    Ok(rows)
}
