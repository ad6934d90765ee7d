//! `umbo shard repair`: moves rows that are in the wrong shard to their own, without a server.

use std::path::{Path, PathBuf};

use clap::Args;
use umbo_store_redb::{ShardRepair, count_misplaced, repair_shards};
use umbo_types::Clock as _;

use crate::cli_error::{CliError, Exit};
use crate::output::{self, Format, Listing, note};
use crate::server::SystemClock;

/// Arguments of `umbo shard repair`.
#[derive(Debug, Args)]
pub(super) struct Repair {
    /// Data folder of a server or node, which must not be running
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Only count the rows
    #[arg(long)]
    dry_run: bool,
    /// Open files without the groups of their log that are lost, and lose what was acknowledged with them; without this
    /// option such a file is left as it is, and the lost groups are named
    #[arg(long, conflicts_with = "dry_run")]
    drop_lost_groups: bool,
}

impl Repair {
    pub(super) fn run(self, format: Format) -> Result<(), CliError> {
        let repaired = if self.dry_run {
            count_misplaced(&self.data)?
        } else {
            repair_shards(&self.data, SystemClock.wall(), self.drop_lost_groups)?
        };
        Listing::new("SHARD  MISPLACED  MOVED  OUTDATED  FILE  REASON").write(format, &repaired)?;
        let left = |one: &&ShardRepair| {
            one.failure.is_some() || (!self.dry_run && one.misplaced > one.moved + one.outdated)
        };
        let left = repaired.iter().filter(left).count();
        if left > 0 {
            let files = repaired.len();
            let message = format!(
                "{left} of {files} files were not read, or have rows of other shards still"
            );
            return Err(CliError::told(Exit::Failed, message).advising("not-repaired"));
        }
        if format == Format::Table {
            let rows = repaired.iter().map(|one| one.misplaced).sum();
            note!("{} in the wrong shard", output::counted(rows, "row"));
        }
        Ok(())
    }
}

/// Returns the number of rows in the wrong shard, for each shard of a folder, for `umbo shard verify`. Leaves out
/// shards that cannot be read.
pub(super) fn misplaced(folder: &Path) -> Result<Vec<(u16, u64)>, CliError> {
    let counted = count_misplaced(folder)?.into_iter();
    let read = counted.filter(|one| one.failure.is_none());
    Ok(read.map(|one| (one.shard, one.misplaced)).collect())
}
