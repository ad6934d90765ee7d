//! `umbo shed …`: the overload of the server that answers, the requests that it sheds, and its past overloads. Needs
//! the `admin` permission on every namespace.

use clap::Subcommand;
use serde::Serialize;
use umbo_api::shed::{ClassLatency, EpisodeInfo, ShardOverload, ShedStatus, TierOverload};

use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Format, Listing, note};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show overloaded shards, penalised tiers, waiting requests, and requests shed since the start
    Status {
        /// Include healthy shards, and tiers without shed requests
        #[arg(long)]
        all: bool,
    },
    /// List past overloads, newest first: shard, cause, duration and cost
    Log,
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(self, connection: &ConnectionArgs) -> Result<(), CliError> {
        match self {
            Self::Status { all } => block_on(status(connection, all)),
            Self::Log => block_on(log(connection)),
        }
    }
}

/// A class or a tier of a shard.
#[derive(Serialize)]
struct OfShard<'a, T> {
    shard: u16,
    #[serde(flatten)]
    part: &'a T,
}

fn of_shard<T>(shard: &ShardOverload, parts: fn(&ShardOverload) -> &[T]) -> Vec<OfShard<'_, T>> {
    let of_it = |part| OfShard {
        shard: shard.shard,
        part,
    };
    parts(shard).iter().map(of_it).collect()
}

async fn status(connection: &ConnectionArgs, is_all: bool) -> Result<(), CliError> {
    let status = connection.client()?.shed_status().await?;
    output::write_report(connection.listing_format(), &status, || {
        report(&status, is_all)
    })
}

fn report(status: &ShedStatus, is_all: bool) -> Result<(), CliError> {
    let shown = |shard: &&ShardOverload| is_all || shard.overloaded;
    let shards: Vec<&ShardOverload> = status.shards.iter().filter(shown).collect();
    let classes = shards
        .iter()
        .flat_map(|shard| of_shard(shard, |shard| &shard.classes));
    Listing::new("SHARD  CLASS  STATE  PRESSURE  RATIO  P95-MS  NORMAL-MS  SAMPLES")
        .with("STATE", |class: &OfShard<'_, ClassLatency>| {
            state(class.part.overloaded)
        })
        .with("NORMAL-MS", |class| {
            output::or_empty(class.part.normal_p95_ms.map(output::amount))
        })
        .write(Format::Table, &classes.collect::<Vec<_>>())?;
    output::write_bytes(b"\n")?;
    Listing::new("SHARD  BUSY-MS  CAPACITY-MS  CALLERS  SHARE-MS  HEAVY-READ-MS  HEAVY-WRITE-MS")
        .write(Format::Table, &shards)?;
    output::write_bytes(b"\n")?;
    let tiers = status
        .shards
        .iter()
        .flat_map(|shard| of_shard(shard, |shard| &shard.tiers));
    let tiers = tiers.filter(|tier| is_all || is_affected(tier.part));
    Listing::new("SHARD  TIER  PENALTY  ABOVE-SHARE  HELD-TO-MS  WAITING  OLDEST-MS  QUEUE  SHED")
        .with("PENALTY", |tier: &OfShard<'_, TierOverload>| {
            factor(tier.part, tier.part.penalty)
        })
        .with("ABOVE-SHARE", |tier| {
            factor(tier.part, tier.part.penalty_above)
        })
        .with("QUEUE", |tier| state(tier.part.overloaded))
        .write(Format::Table, &tiers.collect::<Vec<_>>())?;
    if !status.enabled {
        note!("overload control is off: nothing is shed because of a shard");
        return Ok(());
    }
    let overloaded = status.shards.iter().filter(|shard| shard.overloaded);
    note!(
        "{} of {} overloaded; {} since the start; threads late by {} ms",
        overloaded.count(),
        output::counted(status.shards.len() as u64, "shard"),
        output::counted(status.episodes_total, "overload"),
        output::amount(status.lag_ms)
    );
    Ok(())
}

/// Returns whether the tier pays more, waits, or was shed since the start.
fn is_affected(tier: &TierOverload) -> bool {
    tier.penalised || tier.waiting > 0 || !tier.shed.is_empty()
}

/// Returns the factor on the price of a tier, empty if its prices are the plain ones.
fn factor(tier: &TierOverload, factor: f64) -> String {
    if tier.penalised {
        format!("x{factor:.2}")
    } else {
        String::new()
    }
}

async fn log(connection: &ConnectionArgs) -> Result<(), CliError> {
    let status = connection.client()?.shed_status().await?;
    Listing::new("NUMBER  STARTED  LASTED-MS  SHARD  CLASS  INPUT  RATIO  LOWEST  P95-MS  NORMAL-MS  TIER  SHED")
        .with("LASTED-MS", |episode: &EpisodeInfo| {
            let goes_on = if episode.under_way { "+" } else { "" };
            format!("{}{goes_on}", episode.duration_ms)
        })
        .with("LOWEST", |episode| output::amount(episode.ratio_min))
        .with("NORMAL-MS", |episode| output::amount(episode.normal_p95_ms))
        .with("TIER", |episode| output::or_empty(episode.tier_max.as_ref()))
        .with("SHED", |episode| episode.shed.values().sum::<u64>().to_string())
        .write(connection.listing_format(), &status.episodes)
}

fn state(is_overloaded: bool) -> String {
    if is_overloaded { "overloaded" } else { "ok" }.to_owned()
}
