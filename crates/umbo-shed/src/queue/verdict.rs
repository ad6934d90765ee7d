//! What a gate is asked and what it answers.

use std::time::{Duration, Instant};

use smallvec::SmallVec;
use umbo_types::{Criticality, Deadline, Operation, RequestUnits};

/// A request that wants a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its tier.
    pub criticality: Criticality,
    /// A hash of whoever pays: callers of a tier share it by request units.
    pub caller: u64,
    /// Its estimate.
    pub price: RequestUnits,
    /// When nobody waits for it any more.
    pub deadline: Deadline,
}

/// A slot: somebody in flight. Has to be given back by [`Gate::leave`](crate::Gate::leave).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a slot that is not given back is lost"]
pub struct Grant {
    /// Slot time that was charged to the floor of the tier, in nanoseconds; 0 for others.
    pub(crate) floor_ns: u64,
    pub(crate) criticality: Criticality,
}

impl Grant {
    /// Says whether it was granted because its tier had less than its floor, past higher tiers.
    pub const fn is_by_floor(&self) -> bool {
        self.floor_ns > 0
    }
}

/// How a request in flight ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The store answered, well or not, within this time.
    Served {
        /// What it did: operations are compared with their own kind only.
        operation: Operation,
        /// From the slot to the answer.
        service_time: Duration,
    },
    /// Nothing can be learned: the store was not asked, or the client left.
    Unknown,
}

/// Who waits, for [`Gate::cancel`](crate::Gate::cancel).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) index: u32,
    pub(crate) sequence: u64,
}

/// Why a request was shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// Its tier has waited too long for too long.
    Overload,
    /// As many wait as may.
    Length,
    /// As much work waits as may.
    Work,
    /// A higher tier took its place.
    Displaced,
}

impl Why {
    /// All reasons.
    pub const ALL: [Self; 4] = [Self::Overload, Self::Length, Self::Work, Self::Displaced];

    /// Returns the name used in answers and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overload => "queue-delay",
            Self::Length => "queue-length",
            Self::Work => "queue-work",
            Self::Displaced => "queue-displaced",
        }
    }
}

/// That and why a request was shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shed {
    /// Why.
    pub why: Why,
    /// Its tier.
    pub criticality: Criticality,
    /// How long it should stay away, at least one interval: longer while the overload lasts. Whoever
    /// tells a client adds jitter.
    pub wait: Duration,
}

/// What becomes of whoever waited.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has a slot.
    Slot(Grant),
    /// It is shed.
    Shed(Shed),
    /// Its deadline passed while it waited.
    Expired,
}

/// What becomes of a request at the gate.
#[derive(Debug, PartialEq, Eq)]
pub enum Entered {
    /// It has a slot.
    Slot(Grant),
    /// It waits, and will be woken with a verdict.
    Queued(Ticket),
    /// It is shed.
    Shed(Shed),
    /// Its deadline has passed.
    Expired,
}

/// Who is to be woken, and with what. The gate has forgotten them: a slot in here is lost where it
/// is not delivered or given back.
pub type Woken<W> = SmallVec<[(W, Verdict); 2]>;

/// Returns the place of a tier in arrays of all tiers.
pub(crate) const fn tier(criticality: Criticality) -> usize {
    criticality as usize
}

/// The latest an entry is worth serving.
pub(crate) fn last_instant(entry: &Entry) -> Instant {
    entry.deadline.instant()
}
