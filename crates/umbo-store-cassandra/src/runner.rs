//! The task of a bucket: does the work of its queue until the queue is empty.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use umbo_store::{Outcome, StoreError};
use umbo_types::ShardId;

use crate::bucket::BucketId;
use crate::engine::{BucketEngine, lock};
use crate::queue::{BucketQueue, Reclaimed, Work};

/// Mutations that may wait in a shard.
const QUEUED_MAX: u64 = 50_000;

impl BucketEngine {
    /// Adds work to the queue of a bucket, or refuses it because its shard has too much.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        bucket: BucketId,
        work: Work,
    ) -> Result<(), StoreError> {
        let shard = self.shard_of(bucket);
        let waiting = &self.shard(shard).queued;
        if waiting.load(Ordering::Relaxed) + work.mutations() > QUEUED_MAX {
            return Err(StoreError::QueueFull { shard });
        }
        waiting.fetch_add(work.mutations(), Ordering::Relaxed);
        let mut queues = lock(&self.queues);
        let has_task = queues.contains_key(&bucket);
        queues.entry(bucket).or_default().add(work);
        drop(queues);
        if !has_task {
            self.runtime.spawn(Arc::clone(self).run(bucket));
        }
        Ok(())
    }

    /// Does the work of a bucket until its queue is empty.
    async fn run(self: Arc<Self>, bucket: BucketId) {
        // If a commit panics, what waits is dropped, and is told as unknown.
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
            let has_run = taken.iter().any(Work::is_of_run);
            let _run = if has_run {
                Some(self.runs.read().await)
            } else {
                None
            };
            let mut writes = Vec::with_capacity(taken.len());
            for work in taken.into_iter().filter(|work| !work.is_withdrawn()) {
                match work {
                    Work::Write(write) => writes.push(write),
                    Work::Removal(removal) => self.remove(bucket, removal).await,
                    Work::Bind(done) => {
                        let _ = done.send(self.bind_bucket(bucket).await);
                    }
                    Work::Reclaim(done) => {
                        let made = self.reclaim_bucket(bucket).await;
                        let _ = done.send(made.unwrap_or(Reclaimed::Nothing));
                    }
                }
            }
            self.write_all(bucket, writes).await;
        }
    }
}

/// Removes the queue of a task that ends, so that the next work gets a new one.
struct EndOfTask<'a> {
    engine: &'a BucketEngine,
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
