//! What a scrape shows of overload, taken from the queues and the controller.
//!
//! Owns which of their figures are added up over the shards: what became of requests is, how things
//! stand is not.

use std::time::{Duration, Instant};

use umbo_dispatcher::overload::Overload;
use umbo_overload::{QueueStatus, ShardReport, ShedReason};
use umbo_telemetry::metrics::{ByTier, ClassGauges, OverloadGauges, QueueGauges};
use umbo_types::PriceMultiplier;

/// Asks the queues and the controller.
pub(crate) fn gauges(overload: &Overload, now: Instant) -> OverloadGauges {
    let report = overload.controller().report(now);
    let statuses = overload.statuses(now);
    let lags = statuses.iter().map(|status| status.lag);
    OverloadGauges {
        queues: report.shards.iter().zip(&statuses).map(queue).collect(),
        classes: report.shards.iter().flat_map(classes).collect(),
        queued: total(&statuses, |status, tier| status.tiers[tier].counts.queued),
        expired: total(&statuses, |status, tier| status.tiers[tier].counts.expired),
        shed: ShedReason::ALL
            .map(|reason| shed(&statuses, reason))
            .to_vec(),
        episodes: report.episodes,
        multipliers: std::array::from_fn(|tier| highest_price(&report.shards, tier)),
        lag_nanos: nanos(lags.max().unwrap_or_default()),
    }
}

/// Returns the highest price multiplier of a tier at any shard.
fn highest_price(shards: &[ShardReport], tier: usize) -> f64 {
    let prices = shards.iter().map(|shard| &shard.prices[tier]);
    let prices = prices.flat_map(|price| [price.above_share, price.others]);
    prices.map(PriceMultiplier::as_f64).fold(1.0, f64::max)
}

fn queue((report, status): (&ShardReport, &QueueStatus)) -> QueueGauges {
    let oldest = status.tiers.iter().map(|tier| tier.oldest).max();
    QueueGauges {
        shard: report.shard.0,
        limit: status.limit,
        in_flight: status.in_flight,
        waiting: status.tiers.map(|tier| tier.waiting as u64),
        waiting_units: status.work,
        oldest_nanos: nanos(oldest.unwrap_or_default()),
        is_overloaded: report.episode.is_some() || status.is_overloaded(),
    }
}

fn classes(report: &ShardReport) -> impl Iterator<Item = ClassGauges> {
    let shard = report.shard.0;
    report.classes.iter().map(move |class| ClassGauges {
        shard,
        class: class.class.as_str(),
        ratio: class.ratio,
        pressure: class.pressure,
    })
}

fn shed(statuses: &[QueueStatus], reason: ShedReason) -> (&'static str, ByTier<u64>) {
    let of_tier =
        |status: &QueueStatus, tier: usize| status.tiers[tier].counts.shed[reason as usize];
    (reason.as_str(), total(statuses, of_tier))
}

/// Adds up over the shards.
fn total(statuses: &[QueueStatus], pick: impl Fn(&QueueStatus, usize) -> u64) -> ByTier<u64> {
    std::array::from_fn(|tier| statuses.iter().map(|status| pick(status, tier)).sum())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
