//! Reports of the limiter on policies, for operators.
//!
//! Inside, everything is counted in atoms; people and graphs get units.

use std::cmp::Reverse;

use umbo_api::quota::{
    PolicyCounters, PolicyInfo, QuotaUser, SimulateAnswer, SimulateRow, SimulatedRange,
};
use umbo_quota::{
    BucketReport, Dimension, Policy, PolicyReport, Replay, ReplayRange, ReplayRow, STEP_SECONDS,
    Unit,
};
use umbo_types::{Attribute, Version};

/// Rows of a simulation that are shown; the sums are over all of them.
const ROWS_MAX: usize = 1_000;

/// Without a report the policy has just been put into effect and has counted nothing yet.
pub(super) fn info(
    policy: &Policy,
    version: Option<Version>,
    report: Option<&PolicyReport>,
) -> PolicyInfo {
    let counters = report.map(|report| PolicyCounters {
        rejected: report.rejected,
        shadow_rejected: report.shadow_rejected,
        buckets: report.buckets,
        utilisation: report.utilisation,
    });
    PolicyInfo {
        policy: policy.spec(),
        source: policy.source,
        version: version.map(|version| version.0),
        counters: counters.unwrap_or_default(),
    }
}

pub(super) fn user(unit: Unit, bucket: BucketReport) -> QuotaUser {
    let balance = unit.as_f64(bucket.balance.unsigned_abs());
    QuotaUser {
        label: bucket.label,
        limit: bucket.limit.written(unit),
        balance: if bucket.balance < 0 {
            -balance
        } else {
            balance
        },
        observed: unit.as_f64(bucket.observed),
        rejected: bucket.rejected,
    }
}

/// Returns the answer to a simulation. `unreadable` rows of the record were left out.
pub fn simulated(policy: &Policy, replay: Replay, unreadable: u64) -> SimulateAnswer {
    let mut rows = replay.rows;
    rows.sort_by(|one, other| {
        let highest = |row: &ReplayRow| row.range.map(|range| range.highest);
        let most = |row: &ReplayRow| Reverse((row.refused, highest(row)));
        let key = |row: &ReplayRow| (most(row), row.label.clone());
        key(one).cmp(&key(other))
    });
    let sum = |of: fn(&ReplayRow) -> u64| rows.iter().map(of).sum();
    let row = |row: &ReplayRow| SimulateRow {
        label: row.label.clone(),
        requests: row.requests,
        rejected: row.refused,
        ru: row.asked.as_f64(),
        rejected_amount: policy.unit.as_f64(row.refused_amount),
        range: row
            .range
            .map(|range| told(policy.unit, row.refused_amount, &range)),
    };
    let mut ranges = rows.iter().filter_map(|row| row.range);
    let whole = ranges.next().map(|mut whole| {
        ranges.for_each(|range| whole.add(&range));
        told(policy.unit, sum(|row| row.refused_amount), &whole)
    });
    SimulateAnswer {
        policy: policy.spec(),
        seconds: replay.reach.as_secs_f64(),
        requests: sum(|row| row.requests),
        rejected: sum(|row| row.refused),
        rows: rows.iter().take(ROWS_MAX).map(row).collect(),
        range: whole,
        notes: notes(policy, &rows, (replay.missed, unreadable)),
    }
}

fn told(unit: Unit, lowest: u64, range: &ReplayRange) -> SimulatedRange {
    let (step, least, most) = range.worst;
    SimulatedRange {
        lowest: unit.as_f64(lowest),
        highest: unit.as_f64(range.highest),
        worst_at_ms: (most > 0).then_some(step * STEP_SECONDS * 1_000),
        worst_lowest: unit.as_f64(least),
        worst_highest: unit.as_f64(most),
    }
}

/// Returns notes on the limits of a simulation's figures.
fn notes(policy: &Policy, rows: &[ReplayRow], (missed, unreadable): (u64, u64)) -> Vec<String> {
    let unrecorded = Attribute::ALL.map(Dimension::Attribute);
    let dimensions = policy.matches.dimensions();
    let is_named = |one| policy.per.contains(one) || dimensions.contains(one);
    let mut notes = Vec::new();
    if let Some(one) = unrecorded.into_iter().find(|one| is_named(*one)) {
        notes.push(format!(
            "the recorded requests have no {one}, so this policy matches no request"
        ));
    }
    if policy.per.contains(Dimension::Shard) {
        notes.push("the work is assumed to be spread evenly over the shards".to_owned());
    }
    if rows.iter().any(|row| row.range.is_some()) {
        let steps = "kept usage tells no order within ten minutes: rejected amounts are a range, and rejected \
                     requests the least, if requests of a step cost the same";
        notes.push(steps.to_owned());
        if policy.unit != Unit::Ru {
            let unit = policy.unit.as_str();
            notes.push(format!(
                "kept usage has no greatest second in {unit}, so the range is wide"
            ));
        }
    }
    if unreadable > 0 {
        notes.push(format!("{unreadable} rows of kept usage could not be read"));
    }
    if missed > 0 {
        notes.push(format!("the record had no room for {missed} requests"));
    }
    notes
}
