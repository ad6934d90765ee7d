//! The store: the contract on the engine.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::{RwLock, oneshot};
use umbo_routing::{ShardMap, SlotRange};
use umbo_store::{
    Atomicity, CallContext, Capabilities, ChunkRequest, CommitTime, DeleteRangeRequest, Deleted,
    NodeStatus, Page, RangeRequest, ScanPage, ScanRequest, ShardState, ShardStatus, Store,
    StoreError, StoreReport, VersionOrder, WriteError, WriteRequest, Written,
};
use umbo_types::limits::SLOTS;
use umbo_types::{BelievedClock, Clock, Key, NamespaceId, Row, ShardId};

use crate::bucket::BucketId;
use crate::engine::{BucketEngine, KnownShard, guards, lock};
use crate::guarded::random_id;
use crate::hedge::HedgeBudget;
use crate::nodes::ask_nodes;
use crate::queue::{CommitRoom, QueuedRemoval, QueuedWrite, Work, bytes_of};
use crate::reclaim::reclaim;
use crate::runner::answered;
use crate::schema::Statements;
use crate::session::{PERIODIC, commit_log_of, connect, failed};
use crate::settings::{CassandraOpenError, CassandraSettings};

/// How often a start is tried: nodes that are lost meanwhile are given up within this many seconds.
const STARTS_MAX: u32 = 5;
/// Pause between two tries.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A store whose rows are in a Cassandra cluster.
#[derive(Debug)]
pub struct CassandraStore {
    pub(crate) engine: Arc<BucketEngine>,
    /// When nodes answer a write, as the one says that was asked.
    commit_log: Box<str>,
}

impl CassandraStore {
    /// Connects to the cluster, makes the tables if they are missing, and reads what the store has to know: the records
    /// that it keeps, activations, and the sizes of the namespaces.
    pub async fn open(
        settings: &CassandraSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, CassandraOpenError> {
        let (shards, buckets) = (settings.shards, settings.buckets);
        let is_laid_out = shards.is_power_of_two()
            && buckets.is_power_of_two()
            && shards <= buckets
            && buckets <= SLOTS;
        if !is_laid_out {
            let max = SLOTS;
            return Err(CassandraOpenError::BadLayout {
                shards,
                buckets,
                max,
            });
        }
        settings.check_keyspace()?;
        let mut tries = 0;
        loop {
            tries += 1;
            match Box::pin(Self::begin(settings, &clock)).await {
                Err(error) if error.may_pass() && tries < STARTS_MAX => {
                    tracing::warn!(%error, "the Cassandra cluster cannot be used yet; it is tried again");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                begun => return begun,
            }
        }
    }

    async fn begin(
        settings: &CassandraSettings,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, CassandraOpenError> {
        let (shards, buckets) = (settings.shards, settings.buckets);
        let hedges: Arc<HedgeBudget> = Arc::default();
        let session = connect(settings, Arc::clone(&hedges)).await?;
        let statements = Statements::prepare(&session, &settings.keyspace);
        let statements = statements.await.map_err(failed)?;
        let commit_log = commit_log_of(&session).await?;
        let engine = Arc::new(BucketEngine {
            session,
            hedges,
            statements,
            keyspace: settings.keyspace.clone(),
            data_center: settings.data_center.clone(),
            instance: settings.instance,
            process: random_id().map_err(failed)?,
            buckets,
            map: Arc::new(shard_map(shards)),
            believed_clock: Mutex::new(BelievedClock::new(clock.wall(), clock.monotonic())),
            clock: Arc::clone(clock),
            shards: (0..shards).map(|_| KnownShard::default()).collect(),
            queues: Mutex::default(),
            guards: guards(),
            admission: RwLock::new(()),
            runs: RwLock::new(()),
            runtime: Handle::current(),
            is_closing: AtomicBool::new(false),
            records: Mutex::default(),
            namespaces: Mutex::default(),
            clock_ahead: AtomicI64::default(),
            reports: Mutex::default(),
            reclaim: Arc::default(),
            version_max: AtomicU64::default(),
        });
        engine.learn_all().await.map_err(failed)?;
        engine.ask_all().await;
        tokio::spawn(reclaim(Arc::downgrade(&engine)));
        tokio::spawn(ask_nodes(Arc::downgrade(&engine)));
        Ok(Self { engine, commit_log })
    }

    /// Logs the layout of the rows, and warns if the cluster may answer before they are on disks.
    pub fn announce(&self) {
        let (shards, buckets) = (self.engine.shards.len(), self.engine.buckets);
        let (state, commit_log) = (self.engine.session.get_cluster_state(), &*self.commit_log);
        let nodes = state.get_nodes_info().len();
        let message = "the rows are in a Cassandra cluster";
        tracing::info!(shards, buckets, nodes, commit_log, "{message}");
        if commit_log == PERIODIC {
            tracing::warn!(
                "the cluster answers writes before they are on its disks (commitlog_sync: periodic): a node that is \
                 killed may lose those of its last tenth of a second, and one without power those of its last seconds"
            );
        }
    }

    /// Refuses a read of a fenced namespace, or of a row of another shard.
    fn check<'a>(
        &self,
        call: &CallContext,
        shard: ShardId,
        dataset: NamespaceId,
        keys: impl Iterator<Item = &'a umbo_types::PartitionKey>,
    ) -> Result<(), StoreError> {
        call.check_all(&self.engine.map, shard, dataset, keys)?;
        if usize::from(shard.0) >= self.engine.shards.len() {
            return Err(StoreError::no_such_shard(shard));
        }
        self.engine.check_fence(shard, dataset)
    }
}

/// Returns a map whose shards have equal numbers of slots, a power of two.
fn shard_map(shards: u16) -> ShardMap {
    let of_shard = SLOTS / shards;
    let range = |shard: u16| SlotRange {
        first: shard * of_shard,
        last: shard * of_shard + (of_shard - 1),
        shard: ShardId(shard),
    };
    let ranges: Vec<SlotRange> = (0..shards).map(range).collect();
    ShardMap::from_ranges(&ranges).expect("the ranges have every slot once")
}

impl BucketEngine {
    /// Reads what a process knows of the cluster before it serves.
    async fn learn_all(&self) -> Result<(), crate::error::ClusterError> {
        self.refresh_records().await?;
        let cells = vec![crate::cell::int(self.instance)];
        let answer = self
            .execute(&self.statements.own.activations, cells)
            .await?;
        let answer = answer.into_rows_result()?;
        for row in answer.rows::<(i16, Option<i32>, Option<i32>)>()? {
            let (shard, Some(epoch), Some(live)) = row? else {
                continue;
            };
            if let Some(state) = self.shards.get(usize::from(shard.cast_unsigned())) {
                let live = NamespaceId(live.cast_unsigned());
                lock(&state.groups).learn(live, epoch.cast_unsigned());
            }
        }
        for identity in self.read_namespaces().await? {
            for (bucket, guard) in self.guards_of(identity).await? {
                self.count_sizes(bucket, &guard);
            }
        }
        Ok(())
    }

    /// Divides a write by the buckets of its partitions, and single mutations by the limits of a commit. Each
    /// part is independent, as partitions are.
    fn parts(&self, request: &WriteRequest) -> Vec<(BucketId, Vec<usize>)> {
        let mut buckets: BTreeMap<BucketId, (CommitRoom, Vec<Vec<usize>>)> = BTreeMap::new();
        for (index, mutation) in request.mutations.iter().enumerate() {
            let slot = self.map.slot(request.namespace, &mutation.key.partition);
            let bucket = self.bucket_at(request.namespace, slot);
            let (room, parts) = buckets.entry(bucket).or_default();
            let has_room = room.take(1, bytes_of(mutation));
            match parts.last_mut() {
                Some(part) if has_room || request.atomicity == Atomicity::Partition => {
                    part.push(index);
                }
                _ => parts.push(vec![index]),
            }
        }
        let parts = buckets.into_iter();
        parts
            .flat_map(|(bucket, (_, parts))| parts.into_iter().map(move |part| (bucket, part)))
            .collect()
    }
}

#[async_trait]
impl Store for CassandraStore {
    fn shard_map(&self) -> Arc<ShardMap> {
        Arc::clone(&self.engine.map)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            answers_at_once: false,
            chunk_is_snapshot: true,
            versions: VersionOrder::Partition,
            backups: false,
            fast_writes: true,
        }
    }

    async fn get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.check(call, shard, namespace, std::iter::once(&key.partition))?;
        let row = self.engine.get(namespace, key).await;
        row.map_err(|error| error.of(shard))
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        shard: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let partitions = keys.iter().map(|key| &key.partition);
        if let Err(error) = self.check(call, shard, namespace, partitions) {
            return vec![Err(error); keys.len()];
        }
        self.engine.multi_get(shard, namespace, keys).await
    }

    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        let partition = std::iter::once(&request.partition);
        self.check(call, shard, request.namespace, partition)?;
        let page = self.engine.range(shard, request).await;
        page.map_err(|error| error.of(shard))
    }

    async fn scan(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        self.check(call, shard, request.namespace, std::iter::empty())?;
        let page = self.engine.scan(shard, request).await;
        page.map_err(|error| error.of(shard))
    }

    async fn chunk(
        &self,
        call: &CallContext,
        shard: ShardId,
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        let partition = std::iter::once(&key.partition);
        self.check(call, shard, request.namespace, partition)?;
        let chunk = self.engine.chunk(request).await;
        chunk.map_err(|error| error.of(shard))
    }

    async fn write(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        let partitions = request.mutations.iter().map(|one| &one.key.partition);
        if let Err(error) = self.check(call, shard, request.namespace, partitions) {
            return vec![Err(error.into()); request.mutations.len()];
        }
        // All parts enter their queues in this poll, which fixes the order of writes.
        let parts = self.engine.parts(&request).into_iter();
        if request.namespace.has_fast_writes() {
            return self.engine.write_fast(call, shard, &request, parts).await;
        }
        let parts: Vec<_> = parts
            .map(|(bucket, indexes)| {
                let mutations = indexes.iter().map(|&at| request.mutations[at].clone());
                let idempotency = request.idempotency.as_ref();
                let part = WriteRequest {
                    mutations: mutations.collect(),
                    idempotency: idempotency.map(|one| one.of_part(indexes.iter().copied())),
                    ..request.clone()
                };
                let (answer, receiver) = oneshot::channel();
                let write = QueuedWrite {
                    request: part,
                    deadline: call.deadline,
                    answer,
                };
                let queued = self.engine.enqueue(bucket, Work::Write(write));
                let answer = async move {
                    queued?;
                    answered(shard, receiver).await
                };
                (indexes, answer)
            })
            .collect();
        let mut answers = vec![None; request.mutations.len()];
        let mut time = CommitTime::default();
        for (indexes, answer) in parts {
            let (part, of_part) = answer.await.unwrap_or_else(|error| {
                let all = vec![Err(WriteError::Store(error)); indexes.len()];
                (all, CommitTime::default())
            });
            // Parts are committed at the same time.
            time.took = time.took.max(of_part.took);
            time.share += of_part.share;
            for (&index, answer) in indexes.iter().zip(part) {
                let answer = answer.map_err(|error| error.with_index(|at| indexes[at]));
                answers[index] = Some(answer);
            }
        }
        call.note_commit(time);
        let answers = answers.into_iter();
        answers
            .map(|answer| answer.expect("each mutation is in one bucket"))
            .collect()
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        let partition = std::iter::once(&request.partition);
        self.check(call, shard, request.namespace, partition)?;
        let slot = self.engine.map.slot(request.namespace, &request.partition);
        let bucket = self.engine.bucket_at(request.namespace, slot);
        if request.namespace.has_fast_writes() {
            return self.engine.remove_fast(call, bucket, &request).await;
        }
        let (answer, receiver) = oneshot::channel();
        let removal = QueuedRemoval {
            request,
            deadline: call.deadline,
            answer,
        };
        self.engine.enqueue(bucket, Work::Removal(removal))?;
        let (deleted, time) = answered(shard, receiver).await?;
        call.note_commit(time);
        deleted
    }

    async fn close(&self) {
        self.engine.is_closing.store(true, Ordering::SeqCst);
        // A commit that saw the store open is admitted until it has ended.
        drop(self.engine.admission.write().await);
    }
}

impl StoreReport for CassandraStore {
    fn status(&self) -> Vec<ShardStatus> {
        let lack = self.engine.lack_of_quorum();
        let state = lack.map_or(ShardState::Available, ShardState::Unavailable);
        let status = |(id, known): (u16, &KnownShard)| {
            let sizes = lock(&known.sizes);
            let fenced =
                |namespace: &NamespaceId| self.engine.check_fence(ShardId(id), *namespace).is_err();
            ShardStatus {
                rows: sizes.rows(),
                queued: known.queued.load(Ordering::Relaxed),
                commits: known.commits.load(Ordering::Relaxed),
                mutations: known.mutations.load(Ordering::Relaxed),
                purging: sizes.datasets().filter(fenced).count() as u64,
                namespace_max: NamespaceId(
                    sizes
                        .datasets()
                        .map(NamespaceId::number)
                        .max()
                        .unwrap_or_default(),
                ),
                sizes: Some(sizes.report()),
                ..ShardStatus::new(ShardId(id), state.clone())
            }
        };
        (0..).zip(&self.engine.shards).map(status).collect()
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        self.engine.nodes()
    }
}
