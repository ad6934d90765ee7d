//! A store that several dispatchers share, whose shards fail: unreachable, full, slow, or losing answers.
//!
//! Rows are in memory. Fences are kept here by shard, so that an unreachable shard does not have the fences
//! of the others; a shard reclaims the rows of fenced namespaces by itself, a little later. Each dispatcher
//! has its own handle, which ends with its process: its pending requests are then executed or not, at random,
//! and never answered.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use umbo_routing::{RecordsHome, ShardMap};
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Capabilities, Change, ChunkRequest, Condition,
    DeleteRangeRequest, Deleted, Durability, IdRange, MemoryStore, Mutation, Outcome, Page,
    RangeRequest, RecordsCopy, RecordsKeeper, RecordsRevision, RowRef, ScanPage, ScanRequest,
    ShardStatus, Store, StoreError, StoreReport, WriteError, WriteRequest, Written,
};
use umbo_types::{Clock, Key, NamespaceId, Row, ShardId, Version};

use crate::chance::Chance;
use crate::simulation::met;

/// One copy of so many is told as a dispatcher of the version before tells it, which knows only the first id of each
/// fence.
const COPIES_OF_OLD: u64 = 3;

/// The fault of a shard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Fault {
    /// None.
    #[default]
    None,
    /// No request reaches it.
    Away,
    /// The shard executes requests, and its answers are lost.
    Mute,
    /// The shard is full for writes.
    Full,
    /// A call of the shard takes this many additional milliseconds.
    Slow(u64),
}

#[derive(Debug)]
struct SharedStoreState {
    chance: Chance,
    faults: Vec<Fault>,
    copies: BTreeMap<ShardId, Arc<RecordsCopy>>,
    /// Of all copies that a shard was handed.
    fences: BTreeMap<ShardId, Vec<IdRange>>,
}

impl SharedStoreState {
    fn is_fenced(&self, shard: ShardId, namespace: NamespaceId) -> bool {
        let fences = self.fences.get(&shard);
        fences.is_some_and(|fences| IdRange::any_has(fences, namespace))
    }
}

/// The store itself.
#[derive(Debug)]
pub(super) struct SharedStore {
    rows: MemoryStore,
    state: Mutex<SharedStoreState>,
}

/// The handle of a dispatcher.
#[derive(Debug)]
pub(super) struct StoreHandle {
    shared: Arc<SharedStore>,
    is_dead: Arc<AtomicBool>,
}

impl SharedStore {
    pub(super) fn new(shards: u16, clock: Arc<dyn Clock>, chance: Chance) -> Arc<Self> {
        let rows = MemoryStore::new(shards, clock);
        Arc::new(Self {
            rows: rows.expect("the number of shards is small"),
            state: Mutex::new(SharedStoreState {
                chance,
                faults: vec![Fault::None; usize::from(shards)],
                copies: BTreeMap::new(),
                fences: BTreeMap::new(),
            }),
        })
    }

    /// Returns a handle for a process, and the token that ends it.
    pub(super) fn handle(self: &Arc<Self>) -> (Arc<dyn Store>, Arc<AtomicBool>) {
        let is_dead = Arc::new(AtomicBool::new(false));
        let handle = StoreHandle {
            shared: Arc::clone(self),
            is_dead: Arc::clone(&is_dead),
        };
        (Arc::new(handle), is_dead)
    }

    /// Sets or removes the fault of a shard.
    pub(super) fn set_fault(&self, shard: usize, fault: Fault) {
        self.lock().faults[shard] = fault;
    }

    /// Returns whether every shard has raised the fence of a namespace.
    pub(super) fn is_fenced_everywhere(&self, namespace: NamespaceId) -> bool {
        let state = self.lock();
        let mut shards = (0..state.faults.len() as u16).map(ShardId);
        shards.all(|shard| state.is_fenced(shard, namespace))
    }

    /// Returns the ids of namespaces that have rows, with their number.
    pub(super) async fn stored(&self) -> BTreeMap<u32, u64> {
        let mut stored = BTreeMap::new();
        for id in 0..2_000 {
            let rows = self.rows_of(NamespaceId(id), None).await.len();
            if rows > 0 {
                stored.insert(id, rows as u64);
            }
        }
        stored
    }

    /// Reclaims the rows of fenced namespaces, shard by shard, in an endless loop.
    pub(super) async fn reclaim(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let fences = self.lock().fences.clone();
            for (shard, fences) in fences {
                if self.lock().faults[usize::from(shard.0)] != Fault::None {
                    continue;
                }
                for namespace in fences.into_iter().flat_map(IdRange::ids) {
                    self.reclaim_one(shard, namespace).await;
                }
            }
        }
    }

    async fn reclaim_one(&self, shard: ShardId, namespace: NamespaceId) {
        let keys = self.rows_of(namespace, Some(shard)).await;
        if keys.is_empty() {
            return;
        }
        let request = WriteRequest {
            namespace,
            epoch: 0,
            mutations: keys
                .into_iter()
                .map(|key| Mutation {
                    key,
                    change: Change::Delete,
                    condition: Condition::Always,
                })
                .collect(),
            atomicity: Atomicity::None,
            durability: Durability::Sync,
            proposed: Version(1),
            idempotency: None,
            not_before: None,
            run: None,
        };
        let call = CallContext::internal();
        self.rows.write_rows(&call, request).await;
    }

    async fn rows_of(&self, namespace: NamespaceId, shard: Option<ShardId>) -> Vec<Key> {
        let request = ScanRequest {
            namespace,
            slots: 0..=umbo_types::limits::SLOTS - 1,
            after: None,
            rows_max: 10_000,
            bytes_max: 1 << 20,
            keys_only: true,
        };
        let copy = |row: RowRef<'_>| {
            let copy = Bytes::copy_from_slice;
            Key::new(copy(row.partition), copy(row.sort)).expect("stored keys are short enough")
        };
        let call = CallContext::internal();
        let rows = match shard {
            Some(shard) => {
                let page = self.rows.scan(&call, shard, &request).await;
                page.map(|page| page.rows)
            }
            None => self.rows.scan_all(&call, &request).await,
        };
        rows.map_or_else(|_| Vec::new(), |rows| rows.iter().map(copy).collect())
    }

    fn lock(&self) -> MutexGuard<'_, SharedStoreState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault_of(&self, shard: ShardId) -> Fault {
        self.lock().faults[usize::from(shard.0)]
    }

    /// Waits for the duration of a call of a shard.
    async fn travel(&self, fault: Fault) {
        let micros = self.lock().chance.below(2_500);
        let more = match fault {
            Fault::Slow(millis) => millis * 1_000,
            _ => 0,
        };
        tokio::time::sleep(Duration::from_micros(micros + more)).await;
    }

    fn check_fence(&self, shard: ShardId, namespace: NamespaceId) -> Result<(), StoreError> {
        if self.lock().is_fenced(shard, namespace) {
            met("namespace gone");
            return Err(StoreError::NamespaceGone { shard, namespace });
        }
        Ok(())
    }
}

fn away(shard: ShardId, outcome: Outcome) -> StoreError {
    StoreError::Unavailable {
        shard,
        reason: "a fault of the simulation".to_owned(),
        outcome,
    }
}

impl StoreHandle {
    /// Delivers a call to its shard and its answer back, or not.
    async fn call<T>(
        &self,
        shard: ShardId,
        namespace: NamespaceId,
        is_write: bool,
        operation: impl AsyncFnOnce(&MemoryStore) -> T,
    ) -> Result<T, StoreError> {
        let fault = self.shared.fault_of(shard);
        self.shared.travel(fault).await;
        if self.is_dead.load(Ordering::Relaxed) {
            // The process ended before the call was sent.
            return pending().await;
        }
        match fault {
            Fault::Away => {
                met("shard away");
                return Err(away(shard, Outcome::NotApplied));
            }
            Fault::Full if is_write => {
                met("shard full");
                return Err(StoreError::Full {
                    shard,
                    outcome: Outcome::NotApplied,
                });
            }
            _ => {}
        }
        self.shared.check_fence(shard, namespace)?;
        let answer = operation(&self.shared.rows).await;
        self.shared.travel(Fault::None).await;
        if self.is_dead.load(Ordering::Relaxed) {
            met("dispatcher killed with a call under way");
            return pending().await;
        }
        if fault == Fault::Mute {
            met("lost answer");
            let outcome = if is_write {
                Outcome::Unknown
            } else {
                Outcome::NotApplied
            };
            return Err(away(shard, outcome));
        }
        Ok(answer)
    }
}

#[async_trait]
impl Store for StoreHandle {
    fn shard_map(&self) -> Arc<ShardMap> {
        self.shared.rows.shard_map()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ONE_WRITER
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.call(shard, namespace, false, async |rows| {
            rows.get(call, shard, namespace, key).await
        })
        .await?
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let mut rows = Vec::new();
        for key in keys {
            rows.push(self.get(call, shard, namespace, key).await);
        }
        rows
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        self.call(shard, request.namespace, false, async |rows| {
            rows.range(call, shard, request).await
        })
        .await?
    }

    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        self.call(shard, request.namespace, false, async |rows| {
            rows.scan(call, shard, request).await
        })
        .await?
    }

    async fn chunk(
        &self,
        call: &CallContext,
        shard: ShardId,
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        self.call(shard, request.namespace, false, async |rows| {
            rows.chunk(call, shard, key, request).await
        })
        .await?
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        let namespace = request.namespace;
        let count = request.mutations.len();
        let written = self.call(shard, namespace, true, async |rows| {
            rows.write(call, shard, request).await
        });
        match written.await {
            Ok(written) => written,
            Err(error) => vec![Err(error.into()); count],
        }
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        self.call(shard, request.namespace, true, async |rows| {
            rows.delete_range(call, shard, request).await
        })
        .await?
    }

    async fn close(&self) {}
}

#[async_trait]
impl RecordsKeeper for StoreHandle {
    fn home(&self) -> RecordsHome {
        RecordsHome::default()
    }

    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)> {
        let shards: Vec<_> = (0..self.shared.lock().faults.len() as u16)
            .map(ShardId)
            .collect();
        let mut kept = Vec::new();
        for shard in shards {
            let mut copy = Arc::clone(&copy);
            let keep = async |_: &MemoryStore| {
                let is_folded = copy.fenced.iter().any(|range| range.count() > 1);
                if is_folded && copy.revision.number.is_multiple_of(COPIES_OF_OLD) {
                    met("fences folded");
                    for range in &mut Arc::make_mut(&mut copy).fenced {
                        range.last = range.first;
                    }
                }
                let mut state = self.shared.lock();
                let fences = state.fences.entry(shard).or_default();
                *fences = IdRange::joined([&fences[..], &copy.fenced].concat());
                let newest = state.copies.entry(shard).or_default();
                if newest.revision < copy.revision {
                    *newest = copy;
                }
            };
            let answer = self.call(shard, NamespaceId::SYSTEM, true, keep).await;
            kept.push((shard, answer));
        }
        kept
    }

    async fn kept_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError> {
        self.shared.travel(Fault::None).await;
        if self.is_dead.load(Ordering::Relaxed) {
            return pending().await;
        }
        let state = self.shared.lock();
        let away_or_mute = |fault: &Fault| matches!(fault, Fault::Away | Fault::Mute);
        if state.faults.iter().all(away_or_mute) {
            return Err(away(ShardId(0), Outcome::NotApplied));
        }
        let reachable = |(shard, _): &(&ShardId, &Arc<RecordsCopy>)| {
            !away_or_mute(&state.faults[usize::from(shard.0)])
        };
        let copies = state.copies.iter().filter(reachable);
        Ok(copies
            .map(|(_, copy)| Arc::clone(copy))
            .max_by_key(|copy| copy.revision))
    }

    fn is_fenced(&self, namespace: NamespaceId) -> bool {
        let state = self.shared.lock();
        let mut shards = state.fences.keys();
        shards.any(|&shard| state.is_fenced(shard, namespace))
    }

    fn records_revision(&self) -> RecordsRevision {
        let state = self.shared.lock();
        let copies = state.copies.values().map(|copy| copy.revision);
        copies.max().unwrap_or_default()
    }
}

impl StoreReport for StoreHandle {
    fn status(&self) -> Vec<ShardStatus> {
        self.shared.rows.status()
    }
}
