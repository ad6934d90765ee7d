//! The demand of the last hour in slots of five seconds, so that a proposed policy can be tried on it before it hurts
//! any client.
//!
//! Kept by caller, namespace and operation. Only slots with requests are kept, and their number is bounded. Requests
//! that do not fit are counted, so that a replay can say how much it has seen.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use umbo_types::{NamespaceId, Operation};

use crate::caller_state::CallerNamespaceUsage;
use crate::report::Tally;
use crate::schedule::Millis;

/// Length of a slot, in milliseconds.
pub(crate) const SLOT_MS: u64 = 5_000;
/// How far the record reaches, in seconds: an hour.
pub const HISTORY_SECONDS: u64 = 3_600;
const SLOTS_KEPT: u64 = HISTORY_SECONDS * 1_000 / SLOT_MS;
/// Slots of all tracks together; 48 bytes each.
const SLOTS_MAX: usize = 200_000;

/// The record of a dispatcher.
#[derive(Debug, Default)]
pub(crate) struct DemandHistory {
    slot: u64,
    slots: usize,
    pub(crate) tracks: HashMap<TrackId, Track>,
    /// Requests that were not recorded because there was no room.
    pub(crate) missed: u64,
}

/// The caller, namespace and operation of a track.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TrackId {
    pub(crate) caller: Arc<str>,
    pub(crate) namespace_id: NamespaceId,
    pub(crate) operation: Operation,
}

/// The requests of one caller in a namespace with one operation.
#[derive(Debug, Default)]
pub(crate) struct Track {
    pub(crate) namespace: Arc<str>,
    seen: Demand,
    pub(crate) slots: VecDeque<DemandSlot>,
}

/// The demand of a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DemandSlot {
    pub(crate) number: u64,
    pub(crate) demand: Demand,
}

/// Requests and their work. Rejected requests count with the average work of the others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) requests: u64,
    pub(crate) ru: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl DemandHistory {
    /// Begins the next slot if it is time; returns whether it did.
    pub(crate) fn advance(&mut self, now: Millis) -> bool {
        let slot = now.0 / SLOT_MS;
        if slot <= self.slot {
            return false;
        }
        self.slot = slot;
        let oldest = slot.saturating_sub(SLOTS_KEPT);
        for track in self.tracks.values_mut() {
            while track.slots.front().is_some_and(|slot| slot.number < oldest) {
                track.slots.pop_front();
                self.slots -= 1;
            }
        }
        true
    }

    /// Records what an account asked for since the last slot.
    pub(crate) fn note(&mut self, record: &CallerNamespaceUsage) {
        for operation in Operation::PRICED {
            let total = Demand::of(&record.cell(operation).tally(operation));
            if total == Demand::default() {
                continue;
            }
            let id = TrackId {
                caller: Arc::clone(&record.caller),
                namespace_id: record.namespace_id,
                operation,
            };
            let track = self.tracks.entry(id).or_insert_with(|| Track {
                namespace: Arc::clone(&record.namespace),
                ..Track::default()
            });
            // An account that was forgotten and came back counts from nothing again.
            let is_anew = total.requests < track.seen.requests;
            let before = if is_anew {
                Demand::default()
            } else {
                track.seen
            };
            track.seen = total;
            let demand = total.minus(&before);
            if demand.requests == 0 {
                continue;
            }
            if self.slots >= SLOTS_MAX {
                self.missed += demand.requests;
                continue;
            }
            self.slots += 1;
            let number = self.slot - 1;
            track.slots.push_back(DemandSlot { number, demand });
        }
    }

    /// Forgets tracks without slots whose account is gone. While the account is there its track stays: a new track
    /// would put all that the account has counted so far into one slot.
    pub(crate) fn forget_idle(&mut self) {
        self.tracks
            .retain(|id, track| !track.slots.is_empty() || Arc::strong_count(&id.caller) > 1);
    }

    /// Returns the number of the slot that has not ended.
    pub(crate) const fn current(&self) -> u64 {
        self.slot
    }
}

impl Demand {
    /// Returns the demand that was counted.
    pub(crate) fn of(tally: &Tally) -> Self {
        let with_rejected = |amount: u64| {
            if tally.requests == 0 {
                return amount;
            }
            let all = u128::from(tally.requests) + u128::from(tally.rejected);
            u64::try_from(u128::from(amount) * all / u128::from(tally.requests)).unwrap_or(u64::MAX)
        };
        Self {
            requests: tally.requests.saturating_add(tally.rejected),
            ru: with_rejected(tally.charged.saturating_sub(tally.penalty).as_micros()),
            rows: with_rejected(tally.rows),
            bytes: with_rejected(tally.read_bytes + tally.write_bytes),
        }
    }

    fn minus(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            ru: self.ru.saturating_sub(before.ru),
            rows: self.rows.saturating_sub(before.rows),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}
