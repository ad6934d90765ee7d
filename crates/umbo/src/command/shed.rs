//! `umbo shed …`: how overloaded the server that answers is, what it sheds, and its past overloads. Needs the
//! `admin` permission on every namespace.

use clap::Subcommand;
use umbo_api::shed::{ClassLatency, EpisodeInfo, ShardOverload, ShedStatus, TierOverload};

use crate::cli_error::CliError;
use crate::connection::{ConnectionArgs, block_on};
use crate::output::{self, Format};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show which shards are overloaded, which tiers are penalised, what waits, and what was shed since the start
    Status {
        /// Include healthy shards and tiers of which nothing was shed
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

const CLASS_HEADER: &str = "SHARD  CLASS  STATE  PRESSURE  RATIO  P95-MS  NORMAL-MS  SAMPLES";

const BUSY_HEADER: &str =
    "SHARD  BUSY-MS  CAPACITY-MS  CALLERS  SHARE-MS  HEAVY-READ-MS  HEAVY-WRITE-MS";

const TIER_HEADER: &str =
    "SHARD  TIER  PENALTY  ABOVE-SHARE  HELD-TO-MS  WAITING  OLDEST-MS  QUEUE  SHED";

async fn status(connection: &ConnectionArgs, is_all: bool) -> Result<(), CliError> {
    let status = connection.client()?.shed_status().await?;
    output::write_report(connection.listing_format(), &status, || {
        report(&status, is_all)
    })
}

fn report(status: &ShedStatus, is_all: bool) -> Result<(), CliError> {
    let shown = |shard: &&ShardOverload| is_all || shard.overloaded;
    let shards: Vec<&ShardOverload> = status.shards.iter().filter(shown).collect();
    let classes = shards.iter().flat_map(|shard| {
        let cells = |class| class_cells(shard.shard, class);
        shard.classes.iter().map(cells)
    });
    let classes: Vec<_> = classes.collect();
    output::write_list(Format::Table, &classes, CLASS_HEADER, Vec::clone)?;
    output::write_bytes(b"\n")?;
    let busy = |shard: &&ShardOverload| busy_cells(shard);
    output::write_list(Format::Table, &shards, BUSY_HEADER, busy)?;
    let tiers = status.shards.iter().flat_map(|shard| {
        let happens = |tier: &&TierOverload| is_all || is_affected(tier);
        let cells = |tier| tier_cells(shard.shard, tier);
        shard.tiers.iter().filter(happens).map(cells)
    });
    let tiers: Vec<_> = tiers.collect();
    output::write_bytes(b"\n")?;
    output::write_list(Format::Table, &tiers, TIER_HEADER, Vec::clone)?;
    if !status.enabled {
        output::note("overload control is off: nothing is shed because of a shard");
        return Ok(());
    }
    let overloaded = status.shards.iter().filter(|shard| shard.overloaded);
    output::note(&format!(
        "{} of {} overloaded; {} since the start; threads late by {}",
        overloaded.count(),
        output::counted(status.shards.len() as u64, "shard"),
        output::counted(status.episodes_total, "overload"),
        millis(Some(status.lag_ms)) + " ms",
    ));
    Ok(())
}

/// Returns whether the tier pays more, waits, or was shed since the start.
fn is_affected(tier: &TierOverload) -> bool {
    tier.penalised || tier.waiting > 0 || !tier.shed.is_empty()
}

fn class_cells(shard: u16, class: &ClassLatency) -> Vec<String> {
    vec![
        shard.to_string(),
        class.class.clone(),
        state(class.overloaded),
        format!("{:.2}", class.pressure),
        class
            .ratio
            .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
        millis(class.p95_ms),
        millis(class.normal_p95_ms),
        class.samples.to_string(),
    ]
}

/// Returns busy times in milliseconds of a second.
fn busy_cells(shard: &ShardOverload) -> Vec<String> {
    let busy = &shard.busy;
    vec![
        shard.shard.to_string(),
        millis(Some(busy.busy_ms)),
        millis(Some(busy.capacity_ms)),
        busy.callers.to_string(),
        millis(busy.share_ms),
        millis(busy.heavy_read_ms),
        millis(busy.heavy_write_ms),
    ]
}

fn tier_cells(shard: u16, tier: &TierOverload) -> Vec<String> {
    let factor = |factor: f64| {
        if tier.penalised {
            format!("x{factor:.2}")
        } else {
            String::new()
        }
    };
    let shed = tier
        .shed
        .iter()
        .map(|(signal, count)| format!("{signal}={count}"));
    vec![
        shard.to_string(),
        tier.tier.clone(),
        factor(tier.penalty),
        factor(tier.penalty_above),
        millis(tier.held_to_ms),
        tier.waiting.to_string(),
        millis(Some(tier.oldest_ms)),
        state(tier.overloaded),
        shed.collect::<Vec<_>>().join(","),
    ]
}

async fn log(connection: &ConnectionArgs) -> Result<(), CliError> {
    let status = connection.client()?.shed_status().await?;
    let header = "NUMBER  STARTED  LASTED-MS  SHARD  CLASS  INPUT  RATIO  LOWEST  P95-MS  NORMAL-MS  TIER  SHED";
    output::write_list(connection.listing_format(), &status.episodes, header, cells)
}

fn cells(episode: &EpisodeInfo) -> Vec<String> {
    let goes_on = if episode.under_way { "+" } else { "" };
    vec![
        episode.number.to_string(),
        output::instant(Some(episode.started_at)),
        format!("{}{goes_on}", episode.duration_ms),
        episode.shard.to_string(),
        episode.class.clone(),
        episode.input.clone(),
        format!("{:.2}", episode.ratio),
        format!("{:.2}", episode.ratio_min),
        millis(Some(episode.p95_ms)),
        millis(Some(episode.normal_p95_ms)),
        episode.tier_max.clone().unwrap_or_default(),
        episode.shed.values().sum::<u64>().to_string(),
    ]
}

fn state(is_overloaded: bool) -> String {
    if is_overloaded { "overloaded" } else { "ok" }.to_owned()
}

/// Returns milliseconds with three digits after the point; nothing for none.
fn millis(millis: Option<f64>) -> String {
    millis.map_or_else(String::new, |millis| format!("{millis:.3}"))
}
