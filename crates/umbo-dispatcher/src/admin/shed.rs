//! The admin API of overload: which shards are overloaded, who pays for it, who waits, and when it
//! was so.
//!
//! Needs a grant of `admin` on `*`: a shard is of no namespace. Where nothing is shed because of
//! shards there are none to show, and the answer says so.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::shed::{
    ClassLatency, EngagementInfo, ShardOverload, ShardQueue, ShedStatus, TierOverload,
};
use umbo_shed::{ClassReport, Engagement, GateStatus, ShardReport, TierReport, TierStatus, Why};
use umbo_types::{Criticality, Timestamp};

use super::{Pod, full_admin};
use crate::failure::Failure;
use crate::overload::Overload;
use crate::query::Query;

pub(crate) async fn show(
    State(pod): Pod,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<ShedStatus>, Failure> {
    full_admin(&pod, &headers)?;
    Query::read(query.as_deref(), "")?;
    let now = (pod.clock.monotonic(), pod.clock.wall());
    let status = pod.overload.as_ref().map(|overload| status(overload, now));
    Ok(Json(status.unwrap_or_default()))
}

fn status(overload: &Overload, now: (Instant, Timestamp)) -> ShedStatus {
    let report = overload.signal().report(now.0);
    let gates = overload.statuses(now.0);
    let engagements = overload.signal().engagements();
    ShedStatus {
        enabled: true,
        lag_ms: gates
            .iter()
            .map(|gate| millis(gate.lag))
            .fold(0.0, f64::max),
        shards: report.shards.iter().zip(&gates).map(shard).collect(),
        engagements_total: report.engagements,
        engagements: engagements.iter().map(|one| engagement(one, now)).collect(),
    }
}

fn shard((report, gate): (&ShardReport, &GateStatus)) -> ShardOverload {
    let tiers = report.tiers.iter().zip(&gate.tiers);
    ShardOverload {
        shard: report.shard.0,
        overloaded: report.engagement.is_some() || gate.is_overloaded(),
        classes: report.classes.iter().map(class).collect(),
        tiers: tiers.map(tier).collect(),
        queue: ShardQueue {
            limit: gate.limit,
            in_flight: gate.in_flight,
            waiting: gate.waiting() as u64,
            waiting_ru: gate.work.as_f64(),
        },
    }
}

fn class(report: &ClassReport) -> ClassLatency {
    ClassLatency {
        class: report.class.as_str().to_owned(),
        overloaded: report.is_engaged,
        ratio: report.ratio,
        p95_ms: report.p95_short.map(millis),
        normal_p95_ms: report.p95_long.map(millis),
        samples: report.short_samples,
        window_ms: whole_millis(report.short_window),
    }
}

fn tier((report, queue): (&TierReport, &TierStatus)) -> TierOverload {
    let by_queue = Why::ALL.into_iter().map(Why::as_str).zip(queue.tally.shed);
    let shed = [("penalty", report.shed)].into_iter().chain(by_queue);
    TierOverload {
        tier: report.tier.as_str().to_owned(),
        penalised: report.is_penalised,
        penalty: report.penalty,
        penalty_above: report.penalty_above,
        waiting: queue.waiting as u64,
        oldest_ms: millis(queue.oldest),
        overloaded: queue.overloaded_for.is_some(),
        shed: counts(shed),
    }
}

fn engagement(engagement: &Engagement, now: (Instant, Timestamp)) -> EngagementInfo {
    let age = now.0.saturating_duration_since(engagement.started);
    let shed = Criticality::ALL.map(Criticality::as_str).into_iter();
    EngagementInfo {
        number: engagement.number,
        shard: engagement.shard.0,
        class: engagement.class.as_str().to_owned(),
        tier_max: engagement.tier_max.map(|tier| tier.as_str().to_owned()),
        ratio: engagement.ratio,
        ratio_min: engagement.ratio_min,
        p95_ms: millis(engagement.p95_short),
        normal_p95_ms: millis(engagement.p95_long),
        started_at: now.1.as_millis().saturating_sub(whole_millis(age)),
        duration_ms: whole_millis(engagement.duration(now.0)),
        under_way: engagement.ended.is_none(),
        shed: counts(shed.zip(engagement.shed)),
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
