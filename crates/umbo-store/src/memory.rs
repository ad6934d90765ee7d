//! The in-memory reference: the simplest implementation of the contract, to compare engines with and to run
//! the layers above a store without a disk.
//!
//! One mutex per shard over ordered maps, held for a whole operation and never across an await, so that every
//! chunk is a snapshot and every write is atomic. Keeps nothing across a restart; frees the space of expired
//! rows only when they are overwritten or deleted, or their namespace is fenced.

use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use umbo_routing::{ShardMap, ShardMapError};
use umbo_types::limits::MULTI_GET_BYTES_MAX;
use umbo_types::{BelievedClock, Clock, Deadline, Key, NamespaceId, Row, ShardId, Timestamp};

use crate::call::CallContext;
use crate::capabilities::{Capabilities, VersionOrder};
use crate::error::{StoreError, WriteError};
use crate::fencing_tokens::FencingToken;
use crate::large::ChunkRequest;
use crate::memory::shard::MemoryShard;
use crate::records::{RecordsCopy, RecordsKeeper, RecordsRevision};
use crate::report::{ShardState, ShardStatus, StoreReport};
use crate::request::{
    DeleteRangeRequest, Deleted, Page, RangeRequest, ScanPage, ScanRequest, WriteRequest, Written,
};
use crate::row_collector::RowCollector;
use crate::store::Store;

mod idempotency;
mod rows;
mod shard;
mod uploads;

/// A store that keeps its rows in memory.
#[derive(Debug)]
pub struct MemoryStore {
    map: Arc<ShardMap>,
    shards: Vec<Mutex<MemoryShard>>,
    versions: VersionOrder,
    clock: Arc<dyn Clock>,
    believed_clock: Mutex<BelievedClock>,
    /// The newest copy of Umbo's own records that was passed in; its fences apply.
    records: Mutex<Option<Arc<RecordsCopy>>>,
    is_closing: AtomicBool,
}

impl MemoryStore {
    /// Makes an empty store of `shards` shards that uses `clock` for expiry and deadlines, and whose versions
    /// grow along a shard.
    pub fn new(shards: u16, clock: Arc<dyn Clock>) -> Result<Self, ShardMapError> {
        Self::with_versions(VersionOrder::Shard, shards, clock)
    }

    /// Makes an empty store whose versions grow as `versions` says.
    pub fn with_versions(
        versions: VersionOrder,
        shards: u16,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ShardMapError> {
        let shard = |_| Mutex::new(MemoryShard::new(versions));
        Ok(Self {
            map: Arc::new(ShardMap::even(shards)?),
            shards: (0..shards).map(shard).collect(),
            versions,
            believed_clock: Mutex::new(BelievedClock::new(clock.wall(), clock.monotonic())),
            clock,
            records: Mutex::default(),
            is_closing: AtomicBool::new(false),
        })
    }

    fn lock_records(&self) -> MutexGuard<'_, Option<Arc<RecordsCopy>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses work for a fenced namespace. Must be called with the shard's lock held, so that admitted work
    /// is done before the fence is raised.
    fn check_fence(&self, shard: ShardId, namespace: NamespaceId) -> Result<(), StoreError> {
        let records = self.lock_records();
        match &*records {
            Some(copy) if copy.fences(namespace) => {
                Err(StoreError::NamespaceGone { shard, namespace })
            }
            _ => Ok(()),
        }
    }

    fn lock(&self, shard: ShardId) -> MutexGuard<'_, MemoryShard> {
        // A panic under the lock is a bug elsewhere; the rows are still consistent.
        self.shards[usize::from(shard.0)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks a shard for a write, unless its deadline has passed.
    fn lock_for_write(
        &self,
        shard: ShardId,
        namespace: NamespaceId,
        deadline: Option<Deadline>,
    ) -> Result<MutexGuard<'_, MemoryShard>, StoreError> {
        let locked = self.lock(shard);
        self.check_fence(shard, namespace)?;
        if self.is_closing.load(Ordering::SeqCst) {
            return Err(StoreError::Closing);
        }
        if deadline.is_some_and(|deadline| deadline.has_passed(self.clock.monotonic())) {
            return Err(StoreError::DeadlinePassed { shard });
        }
        Ok(locked)
    }

    /// Refuses a write that is not due yet by the believed time of day.
    fn check_due(&self, shard: ShardId, not_before: Option<Timestamp>) -> Result<(), StoreError> {
        let (wall, now) = (self.clock.wall(), self.clock.monotonic());
        let believed = self.believed_clock.lock();
        let mut believed = believed.unwrap_or_else(PoisonError::into_inner);
        believed.observe(wall, now);
        if not_before.is_some_and(|at| believed.time(wall, now) < at) {
            return Err(StoreError::TooEarly { shard });
        }
        Ok(())
    }

    /// Refuses a write of a run of a load if the load has ended, or a later run has written to the shard.
    fn begin_run<'a>(
        &self,
        id: ShardId,
        run: Option<FencingToken>,
        mut shard: MutexGuard<'a, MemoryShard>,
    ) -> Result<MutexGuard<'a, MemoryShard>, StoreError> {
        if let Some(run) = run {
            self.check_fence(id, run.load)?;
            if !shard.runs.admits(run) {
                return Err(StoreError::Overtaken { shard: id });
            }
            let has_ended = |load| self.check_fence(id, load).is_err();
            shard.runs.begin(run, has_ended);
        }
        Ok(shard)
    }

    fn read(
        &self,
        call: &CallContext,
        id: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        call.check(&self.map, id, namespace, &key.partition)?;
        let shard = self.lock(id);
        self.check_fence(id, namespace)?;
        Ok(shard.visible(namespace, key, self.clock.wall()).cloned())
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn shard_map(&self) -> Arc<ShardMap> {
        Arc::clone(&self.map)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            answers_at_once: true,
            versions: self.versions,
            backups: false,
            ..Capabilities::ONE_WRITER
        }
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.read(call, shard, namespace, key)
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let partitions = keys.iter().map(|key| &key.partition);
        if let Err(error) = call.check_all(&self.map, shard, namespace, partitions) {
            return vec![Err(error); keys.len()];
        }
        let (mut rows, mut room) = (Vec::new(), MULTI_GET_BYTES_MAX);
        for key in keys {
            let row = self.read(call, shard, namespace, key);
            let found = row.as_ref().ok().and_then(Option::as_ref);
            let len = found.map_or(0, |row| row.value.bytes.len());
            rows.push(row);
            match room.checked_sub(len).filter(|&left| left > 0) {
                Some(left) => room = left,
                None => break,
            }
        }
        rows
    }

    async fn range(
        &self,
        call: &CallContext,
        id: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        call.check(&self.map, id, request.namespace, &request.partition)?;
        let shard = self.lock(id);
        self.check_fence(id, request.namespace)?;
        Ok(shard.range(request, self.clock.wall()))
    }

    async fn scan(
        &self,
        call: &CallContext,
        id: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        call.check_all(&self.map, id, request.namespace, iter::empty())?;
        let mut chunk = RowCollector::new(request.rows_max, request.bytes_max, request.keys_only);
        let is_wanted = |partition: &_| {
            let slot = self.map.slot(request.namespace, partition);
            request.slots.contains(&slot.index())
        };
        if usize::from(id.0) >= self.shards.len() {
            return Err(StoreError::no_such_shard(id));
        }
        let (after, now) = (request.after.as_ref(), self.clock.wall());
        let shard = self.lock(id);
        self.check_fence(id, request.namespace)?;
        shard.scan(request.namespace, after, is_wanted, now, &mut chunk);
        drop(shard);
        let (rows, resume_after, touched) = chunk.finish();
        Ok(ScanPage {
            rows,
            resume_after,
            touched,
        })
    }

    async fn chunk(
        &self,
        call: &CallContext,
        id: ShardId,
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        call.check(&self.map, id, request.namespace, &key.partition)?;
        let shard = self.lock(id);
        self.check_fence(id, request.namespace)?;
        Ok(shard.chunk(request))
    }

    async fn write(
        &self,
        call: &CallContext,
        id: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        let partitions = request.mutations.iter().map(|one| &one.key.partition);
        let checked = call.check_all(&self.map, id, request.namespace, partitions);
        let is_due = self.check_due(id, request.not_before);
        let locked = checked
            .and_then(|()| self.lock_for_write(id, request.namespace, call.deadline))
            .and_then(|shard| is_due.map(|()| shard))
            .and_then(|shard| self.begin_run(id, request.run, shard));
        match locked {
            Ok(mut shard) => shard.write(&request, self.clock.wall()),
            Err(error) => vec![Err(error.into()); request.mutations.len()],
        }
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        id: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        call.check(&self.map, id, request.namespace, &request.partition)?;
        let mut shard = self.lock_for_write(id, request.namespace, call.deadline)?;
        Ok(shard.delete_range(&request, self.clock.wall()))
    }

    async fn close(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        // A write that saw the store open holds its shard's lock until it is done.
        for id in 0..self.shards.len() as u16 {
            drop(self.lock(ShardId(id)));
        }
    }
}

#[async_trait]
impl RecordsKeeper for MemoryStore {
    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)> {
        let newest = {
            let mut kept = self.lock_records();
            if kept
                .as_ref()
                .is_none_or(|kept| kept.revision < copy.revision)
            {
                *kept = Some(Arc::clone(&copy));
            }
            kept.clone().unwrap_or(copy)
        };
        newest.place_datasets(&self.map);
        let ids = (0..self.shards.len() as u16).map(ShardId);
        ids.map(|id| {
            // Work that was admitted before the fence has released the lock by then.
            let mut shard = self.lock(id);
            shard.adopt(&newest);
            shard.purge(|namespace| newest.fences(namespace));
            shard.sweep_uploads(self.clock.wall());
            (id, Ok(()))
        })
        .collect()
    }

    async fn kept_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError> {
        Ok(self.lock_records().clone())
    }

    fn is_fenced(&self, namespace: NamespaceId) -> bool {
        let kept = self.lock_records();
        kept.as_ref().is_some_and(|copy| copy.fences(namespace))
    }

    fn records_revision(&self) -> RecordsRevision {
        let kept = self.lock_records();
        kept.as_ref().map(|copy| copy.revision).unwrap_or_default()
    }
}

impl StoreReport for MemoryStore {
    fn status(&self) -> Vec<ShardStatus> {
        (0..self.shards.len() as u16)
            .map(|id| {
                let shard = self.lock(ShardId(id));
                ShardStatus {
                    rows: shard.rows(),
                    commits: shard.changes().0,
                    mutations: shard.changes().1,
                    namespace_max: shard.namespace_max(),
                    sizes: Some(shard.sizes()),
                    ..ShardStatus::new(ShardId(id), ShardState::Available)
                }
            })
            .collect()
    }
}
