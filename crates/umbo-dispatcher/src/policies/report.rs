//! What the limiter knows of policies, as operators are shown it.
//!
//! Inside, everything is counted in atoms; people and graphs get units.

use umbo_api::quantity::Quantity;
use umbo_api::quota::{
    PolicyCounters, PolicyInfo, QuotaLimit, QuotaUser, SimulateAnswer, SimulateRow,
};
use umbo_quota::{
    BucketReport, Limit, Policy, PolicyReport, Replay, ReplayRow, Unit, format_amount,
};
use umbo_types::Version;

use crate::quota_spec::{source_of, spec_of};

/// Rows of a simulation that are shown; the sums are over all of them.
const ROWS_MAX: usize = 1_000;

pub(super) fn info(report: &PolicyReport, version: Option<Version>) -> PolicyInfo {
    PolicyInfo {
        policy: spec_of(&report.policy),
        source: source_of(report.policy.source),
        version: version.map(|version| version.0),
        counters: PolicyCounters {
            rejected: report.rejected,
            shadow_rejected: report.shadow_rejected,
            buckets: report.buckets,
            utilisation: report.utilisation,
        },
    }
}

pub(super) fn user(unit: Unit, bucket: BucketReport) -> QuotaUser {
    let balance = units(unit, bucket.balance.unsigned_abs());
    QuotaUser {
        label: bucket.label,
        limit: limit(unit, bucket.limit),
        balance: if bucket.balance < 0 {
            -balance
        } else {
            balance
        },
        observed: units(unit, bucket.observed),
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
        rejected_amount: units(policy.unit, row.refused_amount),
    };
    SimulateAnswer {
        policy: spec_of(policy),
        seconds: replay.reach.as_secs_f64(),
        requests: sum(|row| row.requests),
        rejected: sum(|row| row.refused),
        rows: rows.iter().take(ROWS_MAX).map(row).collect(),
    }
}

fn limit(unit: Unit, limit: Limit) -> QuotaLimit {
    QuotaLimit {
        rate: Quantity::number(format_amount(unit, limit.rate)),
        burst: Quantity::number(format_amount(unit, limit.burst)),
        unit: unit.as_str().to_owned(),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people and graphs")]
fn units(unit: Unit, atoms: u64) -> f64 {
    atoms as f64 / unit.atoms_per_unit() as f64
}
