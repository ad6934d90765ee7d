//! The queue of each bucket: what waits for its next commit, in order.
//!
//! One task of this process commits to a bucket at a time, and takes at once all that has gathered meanwhile. So
//! writers of a process never contend for the guard, and share its cost. The invariant: work is begun in the order in
//! which it entered, and work that nobody waits for any more is not begun.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use umbo_store::{
    DeleteRangeRequest, Deleted, Outcome, StoreError, WriteError, WriteRequest, Written,
};
use umbo_types::{Deadline, ShardId};

use crate::engine::{BucketId, Engine, lock};
use crate::error::ClusterError;

/// Mutations of one commit, unless a request has more of one bucket.
const COMMIT_ROWS: usize = 1_000;
/// Bytes of the values of one commit, unless a request has more of one bucket. A sixteenth of what the commit log of a
/// node takes as one mutation by default.
const COMMIT_BYTES: usize = 1 << 20;
/// Mutations that may wait in a shard.
const QUEUED_MAX: u64 = 50_000;

/// A write to one bucket.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    pub(crate) request: WriteRequest,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) answer: oneshot::Sender<Vec<Result<Written, WriteError>>>,
}

impl QueuedWrite {
    pub(crate) fn bytes(&self) -> usize {
        use umbo_store::Change;
        let len = |mutation: &umbo_store::Mutation| match &mutation.change {
            Change::Put { value, .. } => value.bytes.len(),
            Change::Delete | Change::Increment { .. } | Change::Upload(_) => 0,
        };
        self.request.mutations.iter().map(len).sum()
    }

    /// Answers all mutations with the same error.
    pub(crate) fn refuse(self, error: StoreError) {
        let count = self.request.mutations.len();
        let _ = self.answer.send(vec![Err(WriteError::Store(error)); count]);
    }
}

/// A step of a removal.
#[derive(Debug)]
pub(crate) struct QueuedRemoval {
    pub(crate) request: DeleteRangeRequest,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) answer: oneshot::Sender<Result<Deleted, StoreError>>,
}

/// What is done in a bucket.
#[derive(Debug)]
pub(crate) enum Work {
    Write(QueuedWrite),
    Removal(QueuedRemoval),
    /// Binds the bucket to the copy of the records that this process knows.
    Bind(oneshot::Sender<Result<(), ClusterError>>),
    /// Reclaims what is fenced and uploads that are due. Answered with whether nothing is left to reclaim.
    Reclaim(oneshot::Sender<bool>),
}

impl Work {
    fn mutations(&self) -> u64 {
        match self {
            Self::Write(write) => write.request.mutations.len() as u64,
            Self::Removal(_) => 1,
            Self::Bind(_) | Self::Reclaim(_) => 0,
        }
    }

    fn is_withdrawn(&self) -> bool {
        match self {
            Self::Write(write) => write.answer.is_closed(),
            Self::Removal(removal) => removal.answer.is_closed(),
            Self::Bind(done) => done.is_closed(),
            Self::Reclaim(done) => done.is_closed(),
        }
    }
}

/// Work that waits. There is a task of the bucket as long as there is a queue.
#[derive(Debug, Default)]
pub(crate) struct BucketQueue(VecDeque<Work>);

impl BucketQueue {
    /// Takes the next work: one step, or writes that fit into one commit.
    fn take(&mut self) -> Vec<Work> {
        let (mut taken, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while let Some(next) = self.0.front() {
            let (next_rows, next_bytes) = match next {
                Work::Write(write) => (write.request.mutations.len(), write.bytes()),
                Work::Removal(_) | Work::Bind(_) | Work::Reclaim(_) => (COMMIT_ROWS, 0),
            };
            let is_full = rows + next_rows > COMMIT_ROWS || bytes + next_bytes > COMMIT_BYTES;
            if !taken.is_empty() && is_full {
                break;
            }
            (rows, bytes) = (rows + next_rows, bytes + next_bytes);
            let is_alone = !matches!(next, Work::Write(_));
            taken.extend(self.0.pop_front());
            if is_alone {
                break;
            }
        }
        taken
    }
}

impl Engine {
    /// Adds work to the queue of a bucket, or refuses it because its shard has too much.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        bucket: BucketId,
        work: Work,
    ) -> Result<(), StoreError> {
        let shard = self.shard_of(bucket);
        let queued = &self.shard(shard).queued;
        if queued.load(Ordering::Relaxed) + work.mutations() > QUEUED_MAX {
            return Err(StoreError::QueueFull { shard });
        }
        queued.fetch_add(work.mutations(), Ordering::Relaxed);
        let mut queues = lock(&self.queues);
        let has_task = queues.contains_key(&bucket);
        queues.entry(bucket).or_default().0.push_back(work);
        drop(queues);
        if !has_task {
            tokio::spawn(Arc::clone(self).run(bucket));
        }
        Ok(())
    }

    /// Does the work of a bucket until there is none.
    async fn run(self: Arc<Self>, bucket: BucketId) {
        // If a commit panics, what waits is dropped: its senders learn that nobody knows its outcome.
        let _end = EndOfTask {
            engine: &self,
            bucket,
        };
        loop {
            let taken = {
                let mut queues = lock(&self.queues);
                let taken = queues.get_mut(&bucket).map(BucketQueue::take);
                match taken {
                    Some(taken) if !taken.is_empty() => taken,
                    _ => {
                        queues.remove(&bucket);
                        return;
                    }
                }
            };
            let mutations: u64 = taken.iter().map(Work::mutations).sum();
            let queued = &self.shard(self.shard_of(bucket)).queued;
            queued.fetch_sub(mutations, Ordering::Relaxed);
            let _admitted = self.admission.read().await;
            let mut writes = Vec::with_capacity(taken.len());
            for work in taken.into_iter().filter(|work| !work.is_withdrawn()) {
                match work {
                    Work::Write(write) => writes.push(write),
                    Work::Removal(removal) => self.remove(bucket, removal).await,
                    Work::Bind(done) => {
                        let _ = done.send(self.bind_bucket(bucket).await);
                    }
                    Work::Reclaim(done) => {
                        let is_done = self.reclaim_bucket(bucket).await;
                        let _ = done.send(is_done.unwrap_or(false));
                    }
                }
            }
            self.write_all(bucket, writes).await;
        }
    }
}

/// Removes the queue of a task that ends, so that the next work gets a new one.
struct EndOfTask<'a> {
    engine: &'a Engine,
    bucket: BucketId,
}

impl Drop for EndOfTask<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.engine.queues).remove(&self.bucket);
        }
    }
}

/// Waits for the answer to work.
pub(crate) async fn answered<T>(
    shard: ShardId,
    answer: oneshot::Receiver<T>,
) -> Result<T, StoreError> {
    let lost = |_| StoreError::Unavailable {
        shard,
        reason: "the commit ended without an answer".to_owned(),
        outcome: Outcome::Unknown,
    };
    answer.await.map_err(lost)
}
