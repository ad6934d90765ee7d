//! `umbo shard …`: the shards as a server sees them, and inspection of a node's files without a server;
//! without a subcommand it runs a node.

mod reclaim;
mod release;
mod repair;
mod run;
mod verify;

use clap::{Args, Subcommand};
use umbo_api::admin::{ShardInfo, ShardList};

use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Format, Listing, note};

/// Arguments of `umbo shard`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    node: run::Run,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the shards: the location of each, and whether it serves
    Ls,
    /// Describe a shard
    Describe {
        /// Number, as 'umbo shard ls' shows it
        id: u16,
    },
    /// Check the map of a cluster, and the data folder of a node against it, without a server
    Verify(verify::Verify),
    /// Give the files of a node that is not running to their new nodes, so that they may be copied
    Release(release::Release),
    /// Move rows that are in the wrong shard to their own, in a data folder that is not in use
    Repair(repair::Repair),
    /// Take shards back that were given to a node which has never opened them
    Reclaim(reclaim::Reclaim),
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self.command {
            None => self.node.run(),
            Some(Command::Ls) => block_on(list(connection)),
            Some(Command::Describe { id }) => block_on(describe(connection, id)),
            Some(Command::Verify(verify)) => verify.run(connection.listing_format()),
            Some(Command::Release(release)) => release.run(connection.listing_format()),
            Some(Command::Repair(repair)) => repair.run(connection.listing_format()),
            Some(Command::Reclaim(reclaim)) => reclaim.run(),
        }
    }
}

fn listing() -> Listing<ShardInfo> {
    Listing::new("SHARD  NODE  STATE  SLOTS  ROWS  FILE-BYTES  QUEUED  P50-MS  P99-MS  REASON")
}

async fn list(connection: &ConnectionArgs) -> Result<(), CliError> {
    let ShardList { shards } = connection.client()?.shards().await?;
    let format = connection.listing_format();
    listing().write(format, &shards)?;
    if format == Format::Table {
        let is_down = |shard: &&ShardInfo| shard.state != "available";
        let down = shards.iter().filter(is_down).count();
        let all = output::counted(shards.len() as u64, "shard");
        note!("{} of {all} available", shards.len() - down);
    }
    Ok(())
}

async fn describe(connection: &ConnectionArgs, id: u16) -> Result<(), CliError> {
    let ShardList { shards } = connection.client()?.shards().await?;
    let shard = shards.iter().find(|shard| shard.shard == id);
    let shard = shard.ok_or_else(|| CliError::shard_not_found(id, shards.len()))?;
    listing().write_one(connection.listing_format(), shard)
}
