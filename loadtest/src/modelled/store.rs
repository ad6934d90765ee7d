//! A store of known capacity: each shard takes its time, and longer the more it is asked at once.
//!
//! Rows are kept by the reference store. A shard has a number of places; while no more than those are
//! taken each call takes its service time, and beyond them all calls share what the places do
//! (processor sharing), so that a shard that is asked too much does as much as before and each call
//! takes longer. Writes share commits and take no places, as in the store of the server. Faults come at
//! set times: a shard that sleeps, all shards that are slower.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use umbo_store::{
    CallContext, Page, RangeRequest, ScanPage, ScanRequest, Store, StoreError, WrappedStore,
    WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, Row, ShardId};

/// What a shard can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Capacity {
    /// Calls that it works on at once without becoming slower.
    pub(crate) places: u32,
    /// Mean time of a call for one row.
    pub(crate) service_time: Duration,
}

/// What goes wrong, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fault {
    /// Which shard; none for all.
    pub(crate) shard: Option<u16>,
    /// How many times longer calls take; none where they do not end before the fault does.
    pub(crate) slowness: Option<f64>,
    /// Seconds after the first call from which, and to which.
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
}

/// The store.
pub(super) struct ModelledStore {
    inner: Arc<dyn Store>,
    capacity: Capacity,
    faults: Vec<Fault>,
    /// When the first row was asked for.
    begun: OnceLock<Instant>,
    taken: Box<[AtomicU32]>,
    random: AtomicU64,
}

impl fmt::Debug for ModelledStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelledStore").finish_non_exhaustive()
    }
}

/// A place that is taken; given back when it is dropped.
struct Place<'a>(&'a AtomicU32);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ModelledStore {
    pub(super) fn new(inner: Arc<dyn Store>, capacity: Capacity, faults: Vec<Fault>) -> Self {
        let shards = inner.shard_map().shards();
        Self {
            inner,
            capacity,
            faults,
            begun: OnceLock::new(),
            taken: (0..shards).map(|_| AtomicU32::new(0)).collect(),
            random: AtomicU64::new(1),
        }
    }

    /// Takes the time of a commit of so many rows: those who write at the same time share one, so that
    /// none takes longer because of the others.
    async fn commit(&self, shard: ShardId, rows: usize) {
        let step_s = self.capacity.service_time.as_secs_f64() / 4.0;
        let mut left_s = self.capacity.service_time.as_secs_f64() * (1.0 + rows as f64 / 10.0);
        while left_s > 0.0 {
            let progress = self.speed(shard);
            tokio::time::sleep(Duration::from_secs_f64(step_s)).await;
            left_s -= step_s * progress;
        }
    }

    /// Takes the time of a call of so many rows.
    async fn work(&self, shard: ShardId, rows: usize) {
        let taken = &self.taken[usize::from(shard.0)];
        taken.fetch_add(1, Ordering::Relaxed);
        let place = Place(taken);
        // Half as long to one and a half times as long. More rows cost a tenth each.
        let spread = 0.5 + self.fraction();
        let mut left_s =
            self.capacity.service_time.as_secs_f64() * spread * (1.0 + rows as f64 / 10.0);
        // In steps, because how many share the places changes.
        let step_s = self.capacity.service_time.as_secs_f64() / 4.0;
        while left_s > 0.0 {
            let progress = self.speed(shard) / self.crowding(taken);
            tokio::time::sleep(Duration::from_secs_f64(step_s)).await;
            left_s -= step_s * progress;
        }
        drop(place);
    }

    fn crowding(&self, taken: &AtomicU32) -> f64 {
        let taken = f64::from(taken.load(Ordering::Relaxed));
        (taken / f64::from(self.capacity.places)).max(1.0)
    }

    /// Returns how fast a shard is now; nought while it sleeps.
    fn speed(&self, shard: ShardId) -> f64 {
        let begun = self.begun.get_or_init(Instant::now);
        let now_s = begun.elapsed().as_secs_f64();
        let mut speed = 1.0;
        for fault in &self.faults {
            let is_meant = fault.shard.is_none_or(|meant| meant == shard.0);
            if is_meant && (fault.from_s..fault.to_s).contains(&now_s) {
                speed *= fault.slowness.map_or(0.0, f64::recip);
            }
        }
        speed
    }

    /// Returns a number from 0 to 1.
    fn fraction(&self) -> f64 {
        let state = self
            .random
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed >> 40) as f64 / (1_u64 << 24) as f64
    }

    /// Namespaces and tokens are not what is measured.
    fn is_own(namespace: NamespaceId) -> bool {
        namespace.0 == 0
    }
}

#[async_trait]
impl WrappedStore for ModelledStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        if !Self::is_own(namespace) {
            self.work(shard, 1).await;
        }
        self.inner.get(call, shard, namespace, key).await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        if !Self::is_own(namespace) {
            self.work(shard, keys.len()).await;
        }
        self.inner.multi_get(call, shard, namespace, keys).await
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        if !Self::is_own(request.namespace) {
            self.work(shard, 10).await;
        }
        self.inner.range(call, shard, request).await
    }

    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        if !Self::is_own(request.namespace) {
            self.work(shard, 50).await;
        }
        self.inner.scan(call, shard, request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        if !Self::is_own(request.namespace) {
            self.commit(shard, request.mutations.len()).await;
        }
        self.inner.write(call, shard, request).await
    }
}
