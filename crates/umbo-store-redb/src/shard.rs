//! One open shard as its callers see it: reads of the last commit, and work for the committer.
//!
//! Owns the read snapshot, the queue and the counters that the committer and its callers share. The invariant: even if
//! the file fails, a reader gets a row, an absence, or an error that names the file, and a writer gets an answer.

mod backlog;
mod counters;
mod pause;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use umbo_store::{
    BackupRequest, CallContext, ChunkRequest, CommitTime, DatasetGroups, IdRange, Outcome,
    RecordsCopy, ShardState, ShardStatus, StoreError,
};
use umbo_types::{Clock, Key, NamespaceId, Row, ShardId};

use crate::backup::{BackupPiece, ShardBackup};
use crate::bad_read::{at_once, isolated};
use crate::disk::Disk;
use crate::disk_space::blocks_of;
use crate::file_error::FileError;
use crate::key_codec;
use crate::queue::{PushError, Queue};
use crate::row_cache::{CacheTicket, Looked, RowCache};
use crate::sizes::Sizes;
use crate::snapshot::ShardSnapshot;
use crate::work::{QueuedWork, TimedAnswer};
use backlog::Backlog;
pub(crate) use counters::ShardCounters;

/// An open shard.
pub(crate) struct OpenShard {
    id: ShardId,
    path: PathBuf,
    clock: Arc<dyn Clock>,
    snapshot: ArcSwap<ShardSnapshot>,
    /// Rows of the snapshot.
    rows: RowCache,
    state: Mutex<ShardState>,
    /// Sizes of its namespaces as of the snapshot, or `None` if unknown.
    sizes: Mutex<Option<Sizes>>,
    /// Wakes readers when the committer has opened the file again, or tried to.
    reopened: Notify,
    /// Ids that the shard's own file fences on the disk, in ascending order.
    durable_fences: ArcSwap<Arc<[IdRange]>>,
    /// Dataset groups that its own file has on the disk.
    durable_groups: ArcSwap<DatasetGroups>,
    /// The state of the disk below its file.
    pub(crate) disk: Arc<Disk>,
    /// The backup that is being read of it.
    pub(crate) backup: ShardBackup,
    /// Work for the committer.
    pub(crate) queue: Queue<QueuedWork>,
    /// Rows of the log that wait for an apply.
    pub(crate) backlog: Backlog,
    /// Counters of the committer.
    pub(crate) counters: ShardCounters,
}

impl std::fmt::Debug for OpenShard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("id", &self.id)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl OpenShard {
    /// Makes an available shard that reads from `snapshot`.
    pub(crate) fn new(
        id: ShardId,
        (path, disk): (PathBuf, Arc<Disk>),
        clock: Arc<dyn Clock>,
        (snapshot, row_cache_bytes): (ShardSnapshot, usize),
        queue: Queue<QueuedWork>,
        (durable_fences, durable_groups): (Arc<[IdRange]>, DatasetGroups),
    ) -> Self {
        let counters = ShardCounters::default();
        if let Ok(highest) = isolated(|| snapshot.namespace_max()) {
            counters.namespace_max.store(highest.0, Ordering::Relaxed);
        }
        Self {
            id,
            path,
            clock,
            snapshot: ArcSwap::from_pointee(snapshot),
            rows: RowCache::new(row_cache_bytes),
            state: Mutex::new(ShardState::Available),
            sizes: Mutex::default(),
            reopened: Notify::new(),
            durable_fences: ArcSwap::from_pointee(durable_fences),
            durable_groups: ArcSwap::from_pointee(durable_groups),
            disk,
            backup: ShardBackup::default(),
            queue,
            backlog: Backlog::default(),
            counters,
        }
    }

    /// Reads one row.
    pub(crate) async fn get(
        self: &Arc<Self>,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        let (key, _) = key_codec::encode(namespace, key);
        let ticket = match self.rows.look(&key) {
            Looked::Hit(row) => {
                let fenced = self.snapshot.load().check(namespace);
                fenced.map_err(|failure| self.error(failure, Outcome::NotApplied))?;
                return Ok(Some(row));
            }
            Looked::Miss(ticket) => ticket,
        };
        // Boxed, so that the future of a get that the cache answers stays small.
        Box::pin(self.get_stored(namespace, &key, ticket)).await
    }

    /// Reads one row that is not cached, and caches it.
    async fn get_stored(
        self: &Arc<Self>,
        namespace: NamespaceId,
        key: &[u8],
        ticket: CacheTicket,
    ) -> Result<Option<Row>, StoreError> {
        let row = self
            .read(
                |snapshot, clock| snapshot.get(namespace, key, clock),
                || {
                    let key = key.to_vec();
                    move |snapshot: &ShardSnapshot, clock: &dyn Clock| {
                        snapshot.get(namespace, &key, clock)
                    }
                },
            )
            .await?;
        if let Some(row) = &row {
            self.rows.keep(ticket, key, row);
        }
        Ok(row)
    }

    /// Reads a chunk of a large value.
    pub(crate) async fn chunk(
        self: &Arc<Self>,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        self.read(
            |snapshot, _| snapshot.chunk(request),
            || {
                let request = *request;
                move |snapshot: &ShardSnapshot, _: &dyn Clock| snapshot.chunk(&request)
            },
        )
        .await
    }

    /// Begins a backup, or reads a piece of it. Returns `None` beyond its end.
    pub(crate) async fn backup(
        self: &Arc<Self>,
        request: &BackupRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        let now = self.clock.monotonic();
        if request.piece == 0 {
            if self.snapshot.load().is_paused() {
                self.recover_from(FileError::Paused).await?;
            }
            let state = self.snapshot.load_full();
            self.backup.begin(request.backup, state, now);
            return Ok(Some(Bytes::new()));
        }
        let (shard, asked) = (Arc::clone(self), *request);
        let piece = move || isolated(|| shard.backup.piece(&asked, now));
        let piece = self.disk.wait(piece).await;
        let piece = piece.map_err(|failure| self.error(failure, Outcome::NotApplied))?;
        match piece {
            BackupPiece::Piece(piece) => Ok(Some(piece)),
            BackupPiece::End => Ok(None),
            BackupPiece::Gone => Ok(Some(Bytes::new())),
        }
    }

    /// Reads from the last committed state. A read that fails on the file is tried once more after the
    /// committer has opened the file again. `owned` makes the same read for another thread, if it has to wait
    /// for the disk.
    pub(crate) async fn read<T, O>(
        self: &Arc<Self>,
        read: impl Fn(&ShardSnapshot, &dyn Clock) -> Result<T, FileError> + Send + Sync,
        owned: impl Fn() -> O + Send + Sync,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        O: FnOnce(&ShardSnapshot, &dyn Clock) -> Result<T, FileError> + Send + 'static,
    {
        match self.attempt_at_once(&read) {
            Ok(answer) => Ok(answer),
            // Boxed, so that the future of a read that waits for nothing stays small.
            Err(failure) => Box::pin(self.read_again(failure, owned)).await,
        }
    }

    /// Repeats a failed read, and waits for the disk if necessary.
    pub(crate) async fn read_again<T, O>(
        self: &Arc<Self>,
        failure: FileError,
        owned: impl Fn() -> O + Send + Sync,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        O: FnOnce(&ShardSnapshot, &dyn Clock) -> Result<T, FileError> + Send + 'static,
    {
        match failure {
            FileError::MustWait => {}
            failure => self.recover_from(failure).await?,
        }
        let failure = match self.attempt_waiting(&owned).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        self.recover_from(failure).await?;
        self.attempt_waiting(&owned)
            .await
            .map_err(|failure| self.error(failure, Outcome::NotApplied))
    }

    /// Reads from the last committed state, once, without waiting for the disk.
    pub(crate) fn attempt_at_once<T>(
        &self,
        read: impl FnOnce(&ShardSnapshot, &dyn Clock) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        at_once(|| read(&self.snapshot.load(), &*self.clock))
    }

    async fn attempt_waiting<T, O>(
        self: &Arc<Self>,
        owned: &(impl Fn() -> O + Send + Sync),
    ) -> Result<T, FileError>
    where
        T: Send + 'static,
        O: FnOnce(&ShardSnapshot, &dyn Clock) -> Result<T, FileError> + Send + 'static,
    {
        loop {
            let (shard, read) = (Arc::clone(self), owned());
            match self.disk.wait(move || shard.attempt(read)).await {
                Err(FileError::Paused) if self.outlasts_pause().await => {}
                read => return read,
            }
        }
    }

    /// Reads from the last committed state, once. May wait for the disk.
    pub(crate) fn attempt<T>(
        &self,
        read: impl FnOnce(&ShardSnapshot, &dyn Clock) -> Result<T, FileError>,
    ) -> Result<T, FileError> {
        isolated(|| read(&self.snapshot.load(), &*self.clock))
    }

    /// Waits until the file of a failed read has been opened again, if that can help.
    pub(crate) async fn recover_from(&self, failure: FileError) -> Result<(), StoreError> {
        if failure == FileError::Paused && self.outlasts_pause().await {
            return Ok(());
        }
        if !matches!(failure, FileError::Io(_) | FileError::Full(_)) {
            return Err(self.error(failure, Outcome::NotApplied));
        }
        // Made before the committer is woken, because its notification may come at once. The committer also notifies
        // when it ends.
        let reopened = self.reopened.notified();
        if self.queue.nudge() {
            reopened.await;
        }
        Ok(())
    }

    /// Hands work to the committer.
    pub(crate) fn enqueue(&self, work: QueuedWork) -> Result<(), StoreError> {
        let size = work.size();
        self.queue
            .push(work, size)
            .map_err(|refused| match refused {
                PushError::Full => StoreError::QueueFull { shard: self.id },
                PushError::Closed => match self.current_state() {
                    ShardState::Unavailable(reason) => self.unavailable(reason),
                    ShardState::Available | ShardState::ReadOnly(_) => StoreError::Closing,
                },
            })
    }

    /// Waits for the answer to queued work. The service time of the work is the duration of its commit. If the work was
    /// not committed, it is the duration of the last commit. The wait for the previous commit does not count. The call
    /// is charged its share of the commit.
    pub(crate) async fn answer<T>(
        &self,
        call: &CallContext,
        answer: oneshot::Receiver<TimedAnswer<T>>,
    ) -> Result<T, StoreError> {
        let reply = answer.await;
        let time = reply.as_ref().ok().and_then(|reply| reply.time);
        let nanos = self.counters.last_commit_nanos.load(Ordering::Relaxed);
        match time {
            Some(CommitTime { took, share }) => call.note_shared_time(took, share),
            None if nanos > 0 => call.note_service_time(Duration::from_nanos(nanos)),
            None => {}
        }
        let reply = reply.map_err(|_| StoreError::Unavailable {
            shard: self.id,
            reason: self.blame("the committer ended without an answer"),
            outcome: Outcome::Unknown,
        })?;
        Ok(reply.answer)
    }

    /// Returns whether the shard's own file has the fences and dataset groups of a copy of the records on the disk.
    pub(crate) fn has_kept(&self, copy: &RecordsCopy) -> bool {
        self.has_fenced(&copy.fenced) && self.durable_groups.load().has(copy)
    }

    /// Returns whether all of these namespaces are fenced by the shard's own file, on the disk.
    fn has_fenced(&self, ranges: &[IdRange]) -> bool {
        let durable = self.durable_fences.load();
        ranges.iter().all(|range| range.beyond(&durable).is_empty())
    }

    /// Records which namespaces the shard's own file fences on the disk.
    pub(crate) fn note_fenced(&self, ids: Arc<[IdRange]>) {
        self.durable_fences.store(Arc::new(ids));
    }

    /// Records which dataset groups the shard's own file has on the disk.
    pub(crate) fn note_groups(&self, groups: DatasetGroups) {
        self.durable_groups.store(Arc::new(groups));
    }

    /// Makes readers see another state. It differs in the rows whose keys have these hashes; without hashes, any row
    /// may differ.
    pub(crate) fn publish(&self, snapshot: ShardSnapshot, changed: Option<&[u64]>) {
        let publish = || self.snapshot.store(Arc::new(snapshot));
        match changed {
            Some(changed) => self.rows.replace(changed, publish),
            None => self.rows.replace_all(publish),
        }
        // Only commits make the file of a forgotten backup grow.
        self.backup.end_if_idle(self.clock.monotonic());
    }

    /// Returns the state that readers see.
    pub(crate) fn snapshot(&self) -> Arc<ShardSnapshot> {
        self.snapshot.load_full()
    }

    /// Returns the sizes of all namespaces, `None` if unknown. The counters of commits change under their lock, so that a
    /// status shows all of a commit or nothing.
    pub(crate) fn sizes(&self) -> MutexGuard<'_, Option<Sizes>> {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of all rows with their large values, or `None` if unknown.
    pub(crate) fn live_bytes(&self) -> Option<u64> {
        let sizes = self.sizes();
        Some(sizes.as_ref()?.values().map(|size| size.bytes).sum())
    }

    /// Changes the sizes of namespaces, if they are known.
    pub(crate) fn change_sizes(&self, change: impl FnOnce(&mut Sizes)) {
        self.sizes().as_mut().map(change);
    }

    /// Wakes the readers that wait for the file to be opened again; it has been opened, or will not be.
    pub(crate) fn note_reopened(&self) {
        self.reopened.notify_waiters();
    }

    /// Refuses all work from now on: the committer has panicked, which is a defect of Umbo and not of the file.
    pub(crate) fn end_after_panic(&self) {
        let reason = "its committer has panicked, see the log; a restart brings it back";
        let reason = self.blame(reason);
        self.set_state(ShardState::Unavailable(reason.clone()));
        for work in self.queue.abandon() {
            work.refuse(self.unavailable(reason.clone()));
        }
        self.note_reopened();
    }

    fn current_state(&self) -> ShardState {
        let state = self.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the state of the shard. Returns the previous one.
    pub(crate) fn set_state(&self, state: ShardState) -> ShardState {
        let mut current = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, state)
    }

    /// Returns the state of the shard for operators.
    pub(crate) fn status(&self) -> ShardStatus {
        let file_bytes = blocks_of(&self.path).unwrap_or(0);
        let sizes = self.sizes();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let looks = self.rows.looks();
        ShardStatus {
            shard: self.id,
            state: match self.current_state() {
                ShardState::Available if self.disk.is_stuck() => {
                    ShardState::ReadOnly(self.blame(FileError::Stuck))
                }
                state => state,
            },
            rows: match sizes.as_ref() {
                Some(sizes) => sizes.values().map(|size| size.rows).sum(),
                None => self.snapshot.load().row_count(),
            },
            file_bytes,
            queued: self.queue.mutations() as u64,
            commits: count(&self.counters.commits),
            mutations: count(&self.counters.mutations),
            reclaimed: count(&self.counters.reclaimed),
            purging: count(&self.counters.purging),
            expired: count(&self.counters.expired),
            namespace_max: NamespaceId(self.counters.namespace_max.load(Ordering::Relaxed)),
            sizes: sizes
                .as_ref()
                .map(|sizes| sizes.values().copied().collect()),
            sizes_omitted: 0,
            syncs: count(&self.counters.syncs),
            sync_nanos: count(&self.counters.sync_nanos),
            cache_hits: looks.hits,
            cache_misses: looks.misses,
            compactions: count(&self.counters.compactions),
            compaction_nanos: count(&self.counters.compaction_nanos),
            held_nanos: count(&self.backlog.held_nanos),
        }
    }

    /// Translates an error of the file for a caller.
    pub(crate) fn error(&self, failure: FileError, outcome: Outcome) -> StoreError {
        let shard = self.id;
        match failure {
            FileError::Full(_) => StoreError::Full { shard, outcome },
            FileError::Gone(namespace) => StoreError::NamespaceGone { shard, namespace },
            FileError::MustWait | FileError::Stuck | FileError::Paused => StoreError::Unavailable {
                shard,
                reason: self.blame(failure),
                outcome,
            },
            FileError::Missing(reason) | FileError::Io(reason) | FileError::Unreadable(reason) => {
                StoreError::Io {
                    shard,
                    reason: self.blame(reason),
                    outcome,
                }
            }
            // Damage tells nothing about the outcome of a write, so an uncertain write is reported as an I/O
            // error.
            FileError::Damaged(reason) if outcome != Outcome::NotApplied => StoreError::Io {
                shard,
                reason: self.blame(reason),
                outcome,
            },
            FileError::Damaged(reason) => StoreError::Corrupt {
                shard,
                reason: self.blame(reason),
            },
        }
    }

    fn unavailable(&self, reason: String) -> StoreError {
        StoreError::Unavailable {
            shard: self.id,
            reason,
            outcome: Outcome::NotApplied,
        }
    }

    fn blame(&self, reason: impl std::fmt::Display) -> String {
        format!("{}: {reason}", self.path.display())
    }
}
