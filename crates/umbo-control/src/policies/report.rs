//! Reports of the limiter on policies, for operators.
//!
//! Inside, everything is counted in atoms; people and graphs get units.

use umbo_api::quota::{PolicyCounters, PolicyInfo, QuotaUser, SimulateAnswer, SimulateRow};
use umbo_quota::{BucketReport, Dimension, Policy, PolicyReport, Replay, ReplayRow, Unit};
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

pub(super) fn simulated(policy: &Policy, replay: Replay) -> SimulateAnswer {
    let mut rows = replay.rows;
    rows.sort_by(|one, other| {
        let key = |row: &ReplayRow| (std::cmp::Reverse(row.refused), row.label.clone());
        key(one).cmp(&key(other))
    });
    let sum = |of: fn(&ReplayRow) -> u64| rows.iter().map(of).sum();
    let row = |row: &ReplayRow| SimulateRow {
        label: row.label.clone(),
        requests: row.requests,
        rejected: row.refused,
        ru: row.asked.as_f64(),
        rejected_amount: policy.unit.as_f64(row.refused_amount),
    };
    SimulateAnswer {
        policy: policy.spec(),
        seconds: replay.reach.as_secs_f64(),
        requests: sum(|row| row.requests),
        rejected: sum(|row| row.refused),
        rows: rows.iter().take(ROWS_MAX).map(row).collect(),
        notes: notes(policy, replay.missed),
    }
}

/// Returns notes on the limits of a simulation's figures.
fn notes(policy: &Policy, missed: u64) -> Vec<String> {
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
    if missed > 0 {
        notes.push(format!("the record had no room for {missed} requests"));
    }
    notes
}
