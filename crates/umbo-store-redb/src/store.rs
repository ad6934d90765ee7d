//! The store: finds the shard of each key and merges what the shards answer.
//!
//! Owns the shards, their committer threads and the folder's lock. Decides nothing about rows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Mutex, oneshot};
use umbo_routing::ShardMap;
use umbo_store::{
    CallContext, DeleteRangeRequest, Deleted, Outcome, Page, PurgeProgress, RangeRequest, ScanPage,
    ScanRequest, ShardState, ShardStatus, Store, StoreError, WriteError, WriteRequest, Written,
};
use umbo_types::{Clock, Key, NamespaceId, Row, ShardId};

use crate::config::Config;
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
    folder: PathBuf,
    map: Arc<ShardMap>,
    shards: Vec<Served>,
    report: OpenReport,
    running: Mutex<Running>,
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
        let mut shards = elsewhere(&config, &folder.manifest.shard_map);
        let mut running = Running {
            committers: Vec::new(),
            lock: Some(folder.lock),
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
        Ok(Self {
            folder: config.folder,
            map: Arc::new(folder.manifest.shard_map),
            shards,
            report,
            running: Mutex::new(running),
        })
    }

    /// Returns the data folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns what opening has found.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    fn shard(&self, id: ShardId) -> Result<&Arc<Shard>, StoreError> {
        match &self.shards[usize::from(id.0)] {
            Served::Open(shard) => Ok(shard),
            Served::Failed(_, reason) | Served::Elsewhere(reason) => Err(StoreError::Unavailable {
                shard: id,
                reason: reason.clone(),
                outcome: Outcome::NotApplied,
            }),
        }
    }

    /// Says whether a shard belongs to this folder, if only as a file that failed.
    fn is_here(&self, id: ShardId) -> bool {
        !matches!(self.shards[usize::from(id.0)], Served::Elsewhere(_))
    }

    async fn purge_shard(
        &self,
        id: ShardId,
        namespace: NamespaceId,
        rows_max: u32,
    ) -> Result<PurgeProgress, StoreError> {
        let shard = self.shard(id)?;
        let (reply, answer) = oneshot::channel();
        shard.enqueue(Work::Purge(Purge {
            namespace,
            rows_max,
            reply,
        }))?;
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
            self.shard(id)?
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
            if let Served::Open(shard) = shard {
                shard.queue.close();
            }
        }
    }
}

/// Returns what is answered for each shard as long as it has not been opened here.
fn elsewhere(config: &Config, map: &ShardMap) -> Vec<Served> {
    let reason = |shard: usize| {
        let member = config.cluster.as_ref()?;
        let owner = member.map.node_of(ShardId(shard as u16))?;
        let (own, owner) = (&member.node, owner.name());
        Some(format!("it is not on node '{own}', but on node '{owner}'"))
    };
    let reasons = (0..map.shards()).map(|shard| reason(shard).unwrap_or_default());
    reasons.map(Served::Elsewhere).collect()
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
        let shard = self.shard(self.map.locate(namespace, &key.partition))?;
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
        let shard = self.shard(self.map.locate(request.namespace, &request.partition))?;
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
        self.shard(id)?.recover_from(failure).await?;
        self.scan_once(request).map_err(|failure| match failure {
            ScanFailure::Store(error) => error,
            ScanFailure::File(id, failure) => match self.shard(id) {
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
            let begun = self
                .shard(id)
                .and_then(|shard| shard.enqueue(work).map(|()| shard));
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
        let shard = self.shard(self.map.locate(request.namespace, &request.partition))?;
        if request.range.is_empty() {
            return Ok(Deleted::default());
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
        shard.enqueue(work)?;
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
            .filter_map(|(id, shard)| match shard {
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
