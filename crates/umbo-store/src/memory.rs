//! The in-memory reference: the simplest implementation of the contract, to compare engines with and to run
//! the layers above a store without a disk.
//!
//! One mutex per shard over ordered maps, held for a whole operation and never across an await, so that every
//! chunk is a snapshot and every write is atomic. Keeps nothing across a restart; frees the space of expired
//! rows only when they are overwritten or deleted, or their namespace is fenced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use umbo_routing::{ShardMap, ShardMapError};
use umbo_types::{BelievedClock, Clock, Deadline, Key, NamespaceId, Row, ShardId, Timestamp};

use crate::call::CallContext;
use crate::capabilities::{Capabilities, VersionOrder};
use crate::error::{Outcome, StoreError, WriteError};
use crate::large::ChunkRequest;
use crate::load_runs::LoadRun;
use crate::memory::chunk::RowCollector;
use crate::memory::shard::MemoryShard;
use crate::records::{RecordsCopy, RecordsKeeper, RecordsRevision};
use crate::report::{ShardState, ShardStatus, StoreReport};
use crate::request::{
    DeleteRangeRequest, Deleted, Page, RangeRequest, ScanPage, ScanRequest, WriteRequest, Written,
};
use crate::store::Store;

mod chunk;
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
        let is_fenced = |copy: &Arc<RecordsCopy>| {
            namespace != NamespaceId::SYSTEM && copy.fenced.binary_search(&namespace).is_ok()
        };
        match &*records {
            Some(copy) if is_fenced(copy) => Err(StoreError::NamespaceGone { shard, namespace }),
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
        run: Option<LoadRun>,
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
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        let id = call.locate(&self.map, namespace, &key.partition)?;
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
            ..Capabilities::ONE_WRITER
        }
    }

    async fn get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.read(call, namespace, key)
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let read = |key| self.read(call, namespace, key);
        keys.iter().map(read).collect()
    }

    async fn range(&self, call: &CallContext, request: &RangeRequest) -> Result<Page, StoreError> {
        let id = call.locate(&self.map, request.namespace, &request.partition)?;
        let shard = self.lock(id);
        self.check_fence(id, request.namespace)?;
        Ok(shard.range(request, self.clock.wall()))
    }

    async fn scan(
        &self,
        call: &CallContext,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        call.check_scan(&self.map, request)?;
        let shards = request.shards(&self.map);
        let mut first = 0;
        if let Some(after) = &request.after {
            first = shards
                .iter()
                .position(|&shard| shard == after.shard)
                .ok_or_else(|| StoreError::Unavailable {
                    shard: after.shard,
                    reason: "it owns none of the slots of this scan".to_owned(),
                    outcome: Outcome::NotApplied,
                })?;
        }
        let mut chunk = RowCollector::new(request.rows_max, request.bytes_max, request.keys_only);
        for &id in &shards[first..] {
            let after = request
                .after
                .as_ref()
                .filter(|after| after.shard == id)
                .map(|after| &after.key);
            let is_wanted = |partition: &_| {
                let slot = self.map.slot(request.namespace, partition);
                request.slots.contains(&slot.index())
            };
            let now = self.clock.wall();
            let shard = self.lock(id);
            self.check_fence(id, request.namespace)?;
            shard.scan(id, request.namespace, after, is_wanted, now, &mut chunk);
            if chunk.is_cut() {
                break;
            }
        }
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
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        let id = call.locate(&self.map, request.namespace, &key.partition)?;
        let shard = self.lock(id);
        self.check_fence(id, request.namespace)?;
        Ok(shard.chunk(request))
    }

    async fn write(
        &self,
        call: &CallContext,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        if let Err(error) = call.check_write(&self.map, &request) {
            return vec![Err(error.into()); request.mutations.len()];
        }
        let mut answers = vec![None; request.mutations.len()];
        for id in 0..self.shards.len() as u16 {
            let id = ShardId(id);
            let own: Vec<usize> = (0..request.mutations.len())
                .filter(|&index| {
                    let partition = &request.mutations[index].key.partition;
                    self.map.locate(request.namespace, partition) == id
                })
                .collect();
            if own.is_empty() {
                continue;
            }
            let locked = self.lock_for_write(id, request.namespace, call.deadline);
            let is_due = self.check_due(id, request.not_before);
            let locked = locked.and_then(|shard| is_due.map(|()| shard));
            let locked = locked.and_then(|shard| self.begin_run(id, request.run, shard));
            match locked {
                Ok(mut shard) => {
                    let now = self.clock.wall();
                    for (index, answer) in shard.write(&request, &own, now) {
                        answers[index] = Some(answer);
                    }
                }
                Err(error) => {
                    for index in own {
                        answers[index] = Some(Err(WriteError::Store(error.clone())));
                    }
                }
            }
        }
        answers
            .into_iter()
            .map(|answer| answer.expect("every mutation belongs to one shard"))
            .collect()
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        let id = call.locate(&self.map, request.namespace, &request.partition)?;
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
            for &namespace in newest
                .fenced
                .iter()
                .filter(|&&id| id != NamespaceId::SYSTEM)
            {
                shard.purge(namespace);
            }
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
