//! What all parts of the store share: the session, the layout, and what this process knows of the cluster.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lru::LruCache;
use scylla::client::session::Session;
use scylla::response::query_result::QueryResult;
use scylla::statement::prepared::PreparedStatement;
use tokio::runtime::Handle;
use tokio::sync::{Notify, RwLock};
use umbo_routing::ShardMap;
use umbo_store::{DatasetGroup, DatasetGroups, RecordsCopy, RecordsRevision, StoreError};
use umbo_types::limits::SLOTS;
use umbo_types::{BelievedClock, Clock, NamespaceId, ShardId, Timestamp};

use crate::bucket::BucketId;
use crate::cell::{BoundValue, int, small};
use crate::error::ClusterError;
use crate::guard::Guard;
use crate::hedge::HedgeBudget;
use crate::node_report::NodeReports;
use crate::queue::BucketQueue;
use crate::schema::Statements;
use crate::sizes::ShardSizes;

/// Guards that are remembered, so that the next commit of a bucket need not read its own: some 200 bytes each.
const GUARDS_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not 0");

/// What this process knows of a shard.
#[derive(Debug, Default)]
pub(crate) struct KnownShard {
    pub(crate) groups: Mutex<DatasetGroups>,
    pub(crate) sizes: Mutex<ShardSizes>,
    /// Mutations that wait for a commit.
    pub(crate) queued: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) mutations: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct BucketEngine {
    pub(crate) session: Session,
    pub(crate) hedges: Arc<HedgeBudget>,
    pub(crate) statements: Statements,
    pub(crate) keyspace: String,
    pub(crate) data_center: String,
    pub(crate) instance: u32,
    /// Name of this process in the guards: random.
    pub(crate) process: i64,
    pub(crate) buckets: u16,
    pub(crate) map: Arc<ShardMap>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) believed_clock: Mutex<BelievedClock>,
    pub(crate) shards: Vec<KnownShard>,
    pub(crate) queues: Mutex<HashMap<BucketId, BucketQueue>>,
    pub(crate) guards: Mutex<LruCache<BucketId, Guard>>,
    /// Held for reading by each commit, and for writing by a store that closes.
    pub(crate) admission: RwLock<()>,
    /// Held for reading by a commit of a load's run from its check of the fences to its end, and for writing by a keeper
    /// of records that has raised fences.
    pub(crate) runs: RwLock<()>,
    /// The runtime that the store was opened on, and whose threads commit: a load has threads of low priority.
    pub(crate) runtime: Handle,
    pub(crate) is_closing: AtomicBool,
    pub(crate) records: Mutex<Option<Arc<RecordsCopy>>>,
    /// Namespaces that are in the table of namespaces.
    pub(crate) namespaces: Mutex<HashSet<NamespaceId>>,
    /// By how much the clock of this process is ahead of the median of the nodes, in microseconds.
    pub(crate) clock_ahead: AtomicI64,
    /// What nodes tell of themselves.
    pub(crate) reports: Mutex<NodeReports>,
    /// Wakes the task that reclaims.
    pub(crate) reclaim: Arc<Notify>,
    /// Highest version that this process has given to a fast write.
    pub(crate) version_max: AtomicU64,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing here is left half done by a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn guards() -> Mutex<LruCache<BucketId, Guard>> {
    Mutex::new(LruCache::new(GUARDS_MAX))
}

impl BucketEngine {
    pub(crate) fn lock_guards(&self) -> MutexGuard<'_, LruCache<BucketId, Guard>> {
        lock(&self.guards)
    }

    pub(crate) fn shard(&self, id: ShardId) -> &KnownShard {
        &self.shards[usize::from(id.0)]
    }

    /// Returns the number of the bucket of a slot.
    pub(crate) const fn bucket_of(&self, slot: u16) -> u16 {
        slot / (SLOTS / self.buckets)
    }

    /// Returns the first slot of a bucket.
    pub(crate) const fn slots_begin(&self, bucket: u16) -> u16 {
        bucket * (SLOTS / self.buckets)
    }

    pub(crate) fn shard_of(&self, bucket: BucketId) -> ShardId {
        ShardId(bucket.number / (self.buckets / self.shards.len() as u16))
    }

    /// Returns the values of a statement, which has the three of the bucket in the middle.
    pub(crate) fn bound(
        &self,
        before: impl IntoIterator<Item = BoundValue>,
        bucket: BucketId,
        after: impl IntoIterator<Item = BoundValue>,
    ) -> Vec<BoundValue> {
        let number = small(bucket.number);
        let of_bucket = [int(self.instance), int(bucket.identity.0), number];
        let values = before.into_iter().chain(of_bucket);
        values.chain(after).collect()
    }

    pub(crate) async fn execute(
        &self,
        statement: &PreparedStatement,
        cells: Vec<BoundValue>,
    ) -> Result<QueryResult, ClusterError> {
        let begun = Instant::now();
        let sent = Box::pin(self.session.execute_unpaged(statement, cells));
        let answer = sent.await;
        if statement.get_is_idempotent() {
            self.hedges.pay(begun.elapsed());
        }
        Ok(answer?)
    }

    /// Refuses work for a fenced namespace.
    pub(crate) fn check_fence(
        &self,
        shard: ShardId,
        namespace: NamespaceId,
    ) -> Result<(), StoreError> {
        let records = lock(&self.records);
        match &*records {
            Some(copy) if copy.fences(namespace) => {
                Err(StoreError::NamespaceGone { shard, namespace })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a write that is not due yet by the believed time of day.
    pub(crate) fn check_due(
        &self,
        shard: ShardId,
        not_before: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let (wall, now) = (self.clock.wall(), self.clock.monotonic());
        let mut believed = lock(&self.believed_clock);
        believed.observe(wall, now);
        if not_before.is_some_and(|at| believed.time(wall, now) < at) {
            return Err(StoreError::TooEarly { shard });
        }
        Ok(())
    }

    /// Returns the datasets of the namespace of a bucket, or `None` if it has one.
    pub(crate) fn group_of(&self, bucket: BucketId) -> Option<DatasetGroup> {
        let groups = lock(&self.shard(self.shard_of(bucket)).groups);
        let mut groups = groups.groups().iter();
        groups
            .find(|group| group.identity == bucket.identity)
            .cloned()
    }

    /// Learns from a write, or from the guard of a bucket, that a dataset is live, and keeps that.
    pub(crate) async fn learn(
        &self,
        shard: ShardId,
        dataset: NamespaceId,
        epoch: u32,
    ) -> Result<(), ClusterError> {
        let identity = {
            let mut groups = lock(&self.shard(shard).groups);
            if !groups.learn(dataset, epoch) {
                return Ok(());
            }
            groups.of(dataset).map_or(dataset, |group| group.identity)
        };
        let cells = vec![
            crate::cell::big(epoch.into()),
            int(epoch),
            int(dataset.0),
            int(self.instance),
            small(shard.0),
            int(identity.0),
        ];
        self.execute(&self.statements.own.activate, cells).await?;
        Ok(())
    }

    /// Writes down that the namespace has buckets, before the first commit of one. Returns whether it was not known to
    /// have any; then the newest copy of the records has been read.
    pub(crate) async fn note_namespace(&self, identity: NamespaceId) -> Result<bool, ClusterError> {
        if lock(&self.namespaces).contains(&identity) {
            return Ok(false);
        }
        let cells = vec![int(self.instance), int(identity.0)];
        self.execute(&self.statements.own.add_namespace, cells)
            .await?;
        self.refresh_records().await?;
        lock(&self.namespaces).insert(identity);
        Ok(true)
    }

    /// Returns the revision of the records that this process knows.
    pub(crate) fn revision(&self) -> RecordsRevision {
        let known = lock(&self.records);
        known.as_ref().map(|copy| copy.revision).unwrap_or_default()
    }
}
