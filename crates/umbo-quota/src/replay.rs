//! Tries a proposed policy on the recorded demand, and counts the refusals.
//!
//! Uses real buckets under the times of the record. Within a slot the requests of a track are spread evenly, each at
//! the average price of the slot, so that bursts shorter than a slot are smoothed away. A refused client is taken not
//! to have come back. Users, sessions and organisations are not recorded, so that a policy on them counts nothing. A
//! policy that counts by shard is tried as if work were spread evenly over the shards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use umbo_types::{Attributes, Operation, RequestUnits};

use crate::bucket::Bucket;
use crate::cost::is_counted;
use crate::dimension::Dimension;
use crate::history::{Demand, DemandHistory, SLOT_MS, TrackId};
use crate::identity::label;
use crate::policy::Policy;
use crate::schedule::{Millis, Schedule};
use crate::subject::Subject;
use crate::unit::Unit;

/// Steps of a slot. A step has the length of the default refill.
const STEPS: u64 = 100;

/// The outcome of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replay {
    /// How far back the record reaches.
    pub reach: Duration,
    /// The buckets that would have been asked.
    pub rows: Vec<ReplayRow>,
    /// Requests of any caller that were not recorded because there was no room.
    pub missed: u64,
}

/// The outcome of a replay for one bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplayRow {
    /// Dimension values of the bucket.
    pub label: String,
    /// Requests of the record.
    pub requests: u64,
    /// Requests that would have been refused.
    pub refused: u64,
    /// Demand in request units, charged or not.
    pub asked: RequestUnits,
    /// Demand in the unit of the policy, in atoms.
    pub asked_amount: u64,
    /// Part of `asked_amount` that would have been refused; the least that is possible, if there is a range.
    pub refused_amount: u64,
    /// The range, if the record does not tell the amount.
    pub range: Option<ReplayRange>,
}

/// What a policy would have refused, as kept usage tells it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayRange {
    /// The most that may have been refused, in atoms.
    pub highest: u64,
    /// The step of ten minutes with the most, and the least and the most in it.
    pub worst: (u64, u64, u64),
}

impl ReplayRange {
    /// Sees a step.
    pub(crate) fn see(&mut self, step: u64, lowest: u64, highest: u64) {
        let (_, least, most) = self.worst;
        if (highest, lowest) > (most, least) {
            self.worst = (step, lowest, highest);
        }
    }

    /// Adds the range of another bucket; the worse of both worst steps stays.
    pub fn add(&mut self, other: &Self) {
        self.highest = self.highest.saturating_add(other.highest);
        let (step, lowest, highest) = other.worst;
        self.see(step, lowest, highest);
    }
}

impl ReplayRow {
    /// Adds the row of a bucket with the same dimension values, at another process.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.asked = self.asked.saturating_add(other.asked);
        self.asked_amount = self.asked_amount.saturating_add(other.asked_amount);
        self.refused_amount = self.refused_amount.saturating_add(other.refused_amount);
        if let (Some(range), Some(other)) = (&mut self.range, &other.range) {
            range.add(other);
        }
    }
}

/// Tries a policy on a record.
pub(crate) fn replay(
    history: &DemandHistory,
    policy: &Policy,
    shards: u16,
    last: Duration,
) -> Replay {
    let slots = u64::try_from(last.as_millis())
        .unwrap_or(u64::MAX)
        .div_ceil(SLOT_MS);
    let first = history.current().saturating_sub(slots);
    let parts = if policy.per.contains(Dimension::Shard) {
        shards.max(1)
    } else {
        1
    };
    let mut rows: BTreeMap<String, Vec<(u64, SlotDemand, RequestUnits)>> = BTreeMap::new();
    let mut limits = BTreeMap::new();
    let mut oldest = history.current();
    for (id, track) in &history.tracks {
        let subject = subject_of(id, &track.namespace);
        let counts = policy.matches.operations.contains(id.operation)
            && is_counted(policy.unit, id.operation);
        if !counts || !policy.applies_to(&subject) {
            continue;
        }
        let name = label(policy, &subject, None).replace("shard=-", "each shard");
        limits.insert(name.clone(), policy.limit_for(&subject));
        let asks = rows.entry(name).or_default();
        for slot in track.slots.iter().filter(|slot| slot.number >= first) {
            oldest = oldest.min(slot.number);
            let ask = SlotDemand::of((policy.unit, id.operation), &slot.demand, u64::from(parts));
            asks.push((slot.number, ask, RequestUnits::from_micros(slot.demand.ru)));
        }
    }
    let rows = rows.into_iter().filter(|(_, asks)| !asks.is_empty());
    Replay {
        reach: Duration::from_millis((history.current() - oldest) * SLOT_MS),
        rows: rows
            .map(|(name, asks)| try_row(policy, limits[&name], name, asks, u64::from(parts)))
            .collect(),
        missed: history.missed,
    }
}

/// The demand of a slot on one bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotDemand {
    pub(crate) requests: u64,
    pub(crate) amount: u64,
}

impl SlotDemand {
    pub(crate) fn of((unit, operation): (Unit, Operation), demand: &Demand, parts: u64) -> Self {
        let counted = |number: u64| number.saturating_mul(unit.atoms_per_unit());
        let amount = match unit {
            Unit::Ru => demand.ru,
            Unit::Requests => counted(demand.requests),
            // A range or scan is one read, however many rows it has.
            Unit::Reads if matches!(operation, Operation::Range | Operation::Scan) => {
                counted(demand.requests)
            }
            Unit::Reads | Unit::Writes => counted(demand.rows.max(demand.requests)),
            Unit::ReadBytes | Unit::WriteBytes | Unit::Bytes => demand.bytes,
        };
        Self {
            requests: demand.requests,
            amount: amount / parts,
        }
    }
}

fn try_row(
    policy: &Policy,
    limit: crate::policy::Limit,
    label: String,
    mut asks: Vec<(u64, SlotDemand, RequestUnits)>,
    parts: u64,
) -> ReplayRow {
    asks.sort_by_key(|(number, ..)| *number);
    let begin = Millis(asks[0].0 * SLOT_MS);
    let schedule = Arc::new(Schedule::begin(limit, policy.refill));
    let bucket = Bucket::new(0, 0, policy, label.as_str().into(), &schedule, begin);
    let mut row = ReplayRow {
        label,
        ..ReplayRow::default()
    };
    for (_, ask, ru) in &asks {
        row.requests += ask.requests;
        row.asked = row.asked.saturating_add(*ru);
        row.asked_amount = row
            .asked_amount
            .saturating_add(ask.amount.saturating_mul(parts));
    }
    for slot in asks.chunk_by(|one, other| one.0 == other.0) {
        for step in 0..STEPS {
            let now = Millis(slot[0].0 * SLOT_MS + step * SLOT_MS / STEPS);
            for (_, ask, _) in slot {
                let part = |whole: u64| whole * (step + 1) / STEPS - whole * step / STEPS;
                let requests = part(ask.requests);
                if requests > 0 {
                    let price = (ask.amount / ask.requests.max(1)).max(1);
                    let refused = refused_of(&bucket, requests, price, now);
                    row.refused += refused;
                    row.refused_amount += refused * price * parts;
                }
            }
        }
    }
    row
}

/// Asks a bucket for several requests of one price at once; returns how many it refuses.
fn refused_of(bucket: &Bucket, requests: u64, price: u64, now: Millis) -> u64 {
    let balance = u64::try_from(bucket.balance(now)).unwrap_or(0);
    let admitted = balance.div_ceil(price).min(requests);
    if admitted > 0 && bucket.debit(&bucket.schedule(), price, now, None).is_err() {
        return requests;
    }
    if admitted > 1 {
        bucket.adjust(((admitted - 1) * price).cast_signed());
    }
    requests - admitted
}

fn subject_of<'a>(id: &'a TrackId, namespace: &'a str) -> Subject<'a> {
    Subject {
        caller: &id.caller,
        namespace,
        namespace_id: id.namespace_id,
        attributes: Attributes::NONE,
        operation: id.operation,
    }
}
