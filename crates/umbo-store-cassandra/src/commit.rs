//! A commit of writes: reads their rows, decides, and makes the bucket so; again if another process was faster.

use std::sync::atomic::Ordering;
use std::time::Duration;

use umbo_store::{CommitTime, FencingToken, StoreError, WriteError, WriteRequest, Written, decide};
use umbo_types::{Deadline, NamespaceId, ShardId};

use crate::bucket::BucketId;
use crate::engine::{BucketEngine, lock};
use crate::error::ClusterError;
use crate::guard::Guard;
use crate::guarded::TRIES_MAX;
use crate::queue::QueuedWrite;

/// Longest pause before the third try, half of it; it doubles with each further one up to 32 times this.
const PAUSE: Duration = Duration::from_millis(2);

impl BucketEngine {
    /// Commits writes of a bucket, and answers them.
    pub(crate) async fn write_all(&self, bucket: BucketId, writes: Vec<QueuedWrite>) {
        if writes.is_empty() {
            return;
        }
        let (shard, begun) = (self.shard_of(bucket), self.clock.monotonic());
        match self.commit_writes(bucket, &writes).await {
            Ok(answers) => {
                let took = self.clock.monotonic().saturating_duration_since(begun);
                let all = writes.iter().map(QueuedWrite::weight).sum();
                let state = self.shard(shard);
                state.commits.fetch_add(1, Ordering::Relaxed);
                for (write, answers) in writes.into_iter().zip(answers) {
                    let applied = answers.iter().filter(|answer| answer.is_ok()).count();
                    state.mutations.fetch_add(applied as u64, Ordering::Relaxed);
                    let time = CommitTime::share_of(took, write.weight(), all);
                    let _ = write.answer.send((answers, time));
                }
                self.reclaim_due(bucket).await;
            }
            Err(error) => {
                let error = error.of(shard);
                for write in writes {
                    write.refuse(error.clone());
                }
            }
        }
    }

    /// Refuses what must not begin any more.
    fn admit(&self, shard: ShardId, write: &QueuedWrite) -> Result<(), StoreError> {
        let request = &write.request;
        self.admit_at(shard, request.namespace, write.deadline)?;
        if let Some(run) = request.run {
            self.check_fence(shard, run.load)?;
        }
        self.check_due(shard, request.not_before)
    }

    /// Refuses a change of a fenced namespace, of a store that closes, and any late change.
    pub(crate) fn admit_at(
        &self,
        shard: ShardId,
        namespace: NamespaceId,
        deadline: Option<Deadline>,
    ) -> Result<(), StoreError> {
        self.check_fence(shard, namespace)?;
        if self.is_closing.load(Ordering::SeqCst) {
            return Err(StoreError::Closing);
        }
        let now = self.clock.monotonic();
        if deadline.is_some_and(|deadline| deadline.has_passed(now)) {
            return Err(StoreError::DeadlinePassed { shard });
        }
        Ok(())
    }

    async fn commit_writes(
        &self,
        bucket: BucketId,
        writes: &[QueuedWrite],
    ) -> Result<Vec<Vec<Result<Written, WriteError>>>, ClusterError> {
        let shard = self.shard_of(bucket);
        for QueuedWrite { request, .. } in writes {
            let mutations = &request.mutations;
            if mutations.iter().any(|one| !one.condition.is_unwritten()) {
                self.learn(shard, request.namespace, request.epoch).await?;
            }
        }
        for tries in 0..TRIES_MAX {
            self.pause(tries).await;
            let seen = self.guard_in_turn(bucket, tries).await?;
            let group = self.group_of(bucket);
            let now = self.clock.wall();
            let requests: Vec<&WriteRequest> = writes.iter().map(|write| &write.request).collect();
            let mut view = self.view(bucket, &seen, group, &requests, now).await?;
            let mut next = seen.clone();
            let answers = writes.iter().map(|write| {
                let request = &write.request;
                let admitted = self.admit(shard, write).and_then(|()| match request.run {
                    Some(run) if !self.begin_run(&mut next, run) => {
                        Err(StoreError::Overtaken { shard })
                    }
                    _ => Ok(()),
                });
                match admitted {
                    Ok(()) => decide(&mut view, request, now),
                    Err(error) => vec![Err(error.into()); request.mutations.len()],
                }
            });
            let answers: Vec<_> = answers.collect();
            if self.make_so(bucket, &seen, next, view).await? {
                return Ok(answers);
            }
        }
        Err(ClusterError::Contended)
    }

    /// Waits a little, at random, before a commit is decided anew: not before the second try, as one other
    /// process is likely to have ended by then.
    pub(crate) async fn pause(&self, tries: u32) {
        if tries < 2 {
            return;
        }
        let longest = PAUSE * (1 << tries.min(6)) / 2;
        let mut byte = [0];
        let _ = getrandom::fill(&mut byte);
        tokio::time::sleep(longest * u32::from(byte[0]) / 256).await;
    }

    /// Records the run of a write, or refuses it because a later run has begun one.
    fn begin_run(&self, guard: &mut Guard, run: FencingToken) -> bool {
        let (load, number) = (run.load.0.cast_signed(), run.number.cast_signed());
        let latest = guard.runs.get(&load).copied();
        if latest.is_some_and(|latest| latest.cast_unsigned() > run.number) {
            return false;
        }
        if latest != Some(number) {
            let records = lock(&self.records);
            let has_ended = |load: i32| {
                let load = NamespaceId(load.cast_unsigned());
                records.as_ref().is_some_and(|copy| copy.fences(load))
            };
            guard.runs.retain(|load, _| !has_ended(*load));
            guard.runs.insert(load, number);
        }
        true
    }
}
