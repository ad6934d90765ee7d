//! What a scrape shows of overload, taken from the gates and the signal.
//!
//! Owns which of their figures are added up over the shards: what became of requests is, how things
//! stand is not.

use std::time::{Duration, Instant};

use umbo_shed::{GateStatus, OverloadReport, ShardReport, Why};
use umbo_telemetry::metrics::{ByTier, ClassGauges, GateGauges, OverloadGauges};

use crate::overload::{LATENCY_RATIO, Overload};

/// Signals that requests are shed by.
const SIGNALS: usize = 1 + Why::ALL.len();

/// Gates and signal at one instant.
#[derive(Debug)]
pub(crate) struct OverloadSample {
    gates: Vec<GateGauges>,
    classes: Vec<ClassGauges>,
    queued: ByTier<u64>,
    expired: ByTier<u64>,
    shed: [(&'static str, ByTier<u64>); SIGNALS],
    engagements: u64,
    lag: Duration,
}

impl OverloadSample {
    /// Asks the gates and the signal.
    pub(crate) fn take(overload: &Overload, now: Instant) -> Self {
        let report = overload.signal().report(now);
        let statuses = overload.statuses(now);
        let lags = statuses.iter().map(|status| status.lag);
        Self {
            gates: report.shards.iter().zip(&statuses).map(gate).collect(),
            classes: report.shards.iter().flat_map(classes).collect(),
            queued: total(&statuses, |status, tier| status.tiers[tier].tally.queued),
            expired: total(&statuses, |status, tier| status.tiers[tier].tally.expired),
            shed: shed(&report, &statuses),
            engagements: report.engagements,
            lag: lags.max().unwrap_or_default(),
        }
    }

    /// Returns the sample as a scrape takes it.
    pub(crate) fn gauges(&self) -> OverloadGauges<'_> {
        OverloadGauges {
            gates: &self.gates,
            classes: &self.classes,
            queued: self.queued,
            expired: self.expired,
            shed: &self.shed,
            engagements: self.engagements,
            lag_nanos: nanos(self.lag),
        }
    }
}

fn gate((report, status): (&ShardReport, &GateStatus)) -> GateGauges {
    let oldest = status.tiers.iter().map(|tier| tier.oldest).max();
    GateGauges {
        shard: report.shard.0,
        slots: status.limit,
        in_flight: status.in_flight,
        waiting: status.tiers.map(|tier| tier.waiting as u64),
        waiting_units: status.work,
        oldest_nanos: nanos(oldest.unwrap_or_default()),
        is_overloaded: report.engagement.is_some() || status.is_overloaded(),
    }
}

fn classes(report: &ShardReport) -> impl Iterator<Item = ClassGauges> {
    let shard = report.shard.0;
    report.classes.iter().map(move |class| ClassGauges {
        shard,
        class: class.class.as_str(),
        ratio: class.ratio,
        is_engaged: class.is_engaged,
    })
}

fn shed(
    report: &OverloadReport,
    statuses: &[GateStatus],
) -> [(&'static str, ByTier<u64>); SIGNALS] {
    std::array::from_fn(|at| match at.checked_sub(1) {
        None => (LATENCY_RATIO, report.shed),
        Some(why) => {
            let of_tier = |status: &GateStatus, tier: usize| status.tiers[tier].tally.shed[why];
            (Why::ALL[why].as_str(), total(statuses, of_tier))
        }
    })
}

/// Adds up over the shards.
fn total(statuses: &[GateStatus], pick: impl Fn(&GateStatus, usize) -> u64) -> ByTier<u64> {
    std::array::from_fn(|tier| statuses.iter().map(|status| pick(status, tier)).sum())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
