//! The admin API of overload: which shards are overloaded, which callers pay for it, which requests wait,
//! and the overloads of the past.
//!
//! Needs a grant of `observe` on `*`: a shard belongs to no namespace. If the protection of shards is off, the answer
//! says so and lists no shard.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::shed::{
    ClassLatency, EpisodeInfo, ShardBusy, ShardOverload, ShardQueue, ShedStatus, TierOverload,
};
use umbo_dispatcher::overload::Overload;
use umbo_http::query::Query;
use umbo_overload::{
    ClassReport, OverloadEpisode, PriceReport, QueueStatus, ShardReport, ShedReason, TierStatus,
};
use umbo_types::{Criticality, Timestamp};

use super::{DispatcherState, full_observer};
use crate::admin_error::AdminError;

pub(crate) async fn show(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<ShedStatus>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let now = (dispatcher.clock.monotonic(), dispatcher.clock.wall());
    let status = dispatcher
        .overload
        .as_ref()
        .map(|overload| status(overload, now));
    Ok(Json(status.unwrap_or_default()))
}

/// Returns the state of all shards.
pub(crate) fn status(overload: &Overload, now: (Instant, Timestamp)) -> ShedStatus {
    let report = overload.controller().report(now.0);
    let queues = overload.statuses(now.0);
    let episodes = overload.controller().episodes();
    ShedStatus {
        enabled: true,
        lag_ms: queues
            .iter()
            .map(|queue| millis(queue.lag))
            .fold(0.0, f64::max),
        shards: report.shards.iter().zip(&queues).map(shard).collect(),
        episodes_total: report.episodes,
        episodes: episodes.iter().map(|one| episode(one, now)).collect(),
    }
}

fn shard((report, queue): (&ShardReport, &QueueStatus)) -> ShardOverload {
    let held_to = report.shares.held_to.into_iter();
    let tiers = report.prices.iter().zip(&queue.tiers).zip(held_to);
    ShardOverload {
        shard: report.shard.0,
        overloaded: report.episode.is_some() || queue.is_overloaded(),
        classes: report.classes.iter().map(class).collect(),
        tiers: tiers.map(tier).collect(),
        queue: ShardQueue {
            limit: queue.limit,
            in_flight: queue.in_flight,
            waiting: queue.waiting() as u64,
            waiting_ru: queue.work.as_f64(),
        },
        busy: busy(report),
    }
}

fn busy(report: &ShardReport) -> ShardBusy {
    let (shares, [reads, writes]) = (report.shares, report.heavy);
    ShardBusy {
        capacity_ms: millis(shares.capacity),
        busy_ms: millis(shares.busy),
        callers: shares.callers,
        share_ms: shares.share.map(millis),
        heavy_read_ms: reads.map(millis),
        heavy_write_ms: writes.map(millis),
    }
}

fn class(report: &ClassReport) -> ClassLatency {
    ClassLatency {
        class: report.class.as_str().to_owned(),
        overloaded: report.is_engaged,
        pressure: report.pressure,
        ratio: report.ratio,
        p95_ms: report.p95_short.map(millis),
        normal_p95_ms: report.p95_long.map(millis),
        samples: report.short_samples,
        window_ms: whole_millis(report.short_window),
    }
}

fn tier(
    ((report, queue), held_to): ((&PriceReport, &TierStatus), Option<Duration>),
) -> TierOverload {
    let shed = ShedReason::ALL.into_iter().map(ShedReason::as_str);
    let shed = shed.zip(queue.counts.shed);
    TierOverload {
        tier: report.tier.as_str().to_owned(),
        penalised: !report.above_share.is_none() || !report.others.is_none(),
        penalty: report.others.as_f64(),
        penalty_above: report.above_share.as_f64(),
        held_to_ms: held_to.map(millis),
        waiting: queue.waiting as u64,
        oldest_ms: millis(queue.oldest),
        overloaded: queue.overloaded_for.is_some(),
        shed: counts(shed),
    }
}

fn episode(episode: &OverloadEpisode, now: (Instant, Timestamp)) -> EpisodeInfo {
    let age = now.0.saturating_duration_since(episode.started);
    let shed = Criticality::ALL.map(Criticality::as_str).into_iter();
    EpisodeInfo {
        number: episode.number,
        shard: episode.shard.0,
        class: episode.class.as_str().to_owned(),
        input: episode.input.as_str().to_owned(),
        pressure_max: episode.pressure_max,
        tier_max: episode.tier_max.map(|tier| tier.as_str().to_owned()),
        ratio: episode.ratio,
        ratio_min: episode.ratio_min,
        p95_ms: millis(episode.p95_short),
        normal_p95_ms: millis(episode.p95_long),
        started_at: now.1.as_millis().saturating_sub(whole_millis(age)),
        duration_ms: whole_millis(episode.duration(now.0)),
        under_way: episode.ended.is_none(),
        shed: counts(shed.zip(episode.shed)),
    }
}

/// Keeps what there is any of.
fn counts(counts: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    let some = counts.filter(|(_, count)| *count > 0);
    some.map(|(name, count)| (name.to_owned(), count)).collect()
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
