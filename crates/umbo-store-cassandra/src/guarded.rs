//! The guard of a bucket, and the commit that is applied only if the bucket is as it was seen.
//!
//! Every change of a bucket is one conditional batch: it names the tag that the writer has seen, and sets a new random
//! one. So all decisions of a commit are about the rows that it replaces, with any number of processes. A
//! version could not stand for the tag: two processes may give the same one, and each would take the other's commit for
//! its own when it asks for the outcome.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::batch::{Batch, BatchType};
use scylla::value::CqlValue;
use umbo_store::RecordsRevision;
use umbo_types::{NamespaceId, Timestamp, Version};

use crate::bucket::BucketId;
use crate::cell::{BoundValue, big, int};
use crate::engine::{BucketEngine, lock};
use crate::error::{ClusterError, was_never_begun};
use crate::found::{SizeOf, is_applied};
use crate::guard::{Guard, RowChange};

/// How often the outcome of a commit is asked for: longer than a node that is lost keeps others from an answer.
const ASKED_MAX: u32 = 20;
/// Pause between two such questions.
const ASKED_EVERY: Duration = Duration::from_millis(500);
/// How often a commit is decided anew because another process was faster.
pub(crate) const TRIES_MAX: u32 = 100;
/// How often another process may be faster before this one takes a turn.
const TRIES_BEFORE_TURN: u32 = 3;
/// How often others look whether a turn has ended, half a second in all: many times a commit of a thousand rows.
const TURN_LOOKS: u32 = 25;
/// Pause between two such looks.
const TURN_LOOKED_AT_EVERY: Duration = Duration::from_millis(20);

impl BucketEngine {
    /// Reads the guard of a bucket.
    pub(crate) async fn read_guard(
        &self,
        bucket: BucketId,
        is_serial: bool,
    ) -> Result<Guard, ClusterError> {
        /// The column of the guard; `guard_cells` writes it.
        type Parts = (
            Vec<(i64, i64)>,
            i64,
            Option<i32>,
            Option<i32>,
            i64,
            i64,
            Option<i64>,
            BTreeMap<i32, SizeOf>,
            BTreeMap<i32, i32>,
            Option<i64>,
        );
        let statement = if is_serial {
            &self.statements.guard_serial
        } else {
            &self.statements.guard
        };
        let answer = self.execute(statement, self.bound([], bucket, [])).await?;
        let row = answer.into_rows_result()?;
        let Some((tag, parts)) = row.maybe_first_row::<(i64, Parts)>()? else {
            return Ok(Guard::default());
        };
        let (last_commits, top, epoch, live, records, number, due, sizes, runs, turn) = parts;
        Ok(Guard {
            tag: Some(tag),
            last_commits,
            top: Version(top.cast_unsigned()),
            live: epoch.zip(live).map(|(epoch, live)| {
                let live = NamespaceId(live.cast_unsigned());
                (epoch.cast_unsigned(), live)
            }),
            records: RecordsRevision {
                epoch: records.cast_unsigned(),
                number: number.cast_unsigned(),
            },
            due: due.map(|at| Timestamp(at.cast_unsigned())),
            sizes,
            runs,
            turn,
        })
    }

    /// Returns the guard as the last commit of this process left it, or as it is. First learns the records and the
    /// activation that the last writer of the bucket knew.
    pub(crate) async fn known_guard(&self, bucket: BucketId) -> Result<Guard, ClusterError> {
        let known = self.lock_guards().get(&bucket).cloned();
        let guard = match known {
            Some(guard) => guard,
            None => self.read_guard(bucket, false).await?,
        };
        if guard.records > self.revision() {
            self.refresh_records().await?;
        }
        if let Some((epoch, live)) = guard.live {
            self.learn(self.shard_of(bucket), live, epoch).await?;
        }
        Ok(guard)
    }

    /// Makes changes and the next guard, all or none. Returns false if the bucket was not as `seen` any more.
    pub(crate) async fn commit(
        &self,
        bucket: BucketId,
        seen: &Guard,
        mut next: Guard,
        changes: Vec<RowChange<'_>>,
    ) -> Result<bool, ClusterError> {
        next.records = next.records.max(self.revision());
        if seen.tag.is_none() && self.note_namespace(bucket.identity).await? {
            // A keeper that has bound the buckets of all namespaces meanwhile did not know this one.
            return Ok(false);
        }
        let tag = random_id()?;
        next.name(self.process, tag);
        next.turn = None;
        let mut batch = guarded_batch();
        let mut values = Vec::with_capacity(changes.len() + 1);
        batch.append_statement(self.statements.set_guard.clone());
        values.push(self.guard_cells(bucket, seen, &next));
        for (statement, cells) in changes {
            batch.append_statement(statement.clone());
            values.push(cells);
        }
        let applied = match self.session.batch(&batch, values).await {
            Err(error) if was_never_begun(&error) => return Err(error.into()),
            Ok(answer) => match is_applied(answer) {
                Ok(applied) => Ok(applied),
                Err(_) => self.outcome(bucket, seen, tag).await,
            },
            Err(_) => self.outcome(bucket, seen, tag).await,
        };
        match applied {
            Ok(true) => {
                self.count_sizes(bucket, &next);
                self.lock_guards().put(bucket, next);
            }
            Ok(false) | Err(_) => {
                self.lock_guards().pop(&bucket);
            }
        }
        applied
    }

    /// Asks whether a commit of this process was applied that was not answered. A node that stands still may begin it
    /// once it goes on, so it counts as not applied only under another tag than `seen`.
    async fn outcome(
        &self,
        bucket: BucketId,
        seen: &Guard,
        tag: i64,
    ) -> Result<bool, ClusterError> {
        for asked in 0..ASKED_MAX {
            if asked > 0 {
                tokio::time::sleep(ASKED_EVERY).await;
            }
            // A serial read ends what hangs.
            let Ok(now) = self.read_guard(bucket, true).await else {
                continue;
            };
            if now.tag != seen.tag {
                return now.tells_of(self.process, tag).ok_or(ClusterError::InDoubt);
            }
            let turn = now.turn;
            if let Ok(Some(_)) = self.rename(bucket, now, turn).await {
                return Ok(false);
            }
        }
        Err(ClusterError::InDoubt)
    }

    /// Returns the guard to decide a commit by, once another process has had its turn. Who has been overtaken a few
    /// times takes a turn: a long commit would never be faster than short ones.
    pub(crate) async fn guard_in_turn(
        &self,
        bucket: BucketId,
        tries: u32,
    ) -> Result<Guard, ClusterError> {
        let mut seen = self.known_guard(bucket).await?;
        for _ in 0..TURN_LOOKS {
            if seen.turn.is_none_or(|process| process == self.process) {
                break;
            }
            tokio::time::sleep(TURN_LOOKED_AT_EVERY).await;
            self.lock_guards().pop(&bucket);
            seen = self.known_guard(bucket).await?;
        }
        // The first commit of a bucket writes its namespace down before.
        if tries < TRIES_BEFORE_TURN || seen.turn.is_some() || seen.tag.is_none() {
            return Ok(seen);
        }
        // Without an answer it is not known whose turn it is, and the commit is tried without one.
        if let Ok(Some(guard)) = self.rename(bucket, seen, Some(self.process)).await {
            self.lock_guards().put(bucket, guard.clone());
            return Ok(guard);
        }
        self.lock_guards().pop(&bucket);
        self.known_guard(bucket).await
    }

    /// Gives the guard another tag and says whose turn it is, so that no earlier commit can be applied any more. Returns
    /// the guard, or `None` if the bucket was not as `now` any more.
    async fn rename(
        &self,
        bucket: BucketId,
        now: Guard,
        turn: Option<i64>,
    ) -> Result<Option<Guard>, ClusterError> {
        let mut next = now.clone();
        next.name(self.process, random_id()?);
        next.turn = turn;
        let mut batch = guarded_batch();
        batch.append_statement(self.statements.set_guard.clone());
        let values = vec![self.guard_cells(bucket, &now, &next)];
        let is_applied = is_applied(self.session.batch(&batch, values).await?)?;
        Ok(is_applied.then_some(next))
    }

    fn guard_cells(&self, bucket: BucketId, seen: &Guard, next: &Guard) -> Vec<BoundValue> {
        let number = |key: i32| CqlValue::Int(key);
        let size = |&(rows, bytes, saved): &SizeOf| {
            CqlValue::Tuple(
                [rows, bytes, saved]
                    .map(|one| Some(CqlValue::BigInt(one)))
                    .into(),
            )
        };
        let sizes = next.sizes.iter().map(|(&id, one)| (number(id), size(one)));
        let last_commits = next.last_commits.iter().map(|&(process, tag)| {
            CqlValue::Tuple([process, tag].map(|one| Some(CqlValue::BigInt(one))).into())
        });
        let runs = next.runs.iter();
        let runs = runs.map(|(&load, &run)| (number(load), number(run)));
        let parts = vec![
            Some(CqlValue::List(last_commits.collect())),
            big(next.top.0),
            next.live.and_then(|live| int(live.0)),
            next.live.and_then(|live| int(live.1.0)),
            big(next.records.epoch),
            big(next.records.number),
            next.due.and_then(|at| big(at.0)),
            Some(CqlValue::Map(sizes.collect())),
            Some(CqlValue::Map(runs.collect())),
            next.turn.map(CqlValue::BigInt),
        ];
        let sets = [next.tag.map(CqlValue::BigInt), Some(CqlValue::Tuple(parts))];
        self.bound(sets, bucket, [seen.tag.map(CqlValue::BigInt)])
    }

    /// Counts a bucket as its guard has it.
    pub(crate) fn count_sizes(&self, bucket: BucketId, guard: &Guard) {
        lock(&self.shard(self.shard_of(bucket)).sizes).count(bucket, &guard.sizes);
    }
}

/// Returns an empty batch that is sent once: a second one says that it was not applied, although the first was.
fn guarded_batch() -> Batch {
    let mut batch = Batch::new(BatchType::Unlogged);
    batch.set_retry_policy(Some(Arc::new(FallthroughRetryPolicy::new())));
    batch
}

pub(crate) fn random_id() -> Result<i64, ClusterError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| ClusterError::Answer(error.into()))?;
    Ok(i64::from_be_bytes(bytes))
}
