//! The input and the answers of a queue.

use std::time::{Duration, Instant};

use smallvec::SmallVec;
use umbo_types::{Criticality, Deadline, Operation, RequestUnits};

/// A request that wants a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Tier of the request.
    pub criticality: Criticality,
    /// A hash of the payer: the payers of a tier share it by request units.
    pub caller: u64,
    /// Estimate of the request.
    pub price: RequestUnits,
    /// When its client stops waiting for it.
    pub deadline: Deadline,
    /// Whether its caller has more than its fair share of the shard's busy time.
    pub is_above_share: bool,
}

/// A permit of a request in flight. Has to be given back by [`AdmissionQueue::leave`](crate::AdmissionQueue::leave).
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a permit that is not given back is lost"]
pub struct Permit {
    /// Permit time that was charged to the floor of the tier, in nanoseconds; 0 for others.
    pub(crate) floor_ns: u64,
    pub(crate) criticality: Criticality,
}

impl Permit {
    /// Returns whether it was issued because its tier had less than its floor, past higher tiers.
    pub const fn is_by_floor(&self) -> bool {
        self.floor_ns > 0
    }
}

/// How a request in flight ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOutcome {
    /// The store answered, well or not, within this time.
    Served {
        /// Its operation: times are compared with times of the same operation only.
        operation: Operation,
        /// From the permit to the answer.
        service_time: Duration,
    },
    /// Nothing can be learned: the store was not asked, or the client left.
    Unknown,
}

/// A request that waits, for [`AdmissionQueue::cancel`](crate::AdmissionQueue::cancel).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueTicket {
    pub(crate) index: u32,
    pub(crate) sequence: u64,
}

/// Why a request was shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ShedReason {
    /// Requests of the tier have waited too long for too long, or the runtime is late.
    Overload,
    /// The queue is full, by the number of requests.
    Length,
    /// The queue is full, by the sum of their estimates.
    Work,
    /// A higher tier took its place.
    Displaced,
    /// Its caller has used the part of its fair share that it is held to while the shard is under pressure.
    Share,
}

impl ShedReason {
    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::Overload,
        Self::Length,
        Self::Work,
        Self::Displaced,
        Self::Share,
    ];

    /// Returns the name used in answers and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overload => "queue-delay",
            Self::Length => "queue-length",
            Self::Work => "queue-work",
            Self::Displaced => "queue-displaced",
            Self::Share => "latency-ratio",
        }
    }
}

/// A request was shed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shed {
    /// Why.
    pub reason: ShedReason,
    /// Tier of the request.
    pub criticality: Criticality,
    /// How long its client should stay away: at least one interval, and longer while the overload lasts. Jitter is
    /// added where the client is answered.
    pub wait: Duration,
}

/// How the wait of a request ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// The request has a permit.
    Permit(Permit),
    /// The request is shed.
    Shed(Shed),
    /// The deadline of the request passed while it waited.
    Expired,
}

/// The answer of the queue to a request that enters.
#[derive(Debug, PartialEq, Eq)]
pub enum Entered {
    /// The request has a permit.
    Permit(Permit),
    /// The request waits, and will be woken with an admission.
    Queued(QueueTicket),
    /// The request is shed.
    Shed(Shed),
    /// The deadline of the request has passed.
    Expired,
}

/// Requests to wake, each with its admission. The queue has forgotten them: a permit in here is lost unless it is
/// delivered or given back.
pub type Wakeups<W> = SmallVec<[(W, Admission); 2]>;

/// Returns the place of a tier in arrays of all tiers.
pub(crate) const fn tier(criticality: Criticality) -> usize {
    criticality as usize
}

/// Returns the last instant at which an entry is worth serving.
pub(crate) fn last_instant(entry: &Entry) -> Instant {
    entry.deadline.instant()
}
