//! The names of the fleet's counters, and the buckets that count for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use umbo_types::ShardId;

use crate::bucket::Bucket;
use crate::fleet_share::{FleetShare, Scale, UsedBuckets};
use crate::identity::Identities;
use crate::policy::Policy;
use crate::retry_ticket::OF_FLEET;
use crate::subject::Subject;

/// How the buckets of the scopes `fleet` and `shard` are joined to the buckets of other dispatchers.
#[derive(Debug)]
pub(crate) struct FleetCounters {
    /// Hashes a counter to the same name at all dispatchers.
    pub(crate) names: Identities,
    pub(crate) used: Arc<UsedBuckets>,
    /// Number of dispatchers.
    pub(crate) members: AtomicU32,
    /// Number of the first ticket of a bucket: other dispatchers number the tickets of the counter too.
    pub(crate) first_ticket: u32,
}

impl FleetCounters {
    /// Returns the share of each dispatcher while an owner knows no better.
    pub(crate) fn equal_share(&self) -> Scale {
        Scale::of(1, self.members.load(Relaxed).into())
    }

    /// Makes a new bucket count for the fleet.
    pub(crate) fn join(
        &self,
        mut bucket: Bucket,
        key: u128,
        policy: &Policy,
        subject: &Subject<'_>,
        shard: Option<ShardId>,
    ) -> Bucket {
        let counter = self.names.bucket(policy, subject, shard);
        let used = Arc::clone(&self.used);
        bucket.number_tickets_from(self.first_ticket);
        let made = std::mem::replace(&mut bucket.id, counter as u64 | OF_FLEET);
        bucket.shared(self.equal_share(), |level| {
            FleetShare::new((counter, made), key, used, level)
        })
    }
}
