//! One open shard as its callers see it: reads on the last commit, work handed to the committer.
//!
//! Owns the read snapshot, the queue and the counters that the committer and its callers share.
//! The invariant: whatever happens to the file, a reader gets a row, nothing, or an error that
//! names the file; a writer gets an answer.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::{oneshot, watch};
use umbo_store::{Outcome, ShardState, ShardStatus, StoreError};
use umbo_types::{Clock, ShardId};

use crate::failure::{Failure, guarded};
use crate::queue::{Queue, Refused};
use crate::snapshot::Snapshot;
use crate::work::Work;

/// What a committer has done since the process started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Commits.
    pub(crate) commits: AtomicU64,
    /// Mutations committed.
    pub(crate) mutations: AtomicU64,
    /// Expired rows reclaimed.
    pub(crate) reclaimed: AtomicU64,
}

/// An open shard.
pub(crate) struct Shard {
    id: ShardId,
    path: PathBuf,
    clock: Arc<dyn Clock>,
    snapshot: ArcSwap<Snapshot>,
    state: Mutex<ShardState>,
    /// Counts the times that the committer has opened the file again, or tried to.
    reopened: watch::Sender<u64>,
    /// Work for the committer.
    pub(crate) queue: Queue<Work>,
    /// What it has done.
    pub(crate) counters: Counters,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard")
            .field("id", &self.id)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Shard {
    /// Makes an available shard that reads from `snapshot`.
    pub(crate) fn new(
        id: ShardId,
        path: PathBuf,
        clock: Arc<dyn Clock>,
        snapshot: Snapshot,
        queue: Queue<Work>,
    ) -> Self {
        Self {
            id,
            path,
            clock,
            snapshot: ArcSwap::from_pointee(snapshot),
            state: Mutex::new(ShardState::Available),
            reopened: watch::Sender::new(0),
            queue,
            counters: Counters::default(),
        }
    }

    /// Reads from the last committed state. A read that the file fails is tried once more after
    /// the committer has opened the file again.
    pub(crate) async fn read<T>(
        &self,
        read: impl Fn(&Snapshot, &dyn Clock) -> Result<T, Failure> + Send + Sync,
    ) -> Result<T, StoreError> {
        match self.attempt(&read) {
            Ok(answer) => Ok(answer),
            Err(failure) => {
                self.recover_from(failure).await?;
                self.attempt(&read)
                    .map_err(|failure| self.error(failure, Outcome::NotApplied))
            }
        }
    }

    /// Reads from the last committed state, once.
    pub(crate) fn attempt<T>(
        &self,
        read: impl FnOnce(&Snapshot, &dyn Clock) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        guarded(|| read(&self.snapshot.load(), &*self.clock))
    }

    /// Waits until the file that failed a read has been opened again, if that is any use.
    pub(crate) async fn recover_from(&self, failure: Failure) -> Result<(), StoreError> {
        if let Failure::Damaged(_) = failure {
            return Err(self.error(failure, Outcome::NotApplied));
        }
        let mut reopened = self.reopened.subscribe();
        if self.queue.nudge() {
            // The sender lives as long as the shard, and a committer that ends counts too.
            let _ = reopened.changed().await;
        }
        Ok(())
    }

    /// Hands work to the committer.
    pub(crate) fn enqueue(&self, work: Work) -> Result<(), StoreError> {
        let size = work.size();
        self.queue
            .push(work, size)
            .map_err(|refused| match refused {
                Refused::Full => StoreError::QueueFull { shard: self.id },
                Refused::Closed => StoreError::Closing,
            })
    }

    /// Waits for the answer to work that was handed over.
    pub(crate) async fn answer<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, StoreError> {
        answer.await.map_err(|_| StoreError::Unavailable {
            shard: self.id,
            reason: self.blame("the committer ended without an answer"),
            outcome: Outcome::Unknown,
        })
    }

    /// Makes readers see a newer state.
    pub(crate) fn publish(&self, snapshot: Snapshot) {
        self.snapshot.store(Arc::new(snapshot));
    }

    /// Tells readers that wait that the file was opened again, or will not be.
    pub(crate) fn note_reopened(&self) {
        self.reopened.send_modify(|times| *times += 1);
    }

    /// Says how the shard serves from now on. Returns how it did before.
    pub(crate) fn set_state(&self, state: ShardState) -> ShardState {
        let mut current = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, state)
    }

    /// Returns the state of the shard for operators.
    pub(crate) fn status(&self) -> ShardStatus {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ShardStatus {
            shard: self.id,
            state: state.clone(),
            rows: guarded(|| self.snapshot.load().row_count()).unwrap_or_default(),
            file_bytes: std::fs::metadata(&self.path).map_or(0, |file| file.len()),
            queued: self.queue.mutations() as u64,
            commits: count(&self.counters.commits),
            mutations: count(&self.counters.mutations),
            reclaimed: count(&self.counters.reclaimed),
        }
    }

    /// Translates a failure of the file for a caller.
    pub(crate) fn error(&self, failure: Failure, outcome: Outcome) -> StoreError {
        let shard = self.id;
        match failure {
            Failure::Full(_) => StoreError::Full { shard, outcome },
            Failure::Io(reason) => StoreError::Io {
                shard,
                reason: self.blame(reason),
                outcome,
            },
            // Damage says nothing about a write, so a doubtful one is told in other words.
            Failure::Damaged(reason) if outcome != Outcome::NotApplied => StoreError::Io {
                shard,
                reason: self.blame(reason),
                outcome,
            },
            Failure::Damaged(reason) => StoreError::Corrupt {
                shard,
                reason: self.blame(reason),
            },
        }
    }

    fn blame(&self, reason: impl std::fmt::Display) -> String {
        format!("{}: {reason}", self.path.display())
    }
}
