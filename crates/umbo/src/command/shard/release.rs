//! `umbo shard release`: stamps the files that a node gives away with their next owner, so that they may be
//! copied, without a server.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use umbo_store_redb::{HandOver, HandOverOutcome, release_shards};
use umbo_types::ShardId;

use crate::cli_error::{CliError, Exit};
use crate::map_file;
use crate::output::{self, Format, Listing, note};

/// Arguments of `umbo shard release`.
#[derive(Debug, Args)]
pub(super) struct Release {
    /// The new map
    #[arg(long, value_name = "FILE")]
    map: PathBuf,
    /// Data folder of the node that gives shards away, which must not be running
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Only these shards [default: all that the map has given to other nodes]
    #[arg(long, value_name = "SHARDS", value_delimiter = ',')]
    shards: Vec<u16>,
    /// Accept the files as the newest of their shards, although the map counts more moves than they have made
    #[arg(long)]
    accept: bool,
}

impl Release {
    pub(super) fn run(self, format: Format) -> Result<(), CliError> {
        let map = Arc::new(map_file::read(&self.map)?);
        let shards: Vec<_> = self.shards.iter().copied().map(ShardId).collect();
        let released = release_shards(&self.data, &map, &shards, self.accept)?;
        Listing::new("SHARD  STATE  TO  MOVES  FILE  REASON").write(format, &released)?;
        let is_kept = |one: &&HandOver| {
            use HandOverOutcome::{Failed, Kept};
            matches!(one.outcome, Kept(_) | Failed(_))
        };
        let kept = released.iter().filter(is_kept).count() as u64;
        let files = released.len() as u64;
        if kept > 0 {
            let message =
                format!("{kept} of {files} files are not given away, and must not be copied");
            return Err(CliError::told(Exit::Failed, message).advising("not-released"));
        }
        if format == Format::Table {
            note!(
                "{} may be copied to the new nodes, and {} nowhere else",
                output::counted(files, "file"),
                if files == 1 { "opens" } else { "open" }
            );
        }
        Ok(())
    }
}
