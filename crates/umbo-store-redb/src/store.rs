//! The store: passes each call to its shard.
//!
//! Owns the shards, their committer threads and the folder's lock. Makes no decision about rows.

use std::collections::BTreeMap;
use std::iter;
use std::path::Path;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Mutex, oneshot};
use umbo_routing::ShardMap;
use umbo_store::{
    BackupRequest, CallContext, Capabilities, ChunkRequest, DeleteRangeRequest, Deleted, DiskSpace,
    Outcome, Page, RangeRequest, RecordsCopy, RecordsKeeper, RecordsRevision, RowBatch, RowSink,
    ScanPage, ScanRequest, ShardState, ShardStatus, Store, StoreError, StoreReport, WriteError,
    WriteRequest, Written,
};
use umbo_types::limits::MULTI_GET_BYTES_MAX;
use umbo_types::{Clock, Key, NamespaceId, Row, ShardId, Version};

use crate::config::{ClusterMember, Config};
use crate::disk_space::{blocks_of, disk_space};
use crate::error::OpenError;
use crate::kept_records::KeptRecords;
use crate::key_codec;
use crate::open::open_folder;
use crate::opener::Opener;
use crate::plain_files::PlainFiles;
use crate::report::OpenReport;
use crate::running::{RunningStore, ServedShard, serve};
use crate::shard::OpenShard;
use crate::snapshot::{Segment, ShardSnapshot};
use crate::work::{DeleteRangeWork, Op, QueuedWork, WriteWork};

/// The store contract with one redb file per shard.
#[derive(Debug)]
pub struct RedbStore {
    pub(crate) map: Arc<ShardMap>,
    /// Indexed by shard number.
    pub(crate) shards: Box<[ArcSwap<ServedShard>]>,
    report: OpenReport,
    pub(crate) running: Mutex<RunningStore>,
    /// The copy of Umbo's own records that the folder keeps.
    pub(crate) kept: Arc<KeptRecords>,
    /// Settings that the folder was opened with.
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) opener: Arc<dyn Opener>,
}

impl RedbStore {
    /// Opens a data folder, or creates it if it does not exist. Expiry, versions and deadlines use `clock`. Blocks
    /// while the shards are opened, in parallel. A shard that cannot be opened is reported and answers errors; the
    /// others serve.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the clock is handed over to the shards, as it is to every store"
    )]
    pub fn open(config: Config, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let opener: Arc<dyn Opener> = Arc::new(PlainFiles);
        Self::open_with(config, &clock, &opener)
    }

    /// Opens a data folder whose shard files are reached through `opener`, as in a simulation.
    #[cfg(feature = "simulation")]
    pub fn open_simulated(
        config: Config,
        clock: &Arc<dyn Clock>,
        opener: &Arc<dyn Opener>,
    ) -> Result<Self, OpenError> {
        Self::open_with(config, clock, opener)
    }

    pub(crate) fn open_with(
        config: Config,
        clock: &Arc<dyn Clock>,
        opener: &Arc<dyn Opener>,
    ) -> Result<Self, OpenError> {
        let begun = clock.monotonic();
        let folder = open_folder(&config, &**clock, opener)?;
        let mut reports = Vec::new();
        let shard_map = &folder.manifest.shard_map;
        let ids = (0..shard_map.shards() as u16).map(ShardId);
        let member = config.cluster.as_ref();
        let mut shards: Vec<_> = ids.map(|id| elsewhere(member, id)).collect();
        let mut running = RunningStore {
            committers: BTreeMap::new(),
            lock: Some(folder.lock),
            manifest: None,
            map: None,
        };
        let map = Arc::new(folder.manifest.shard_map.clone());
        if let Some(copy) = folder.kept.newest() {
            copy.place_datasets(&map);
        }
        for shard in folder.shards {
            reports.push(shard.report.clone());
            let id = usize::from(shard.report.shard.0);
            shards[id] = serve(&config, clock, shard, (&map, &mut running))?;
        }
        let report = OpenReport {
            shards: reports,
            others: folder.others,
            took: clock.monotonic().saturating_duration_since(begun),
            was_created: folder.was_created,
        };
        running.manifest = Some(folder.manifest);
        Ok(Self {
            map,
            shards: shards.into_iter().map(ArcSwap::from_pointee).collect(),
            report,
            running: Mutex::new(running),
            kept: folder.kept,
            config,
            clock: Arc::clone(clock),
            opener: Arc::clone(opener),
        })
    }

    /// Returns the data folder.
    pub fn folder(&self) -> &Path {
        &self.config.folder
    }

    /// Returns the report of the opening.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Returns the state of the shard for requests. It stays the same while the guard is held.
    pub(crate) fn served(&self, id: ShardId) -> Guard<Arc<ServedShard>> {
        self.shards[usize::from(id.0)].load()
    }

    /// Queues work for a shard. A shard that is just leaving the folder refuses it.
    pub(crate) fn enqueue(
        &self,
        id: ShardId,
        work: QueuedWork,
    ) -> Result<Arc<OpenShard>, StoreError> {
        let served = self.served(id);
        let shard = served.open(id)?;
        match shard.enqueue(work) {
            Err(StoreError::Closing) => {
                self.served(id).open(id)?;
                Err(StoreError::Closing)
            }
            taken => taken.map(|()| Arc::clone(shard)),
        }
    }

    /// Returns whether a shard belongs to this folder, even if its file failed to open.
    pub(crate) fn is_here(&self, id: ShardId) -> bool {
        !matches!(**self.served(id), ServedShard::Elsewhere(_))
    }

    fn stop_taking_writes(&self) {
        for shard in &self.shards {
            shard.load().close();
        }
    }
}

/// Returns the state of a shard that has not been opened here.
pub(crate) fn elsewhere(member: Option<&ClusterMember>, id: ShardId) -> ServedShard {
    let reason = member.and_then(|ClusterMember { map, node, .. }| {
        let owner = map.node_of(id)?.name();
        Some(if owner == node {
            format!("node '{node}' is opening it")
        } else {
            format!("it is not on node '{node}', but on node '{owner}'")
        })
    });
    ServedShard::Elsewhere(reason.unwrap_or_default())
}

#[async_trait]
impl Store for RedbStore {
    fn shard_map(&self) -> Arc<ShardMap> {
        Arc::clone(&self.map)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            answers_at_once: true,
            ..Capabilities::ONE_WRITER
        }
    }

    async fn get(
        &self,
        call: &CallContext,
        id: ShardId,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        call.check(&self.map, id, namespace, &key.partition)?;
        let served = self.served(id);
        let shard = served.open(id)?;
        shard.get(namespace, key).await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        id: ShardId,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let partitions = keys.iter().map(|key| &key.partition);
        let checked = call.check_all(&self.map, id, namespace, partitions);
        let (served, mut left) = (self.served(id), MULTI_GET_BYTES_MAX);
        let shard = match checked.and_then(|()| served.open(id)) {
            Ok(shard) => shard,
            Err(error) => return vec![Err(error); keys.len()],
        };
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            let row = shard.get(namespace, key).await;
            let found = row.as_ref().ok().and_then(Option::as_ref);
            left = left.saturating_sub(found.map_or(0, |row| row.value.bytes.len()));
            rows.push(row);
            if left == 0 {
                break;
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
        let mut rows = RowBatch::default();
        let page = self.range_into(call, id, request, &mut rows).await?;
        Ok(Page { rows, ..page })
    }

    async fn range_into(
        &self,
        call: &CallContext,
        id: ShardId,
        request: &RangeRequest,
        rows: &mut dyn RowSink,
    ) -> Result<Page, StoreError> {
        call.check(&self.map, id, request.namespace, &request.partition)?;
        let served = self.served(id);
        let shard = served.open(id)?;
        let walk = shard.walk(request, rows, ShardSnapshot::range);
        let (resume_after, touched) = walk.await?;
        Ok(Page {
            rows: RowBatch::default(),
            resume_after,
            touched,
        })
    }

    async fn scan(
        &self,
        call: &CallContext,
        id: ShardId,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        let mut rows = RowBatch::default();
        let page = self.scan_into(call, id, request, &mut rows).await?;
        Ok(ScanPage { rows, ..page })
    }

    async fn scan_into(
        &self,
        call: &CallContext,
        id: ShardId,
        request: &ScanRequest,
        rows: &mut dyn RowSink,
    ) -> Result<ScanPage, StoreError> {
        call.check_all(&self.map, id, request.namespace, iter::empty())?;
        let segment = Segment {
            request: request.clone(),
            placed_as: self.map.placements().of(request.namespace),
        };
        let served = self.shards.get(usize::from(id.0));
        let served = served.ok_or_else(|| StoreError::no_such_shard(id))?.load();
        let walk = served.open(id)?.walk(&segment, rows, ShardSnapshot::scan);
        let (resume_after, touched) = walk.await?;
        Ok(ScanPage {
            rows: RowBatch::default(),
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
        self.served(id).open(id)?.chunk(request).await
    }

    async fn backup(
        &self,
        _call: &CallContext,
        request: &BackupRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        let unknown = elsewhere(self.config.cluster.as_ref(), request.shard);
        let shard = self.shards.get(usize::from(request.shard.0));
        let served = shard.map_or_else(|| Guard::from_inner(Arc::new(unknown)), ArcSwap::load);
        served.open(request.shard)?.backup(request).await
    }

    async fn write(
        &self,
        call: &CallContext,
        id: ShardId,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        let (namespace, rows) = (request.namespace, request.mutations.len());
        let partitions = request.mutations.iter().map(|one| &one.key.partition);
        let checked = call.check_all(&self.map, id, namespace, partitions);
        // The work is queued when the future is first polled, so that two writes are in the order of their beginning.
        // Dropping the future withdraws work that the committer has not taken.
        let (reply, answer) = oneshot::channel();
        let begun = checked.and_then(|()| {
            let mutations = request.mutations.into_iter().enumerate();
            let work = QueuedWork::Write(WriteWork {
                namespace,
                epoch: request.epoch,
                group: None,
                ops: mutations
                    .map(|(index, mutation)| Op::new(namespace, index, mutation))
                    .collect(),
                atomicity: request.atomicity,
                durability: request.durability,
                proposed: request.proposed.min(Version::latest_at(self.clock.wall())),
                idempotency: request.idempotency,
                run: request.run,
                deadline: call.deadline,
                not_before: request.not_before,
                reply,
            });
            let size = work.size();
            Ok((self.enqueue(id, work)?, size))
        });
        let answers = match begun {
            Ok((shard, size)) => {
                let answers = shard.answer(call, answer).await;
                shard.backlog.hold(size, call.deadline).await;
                answers
            }
            Err(error) => Err(error),
        };
        answers.unwrap_or_else(|error| vec![Err(error.into()); rows])
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        id: ShardId,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        call.check(&self.map, id, request.namespace, &request.partition)?;
        if request.range.is_empty() {
            let served = self.served(id);
            let shard = served.open(id)?;
            return shard
                .attempt(|snapshot, _| snapshot.check(request.namespace))
                .map(|()| Deleted::default())
                .map_err(|failure| shard.error(failure, Outcome::NotApplied));
        }
        let bounds = key_codec::sort_bounds(request.namespace, &request.partition, &request.range);
        let (reply, answer) = oneshot::channel();
        let work = QueuedWork::DeleteRange(DeleteRangeWork {
            namespace: request.namespace,
            epoch: request.epoch,
            group: None,
            prefix_len: bounds.0.len() - request.range.start.len(),
            bounds,
            rows_max: request.rows_max,
            durability: request.durability,
            deadline: call.deadline,
            reply,
        });
        let shard = self.enqueue(id, work)?;
        shard.answer(call, answer).await?
    }

    async fn close(&self) {
        self.stop_taking_writes();
        // Concurrent calls of close wait here until the store is closed.
        let mut running = self.running.lock().await;
        let ending = std::mem::take(&mut *running);
        let kept = Arc::clone(&self.kept);
        self.opener.runner().off_runtime(move || kept.close()).await;
        ending.ended().await;
    }
}

#[async_trait]
impl RecordsKeeper for RedbStore {
    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)> {
        self.keep(copy).await
    }

    async fn kept_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError> {
        Ok(self.kept.newest())
    }

    fn is_fenced(&self, namespace: NamespaceId) -> bool {
        let newest = self.kept.newest();
        newest.is_some_and(|copy| copy.fences(namespace))
    }

    fn records_revision(&self) -> RecordsRevision {
        self.kept.revision()
    }
}

impl StoreReport for RedbStore {
    fn disk_space(&self) -> Option<DiskSpace> {
        disk_space(self.folder())
    }

    fn bad_reads(&self) -> Vec<(ShardId, u64)> {
        let shards = (0..).map(ShardId).zip(&self.shards);
        shards
            .filter_map(|(id, served)| Some((id, served.load().open(id).ok()?.disk.failed_reads())))
            .collect()
    }

    fn status(&self) -> Vec<ShardStatus> {
        (0..)
            .zip(&self.shards)
            .filter_map(|(id, shard)| match &**shard.load() {
                ServedShard::Open(shard) => Some(shard.status()),
                ServedShard::Elsewhere(_) => None,
                ServedShard::Failed(file, failure) => Some(ShardStatus {
                    file_bytes: blocks_of(&file.path).unwrap_or(0),
                    ..ShardStatus::new(ShardId(id), ShardState::Unavailable(file.blame(failure)))
                }),
            })
            .collect()
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        self.stop_taking_writes();
        self.kept.close();
        std::mem::take(self.running.get_mut()).end();
    }
}
