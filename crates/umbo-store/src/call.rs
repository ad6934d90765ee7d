//! The context of a call of a store: caller, criticality and deadline, and the service time and busy time of the call.
//!
//! An embedded store uses little of it; a remote store sends it to the node.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use umbo_routing::{ShardMap, Slot};
use umbo_types::{
    CallerId, Criticality, Deadline, NamespaceId, PartitionKey, RequestUnits, ShardId,
};

use crate::error::StoreError;
use crate::give_way::{GIVES_WAY_EVERY, give_way};

/// Bytes that a row adds to its own for its share of a commit's time: the length of a page.
const ROW_WEIGHT: u64 = 4_096;

/// The duration of a commit, and the share of one piece of its work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitTime {
    /// The duration of the commit.
    pub took: Duration,
    /// The part of it that the piece of work is charged.
    pub share: Duration,
}

impl CommitTime {
    /// Returns what a piece of work counts in its commit, in bytes.
    pub const fn weight(rows: u64, bytes: u64) -> u64 {
        bytes.saturating_add(rows.saturating_mul(ROW_WEIGHT))
    }

    /// Divides the duration of a commit by the weight of a piece of work in the weight of all.
    pub fn share_of(took: Duration, weight: u64, all: u64) -> Self {
        let nanos = took.as_nanos() * u128::from(weight) / u128::from(all.max(1));
        let share = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Self { took, share }
    }
}

/// Context of one call of a store.
#[derive(Debug)]
pub struct CallContext {
    /// The deadline. A write that has not begun by then is refused with
    /// [`crate::StoreError::DeadlinePassed`]; without one only the bounds of the engine apply.
    pub deadline: Option<Deadline>,
    /// Criticality of the call.
    pub criticality: Criticality,
    /// The caller, or `None` for calls of Umbo itself.
    pub caller: Option<CallerId>,
    /// Estimated cost of the request that the call belongs to.
    pub price: RequestUnits,
    /// The namespace that the caller of the store used to place the dataset of the call. `None` if the caller and the
    /// store use one list of placements. A store that places the dataset by another namespace refuses the call before
    /// it begins.
    pub placed_as: Option<NamespaceId>,
    /// Trace context, as in a `traceparent` header, or `None` if the request is not sampled.
    pub traceparent: Option<Box<str>>,
    /// In nanoseconds; 0 until it is known.
    service_time: AtomicU64,
    /// In nanoseconds; 0 until it is known.
    busy_time: AtomicU64,
    retries: AtomicU32,
}

impl CallContext {
    /// Makes the context of a call of Umbo itself. No caller pays for it, and it is never shed.
    pub const fn internal() -> Self {
        Self {
            deadline: None,
            criticality: Criticality::CriticalPlus,
            caller: None,
            price: RequestUnits::ZERO,
            placed_as: None,
            traceparent: None,
            service_time: AtomicU64::new(0),
            busy_time: AtomicU64::new(0),
            retries: AtomicU32::new(0),
        }
    }

    /// Returns the same context with a deadline.
    pub const fn internal_until(deadline: Deadline) -> Self {
        let mut call = Self::internal();
        call.deadline = Some(deadline);
        call
    }

    /// Refuses a call of a shard for a partition of another one, and a call whose dataset was placed differently.
    pub fn check(
        &self,
        map: &ShardMap,
        shard: ShardId,
        dataset: NamespaceId,
        partition: &PartitionKey,
    ) -> Result<(), StoreError> {
        self.check_all(map, shard, dataset, std::iter::once(partition))
    }

    /// Refuses a call of a shard as [`Self::check`] does, if any of its partitions is of another one.
    pub fn check_all<'a>(
        &self,
        map: &ShardMap,
        shard: ShardId,
        dataset: NamespaceId,
        partitions: impl Iterator<Item = &'a PartitionKey>,
    ) -> Result<(), StoreError> {
        let placed_as = map.placements().agreed(dataset, self.placed_as);
        let placed_as = placed_as.map_err(|misplaced| StoreError::misplaced(misplaced, shard))?;
        for (index, partition) in partitions.enumerate() {
            give_way(index, GIVES_WAY_EVERY);
            let owner = map.owner(Slot::of(placed_as, partition));
            if owner != shard {
                return Err(StoreError::of_other_shard(shard, owner));
            }
        }
        Ok(())
    }

    /// Records that the call was sent once more, after it certainly had no effect or because it only reads.
    pub fn note_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often the call was sent once more; 0 for a store in this process.
    pub fn retries(&self) -> u32 {
        self.retries.load(Ordering::Relaxed)
    }

    /// Records the service time of the shard itself, if it is known apart from the network time. Adds up over
    /// parts.
    pub fn note_service_time(&self, time: Duration) {
        self.note_shared_time(time, time);
    }

    /// Records the service time of work that was done for several calls at once, and the share of this call. Adds up
    /// over parts.
    pub fn note_shared_time(&self, service_time: Duration, share: Duration) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
        self.service_time
            .fetch_add(nanos(service_time), Ordering::Relaxed);
        self.busy_time.fetch_add(nanos(share), Ordering::Relaxed);
    }

    /// Records the duration of a commit and the share of this call, unless nothing was committed.
    pub fn note_commit(&self, time: CommitTime) {
        if time != CommitTime::default() {
            self.note_shared_time(time.took, time.share);
        }
    }

    /// Records that a node did not serve the call: the time that the call waits for it is not work of its shard, and is
    /// not charged.
    pub fn note_unserved(&self) {
        self.busy_time.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the service time of the shard itself, or `None` if it equals the call's duration.
    pub fn service_time(&self) -> Option<Duration> {
        let nanos = self.service_time.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Returns how long the shard worked for this call alone. The call is charged for this time. In a commit of several
    /// writes it is the share of this write. `None` if it equals the call's duration.
    pub fn busy_time(&self) -> Option<Duration> {
        let nanos = self.busy_time.load(Ordering::Relaxed);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }
}

impl Default for CallContext {
    /// The context of a call without a caller and without a deadline.
    fn default() -> Self {
        Self {
            criticality: Criticality::default(),
            ..Self::internal()
        }
    }
}
