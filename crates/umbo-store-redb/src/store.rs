//! The store: finds the shard of each key and merges what the shards answer.
//!
//! Owns the shards, their committer threads and the folder's lock. Decides nothing about rows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use async_trait::async_trait;
use tokio::sync::{Mutex, oneshot};
use umbo_routing::ShardMap;
use umbo_store::{
    CallContext, DeleteRangeRequest, Deleted, Outcome, Page, PurgeProgress, RangeRequest, ScanPage,
    ScanRequest, ShardState, ShardStatus, Store, StoreError, WriteError, WriteRequest, Written,
};
use umbo_types::{Clock, Key, NamespaceId, Row, ShardId};

use crate::config::{ClusterMember, Config};
use crate::error::OpenError;
use crate::failure::Failure;
use crate::key_codec;
use crate::open::open_folder;
use crate::report::OpenReport;
use crate::running::{Running, Served, serve};
use crate::shard::Shard;
use crate::shard_file::{Opener, PlainFiles};
use crate::snapshot::{Chunk, Limits, Segment};
use crate::split::split;
use crate::work::{DeleteRange, Purge, Work, Write, WriteAnswer};

/// The store contract on one redb file a shard.
#[derive(Debug)]
pub struct RedbStore {
    map: Arc<ShardMap>,
    /// By number of the shard.
    pub(crate) shards: Box<[ArcSwap<Served>]>,
    report: OpenReport,
    pub(crate) running: Mutex<Running>,
    /// Settings that the folder was opened with.
    pub(crate) config: Config,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) opener: Arc<dyn Opener>,
}

impl RedbStore {
    /// Opens a data folder, or creates it where there is none. Expiry, versions and deadlines go
    /// by `clock`. Blocks while the shards are opened, in parallel; a shard that cannot be opened
    /// is reported and answers errors, the others serve.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the clock is handed over to the shards, as it is to every store"
    )]
    pub fn open(config: Config, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let opener: Arc<dyn Opener> = Arc::new(PlainFiles);
        Self::open_with(config, &clock, &opener)
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
        let mut running = Running {
            committers: BTreeMap::new(),
            lock: Some(folder.lock),
            manifest: None,
            map: None,
        };
        for shard in folder.shards {
            reports.push(shard.report.clone());
            let id = usize::from(shard.report.shard.0);
            shards[id] = serve(&config, clock, shard, &mut running)?;
        }
        let report = OpenReport {
            shards: reports,
            others: folder.others,
            took: clock.monotonic().saturating_duration_since(begun),
            was_created: folder.was_created,
        };
        let map = Arc::new(folder.manifest.shard_map.clone());
        running.manifest = Some(folder.manifest);
        Ok(Self {
            map,
            shards: shards.into_iter().map(ArcSwap::from_pointee).collect(),
            report,
            running: Mutex::new(running),
            config,
            clock: Arc::clone(clock),
            opener: Arc::clone(opener),
        })
    }

    /// Returns the data folder.
    pub fn folder(&self) -> &Path {
        &self.config.folder
    }

    /// Returns what opening has found.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Returns what becomes of requests for a shard, as long as it is looked at.
    fn served(&self, id: ShardId) -> Guard<Arc<Served>> {
        self.shards[usize::from(id.0)].load()
    }

    /// Hands work to a shard. One that leaves the folder just then says so.
    fn enqueue(&self, id: ShardId, work: Work) -> Result<Arc<Shard>, StoreError> {
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

    /// Says whether a shard belongs to this folder, if only as a file that failed.
    fn is_here(&self, id: ShardId) -> bool {
        !matches!(**self.served(id), Served::Elsewhere(_))
    }

    async fn purge_shard(
        &self,
        id: ShardId,
        namespace: NamespaceId,
        rows_max: u32,
    ) -> Result<PurgeProgress, StoreError> {
        let (reply, answer) = oneshot::channel();
        let work = Work::Purge(Purge {
            namespace,
            rows_max,
            reply,
        });
        let shard = self.enqueue(id, work)?;
        shard.answer(answer).await?
    }

    /// Reads a chunk of a scan; a failure comes with its shard.
    fn scan_once(&self, request: &ScanRequest) -> Result<ScanPage, ScanFailure> {
        let mut ids = request.shards(&self.map);
        ids.retain(|&id| request.shard == Some(id) || self.is_here(id));
        let mut after = request.after.as_ref();
        let first = match after {
            None => 0,
            Some(after) => ids
                .iter()
                .position(|&id| id == after.shard)
                .ok_or_else(|| no_such_position(after.shard))?,
        };
        let limits = Limits::of(request.rows_max, request.bytes_max, request.keys_only);
        let mut chunk = Chunk::new(limits);
        for &id in &ids[first..] {
            let segment = Segment {
                shard: id,
                namespace: request.namespace,
                slots: request.slots.clone(),
                after: after.take().map(|after| after.key.clone()),
            };
            self.served(id)
                .open(id)?
                .attempt(|snapshot, clock| snapshot.scan(&segment, clock.wall(), &mut chunk))
                .map_err(|failure| ScanFailure::File(id, failure))?;
            if chunk.is_cut() {
                break;
            }
        }
        let (rows, resume_after) = chunk.finish();
        Ok(ScanPage { rows, resume_after })
    }

    fn stop_taking_writes(&self) {
        for shard in &self.shards {
            shard.load().close();
        }
    }
}

/// Returns what is answered for a shard as long as it has not been opened here.
pub(crate) fn elsewhere(member: Option<&ClusterMember>, id: ShardId) -> Served {
    let reason = member.and_then(|ClusterMember { map, node, .. }| {
        let owner = map.node_of(id)?.name();
        Some(if owner == node {
            format!("node '{node}' is opening it")
        } else {
            format!("it is not on node '{node}', but on node '{owner}'")
        })
    });
    Served::Elsewhere(reason.unwrap_or_default())
}

/// Why a chunk of a scan was not read.
enum ScanFailure {
    /// The file of a shard failed; it may be tried again.
    File(ShardId, Failure),
    /// Nothing helps.
    Store(StoreError),
}

impl From<StoreError> for ScanFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn no_such_position(shard: ShardId) -> StoreError {
    StoreError::Unavailable {
        shard,
        reason: "it owns none of the slots of this scan".to_owned(),
        outcome: Outcome::NotApplied,
    }
}

#[async_trait]
impl Store for RedbStore {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn shard_map(&self) -> Arc<ShardMap> {
        Arc::clone(&self.map)
    }

    async fn get(
        &self,
        _call: &CallContext,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        let id = self.map.locate(namespace, &key.partition);
        let served = self.served(id);
        let shard = served.open(id)?;
        let (key, _) = key_codec::encode(namespace, key);
        shard
            .read(|snapshot, clock| snapshot.get(&key, clock))
            .await
    }

    async fn multi_get(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            rows.push(self.get(call, namespace, key).await);
        }
        rows
    }

    async fn range(&self, _call: &CallContext, request: &RangeRequest) -> Result<Page, StoreError> {
        let id = self.map.locate(request.namespace, &request.partition);
        let served = self.served(id);
        let shard = served.open(id)?;
        shard
            .read(|snapshot, clock| snapshot.range(request, clock.wall()))
            .await
    }

    async fn scan(
        &self,
        _call: &CallContext,
        request: &ScanRequest,
    ) -> Result<ScanPage, StoreError> {
        let (id, failure) = match self.scan_once(request) {
            Ok(page) => return Ok(page),
            Err(ScanFailure::Store(error)) => return Err(error),
            Err(ScanFailure::File(id, failure)) => (id, failure),
        };
        self.served(id).open(id)?.recover_from(failure).await?;
        self.scan_once(request).map_err(|failure| match failure {
            ScanFailure::Store(error) => error,
            ScanFailure::File(id, failure) => match self.served(id).open(id) {
                Ok(shard) => shard.error(failure, Outcome::NotApplied),
                Err(error) => error,
            },
        })
    }

    async fn write(
        &self,
        call: &CallContext,
        mut request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        let mut answers: Vec<Option<WriteAnswer>> = vec![None; request.mutations.len()];
        let mut pending = Vec::new();
        // Everything is handed over before the first wait, so that a caller that leaves leaves the
        // write running.
        for (id, ops) in split(&self.map, &mut request) {
            let indexes: Vec<usize> = ops.iter().map(|op| op.index).collect();
            let (reply, answer) = oneshot::channel();
            let work = Work::Write(Write {
                ops,
                atomicity: request.atomicity,
                durability: request.durability,
                proposed: request.proposed,
                deadline: call.deadline,
                reply,
            });
            let begun = self.enqueue(id, work);
            pending.push((indexes, begun.map(|shard| (shard, answer))));
        }
        for (indexes, begun) in pending {
            let part = match begun {
                Ok((shard, answer)) => shard.answer(answer).await,
                Err(error) => Err(error),
            };
            match part {
                Ok(part) => {
                    for (index, answer) in indexes.into_iter().zip(part) {
                        answers[index] = Some(answer);
                    }
                }
                Err(error) => {
                    for index in indexes {
                        answers[index] = Some(Err(error.clone().into()));
                    }
                }
            }
        }
        answers
            .into_iter()
            .map(|answer| answer.expect("every mutation belongs to one shard, which answers"))
            .collect()
    }

    async fn delete_range(
        &self,
        call: &CallContext,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        let id = self.map.locate(request.namespace, &request.partition);
        if request.range.is_empty() {
            return self.served(id).open(id).map(|_| Deleted::default());
        }
        let bounds = key_codec::sort_bounds(request.namespace, &request.partition, &request.range);
        let (reply, answer) = oneshot::channel();
        let work = Work::DeleteRange(DeleteRange {
            prefix_len: bounds.0.len() - request.range.start.len(),
            bounds,
            rows_max: request.rows_max,
            durability: request.durability,
            deadline: call.deadline,
            reply,
        });
        let shard = self.enqueue(id, work)?;
        shard.answer(answer).await?
    }

    async fn purge(
        &self,
        namespace: NamespaceId,
        rows_max: u32,
    ) -> Result<PurgeProgress, StoreError> {
        let mut progress = PurgeProgress::default();
        let mut failure = None;
        for id in (0..self.shards.len() as u16).map(ShardId) {
            if !self.is_here(id) {
                continue;
            }
            let rows_left = rows_max.saturating_sub(progress.rows as u32);
            // A shard that fails keeps its rows; the others are purged all the same.
            match self.purge_shard(id, namespace, rows_left).await {
                Ok(step) => {
                    progress.rows += step.rows;
                    progress.more |= step.more;
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if !progress.more => Err(error),
            _ => Ok(progress),
        }
    }

    fn status(&self) -> Vec<ShardStatus> {
        (0..)
            .zip(&self.shards)
            .filter_map(|(id, shard)| match &**shard.load() {
                Served::Open(shard) => Some(shard.status()),
                Served::Elsewhere(_) => None,
                Served::Failed(path, reason) => Some(ShardStatus {
                    shard: ShardId(id),
                    state: ShardState::Unavailable(reason.clone()),
                    rows: 0,
                    file_bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
                    queued: 0,
                    commits: 0,
                    mutations: 0,
                    reclaimed: 0,
                }),
            })
            .collect()
    }

    async fn close(&self) {
        self.stop_taking_writes();
        // Whoever closes too waits here until it is done.
        let mut running = self.running.lock().await;
        let ending = std::mem::take(&mut *running);
        if tokio::task::spawn_blocking(|| ending.end()).await.is_err() {
            tracing::error!("waiting for the committers was cut short");
        }
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        self.stop_taking_writes();
        std::mem::take(self.running.get_mut()).end();
    }
}
