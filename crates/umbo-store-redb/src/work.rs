//! The work of a committer, and its answers.
//!
//! Keys are encoded before they are queued, on the caller's thread, so that the one committer of a shard does only work
//! that must be done in order. Work whose caller no longer waits for the reply is withdrawn.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use umbo_store::{
    Atomicity, Change, CommitTime, Condition, DatasetGroup, DatasetGroups, Deleted, Durability,
    FencingToken, GIVES_WAY_EVERY, Idempotency, Mutation, RecordsCopy, StoreError, UploadStep,
    WriteError, Written, give_way,
};
use umbo_types::{Deadline, NamespaceId, StoredForm, Timestamp, Version};

use crate::key_codec;
use crate::queue::WorkSize;

/// Most rows that one step of a range removal touches.
pub(crate) const REMOVED_ROWS_MAX: u32 = 4_096;

/// The answer that the caller of a piece of work receives.
#[derive(Debug)]
pub(crate) struct TimedAnswer<T> {
    pub(crate) answer: T,
    /// `None` if the work was not committed.
    pub(crate) time: Option<CommitTime>,
}

impl<T> TimedAnswer<T> {
    fn uncommitted(answer: T) -> Self {
        Self { answer, time: None }
    }
}

/// Answer to one mutation.
pub(crate) type MutationResult = Result<Written, WriteError>;

/// One mutation.
#[derive(Debug)]
pub(crate) struct Op {
    /// Index of the mutation in the request.
    pub(crate) index: usize,
    /// Physical key.
    pub(crate) key: Vec<u8>,
    /// Length of the part of the key that the partition shares.
    pub(crate) prefix_len: usize,
    /// The change to make.
    pub(crate) change: Change,
    /// The condition for the change.
    pub(crate) condition: Condition,
    /// Namespace under which an idempotency record of the change is kept.
    pub(crate) identity: NamespaceId,
    /// For a row of a load, whose dataset is being built: the dataset that is live meanwhile.
    pub(crate) live: Option<NamespaceId>,
}

impl Op {
    /// Encodes the key of a mutation, on the thread of its caller.
    pub(crate) fn new(namespace: NamespaceId, index: usize, mutation: Mutation) -> Self {
        give_way(index, GIVES_WAY_EVERY);
        let (key, prefix_len) = key_codec::encode(namespace, &mutation.key);
        Self {
            index,
            key,
            prefix_len,
            change: mutation.change,
            condition: mutation.condition,
            identity: namespace,
            live: None,
        }
    }

    /// Returns the part of the key that the partition shares.
    pub(crate) fn partition(&self) -> &[u8] {
        &self.key[..self.prefix_len]
    }

    /// Returns the bytes of key and value.
    pub(crate) fn bytes(&self) -> usize {
        let value = match &self.change {
            Change::Put { value, .. } => crate::row_codec::encoded_len_max(value),
            Change::Upload(step) => step.len(),
            Change::Delete | Change::Increment { .. } => 0,
        };
        self.key.len() + value
    }

    /// Returns whether the mutation changes an upload. It must be on the disk before anything refers to the upload.
    fn is_of_upload(&self) -> bool {
        match &self.change {
            Change::Upload(_) => true,
            Change::Put { value, .. } => value.form == StoredForm::Large,
            Change::Delete | Change::Increment { .. } => false,
        }
    }
}

/// The mutations of a request that belong to this shard.
#[derive(Debug)]
pub(crate) struct WriteWork {
    /// The namespace of all of them, as the sender names it.
    pub(crate) namespace: NamespaceId,
    /// Epoch of the group that the sender knows.
    pub(crate) epoch: u32,
    /// The datasets that take the write; set when it is admitted.
    pub(crate) group: Option<Arc<DatasetGroup>>,
    /// The mutations, in order.
    pub(crate) ops: Vec<Op>,
    /// Which mutations belong together.
    pub(crate) atomicity: Atomicity,
    /// When to answer.
    pub(crate) durability: Durability,
    /// Version proposed by the dispatcher.
    pub(crate) proposed: Version,
    /// Identifies the write, so that a repetition is recognised. Its lines are the lines of the whole request.
    pub(crate) idempotency: Option<Idempotency>,
    /// The run of a load that makes the write.
    pub(crate) run: Option<FencingToken>,
    /// Instant after which the work is not begun any more.
    pub(crate) deadline: Option<Deadline>,
    /// When the work is due, if it cannot be undone.
    pub(crate) not_before: Option<Timestamp>,
    /// Receives the answers, one for each mutation in order.
    pub(crate) reply: oneshot::Sender<TimedAnswer<Vec<MutationResult>>>,
}

/// One step of the removal of a range.
#[derive(Debug)]
pub(crate) struct DeleteRangeWork {
    /// The namespace, as the sender names it.
    pub(crate) namespace: NamespaceId,
    /// Epoch of the group that the sender knows.
    pub(crate) epoch: u32,
    /// The datasets that lose the rows; set when the work is admitted.
    pub(crate) group: Option<Arc<DatasetGroup>>,
    /// First physical key, and the first one beyond the range.
    pub(crate) bounds: (Vec<u8>, Vec<u8>),
    /// Length of the part of the key that the partition shares.
    pub(crate) prefix_len: usize,
    /// Most rows to remove.
    pub(crate) rows_max: u32,
    /// When to answer.
    pub(crate) durability: Durability,
    /// Instant after which the work is not begun any more.
    pub(crate) deadline: Option<Deadline>,
    /// Receives the answer.
    pub(crate) reply: oneshot::Sender<TimedAnswer<Result<Deleted, StoreError>>>,
}

/// The raising of the fences of a copy of the records, and the keeping of its dataset groups.
#[derive(Debug)]
pub(crate) struct Raise {
    /// The copy.
    pub(crate) copy: Arc<RecordsCopy>,
    /// Receives the answer, once both are on the disk.
    pub(crate) reply: oneshot::Sender<TimedAnswer<Result<(), StoreError>>>,
}

/// Answer to one piece of work.
#[derive(Debug)]
pub(crate) enum WorkAnswer {
    /// To a write.
    Write(Vec<MutationResult>),
    /// To the removal of a range.
    DeleteRange(Deleted),
    /// To the raising of fences.
    Raised,
}

impl WorkAnswer {
    /// Returns the number of rows that the work touched. The time of a commit is divided by these numbers.
    fn rows(&self) -> u64 {
        match self {
            Self::Write(answers) => answers.len() as u64,
            Self::DeleteRange(deleted) => deleted.rows,
            Self::Raised => 1,
        }
        .max(1)
    }
}

/// Answers all work of a commit. If the duration of the commit is known, each answer has the duration and its share by
/// bytes and rows.
pub(crate) fn answer_all(work: Vec<QueuedWork>, answers: Vec<WorkAnswer>, took: Option<Duration>) {
    let weight = |(work, answer): (&QueuedWork, &WorkAnswer)| {
        CommitTime::weight(answer.rows(), work.size().bytes as u64)
    };
    let all = work.iter().zip(&answers).map(weight).sum();
    for (work, answer) in work.into_iter().zip(answers) {
        let weight = weight((&work, &answer));
        let time = took.map(|took| CommitTime::share_of(took, weight, all));
        work.answer(answer, time);
    }
}

/// A piece of work.
#[derive(Debug)]
pub(crate) enum QueuedWork {
    /// Apply mutations.
    Write(WriteWork),
    /// Remove a part of a range.
    DeleteRange(DeleteRangeWork),
    /// Fence namespaces.
    Raise(Raise),
}

impl QueuedWork {
    /// Returns the work if it is a write.
    pub(crate) const fn as_write(&self) -> Option<&WriteWork> {
        match self {
            Self::Write(write) => Some(write),
            Self::DeleteRange(_) | Self::Raise(_) => None,
        }
    }

    /// Returns the size of the work in the queue.
    pub(crate) fn size(&self) -> WorkSize {
        match self {
            Self::Write(write) => WorkSize {
                mutations: write.ops.len(),
                bytes: write.ops.iter().map(Op::bytes).sum(),
            },
            Self::DeleteRange(DeleteRangeWork { rows_max, .. }) => WorkSize {
                mutations: (*rows_max).min(REMOVED_ROWS_MAX) as usize,
                bytes: 0,
            },
            // A full queue still accepts a fence.
            Self::Raise(_) => WorkSize::default(),
        }
    }

    /// Returns the instant after which the work is not begun any more.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        match self {
            Self::Write(write) => write.deadline,
            Self::DeleteRange(delete) => delete.deadline,
            Self::Raise(_) => None,
        }
    }

    /// Returns when the work is due, if it cannot be undone.
    pub(crate) const fn not_before(&self) -> Option<Timestamp> {
        match self {
            Self::Write(write) => write.not_before,
            Self::DeleteRange(_) | Self::Raise(_) => None,
        }
    }

    /// Returns the namespace of the rows that the work touches, or `None` if it touches no rows.
    pub(crate) fn namespace(&self) -> Option<NamespaceId> {
        match self {
            Self::Write(write) => Some(write.namespace),
            Self::DeleteRange(delete) => Some(delete.namespace),
            Self::Raise(_) => None,
        }
    }

    /// Returns the run of a load that makes the work.
    pub(crate) fn run(&self) -> Option<FencingToken> {
        match self {
            Self::Write(write) => write.run,
            Self::DeleteRange(_) | Self::Raise(_) => None,
        }
    }

    /// Returns the highest namespace that gets rows by the work, or `None` if it touches no rows.
    pub(crate) fn namespace_max(&self) -> Option<NamespaceId> {
        let group = match self {
            Self::Write(write) => write.group.as_ref(),
            Self::DeleteRange(_) | Self::Raise(_) => None,
        };
        let mirrors = group.and_then(|group| group.ids().max());
        self.namespace().max(mirrors)
    }

    /// Returns the dataset and the epoch that the sender names. Returns `None` if the sender knows no group, or if the
    /// write has only rows of a load.
    pub(crate) fn epoch(&self) -> Option<(NamespaceId, u32)> {
        match self {
            Self::Write(write) => {
                let is_of_client = |op: &Op| !op.condition.is_unwritten();
                let known = (write.namespace, write.epoch);
                (write.epoch > 0 && write.ops.iter().any(is_of_client)).then_some(known)
            }
            Self::DeleteRange(delete) => {
                (delete.epoch > 0).then_some((delete.namespace, delete.epoch))
            }
            Self::Raise(_) => None,
        }
    }

    /// Gives the work to the dataset that decides it, if its namespace has several.
    pub(crate) fn assign(&mut self, groups: &DatasetGroups) {
        let Some(group) = self.namespace().and_then(|id| groups.of(id)) else {
            return;
        };
        match self {
            Self::Write(write) => {
                let is_building = group.building == Some(write.namespace);
                for op in &mut write.ops {
                    op.identity = group.identity;
                    if op.condition.is_unwritten() {
                        op.live = is_building.then_some(group.live);
                    } else {
                        key_codec::move_to(&mut op.key, group.live);
                    }
                }
                write.group = Some(Arc::new(group.clone()));
            }
            Self::DeleteRange(delete) => {
                key_codec::move_to(&mut delete.bounds.0, group.live);
                key_codec::move_to(&mut delete.bounds.1, group.live);
                delete.group = Some(Arc::new(group.clone()));
            }
            Self::Raise(_) => {}
        }
    }

    /// Returns whether the work may use the reserve of its shard: it removes rows, or is about Umbo's own records.
    pub(crate) fn is_reserved(&self) -> bool {
        match self {
            Self::Write(write) => {
                let removes = |op: &Op| match &op.change {
                    Change::Delete | Change::Upload(UploadStep::Abandon(_)) => true,
                    Change::Put { .. } | Change::Increment { .. } | Change::Upload(_) => false,
                };
                write.namespace == NamespaceId::SYSTEM || write.ops.iter().all(removes)
            }
            Self::DeleteRange(_) | Self::Raise(_) => true,
        }
    }

    /// Limits one step of the removal of a range to this many rows.
    pub(crate) fn shorten(&mut self, rows_max: u32) {
        if let Self::DeleteRange(delete) = self {
            delete.rows_max = delete.rows_max.min(rows_max);
        }
    }

    /// Returns whether the caller no longer waits for the answer.
    pub(crate) fn is_withdrawn(&self) -> bool {
        match self {
            Self::Write(write) => write.reply.is_closed(),
            Self::DeleteRange(delete) => delete.reply.is_closed(),
            Self::Raise(raise) => raise.reply.is_closed(),
        }
    }

    /// Answers. A cancelled caller is not an error.
    fn answer(self, answer: WorkAnswer, time: Option<CommitTime>) {
        match (self, answer) {
            (Self::Write(WriteWork { reply, .. }), WorkAnswer::Write(answer)) => {
                let _ = reply.send(TimedAnswer { answer, time });
            }
            (
                Self::DeleteRange(DeleteRangeWork { reply, .. }),
                WorkAnswer::DeleteRange(deleted),
            ) => {
                let answer = Ok(deleted);
                let _ = reply.send(TimedAnswer { answer, time });
            }
            (Self::Raise(Raise { reply, .. }), WorkAnswer::Raised) => {
                let answer = Ok(());
                let _ = reply.send(TimedAnswer { answer, time });
            }
            (work, _) => unreachable!("an answer of another kind than {work:?}"),
        }
    }

    /// Returns whether the work must be on the disk before it is answered.
    pub(crate) fn is_sync(&self) -> bool {
        match self {
            Self::Write(write) => {
                write.durability == Durability::Sync || write.ops.iter().any(Op::is_of_upload)
            }
            Self::DeleteRange(delete) => delete.durability == Durability::Sync,
            Self::Raise(_) => true,
        }
    }

    /// Answers that the store failed. A cancelled caller is not an error.
    pub(crate) fn refuse(self, error: StoreError) {
        match self {
            Self::Write(WriteWork { ops, reply, .. }) => {
                let answers = ops.iter().map(|_| Err(error.clone().into())).collect();
                let _ = reply.send(TimedAnswer::uncommitted(answers));
            }
            Self::DeleteRange(DeleteRangeWork { reply, .. }) => {
                let _ = reply.send(TimedAnswer::uncommitted(Err(error)));
            }
            Self::Raise(Raise { reply, .. }) => {
                let _ = reply.send(TimedAnswer::uncommitted(Err(error)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use umbo_store::WriteError;
    use umbo_types::{ShardId, Value};

    use super::*;

    #[test]
    fn a_write_pays_for_its_bytes_and_its_page_of_a_commit() {
        let took = Duration::from_millis(100);
        let mut replies = Vec::new();
        let lens = [100, 1 << 20, 100];
        let work = lens.map(|len| {
            let (reply, answer) = oneshot::channel();
            replies.push(answer);
            let value = Value::new(vec![b'x'; len], "", "").unwrap();
            let op = Op {
                index: 0,
                key: b"p\0s".to_vec(),
                prefix_len: 2,
                change: Change::Put {
                    value,
                    expires_at: None,
                },
                condition: Condition::Always,
                identity: NamespaceId(1),
                live: None,
            };
            QueuedWork::Write(WriteWork {
                namespace: NamespaceId(1),
                epoch: 0,
                group: None,
                ops: vec![op],
                atomicity: Atomicity::None,
                durability: Durability::Sync,
                proposed: Version(1),
                idempotency: None,
                run: None,
                deadline: None,
                not_before: None,
                reply,
            })
        });
        let refused = || {
            WorkAnswer::Write(vec![Err(WriteError::Store(StoreError::NodeBusy {
                shard: ShardId(0),
            }))])
        };
        answer_all(work.into(), lens.map(|_| refused()).into(), Some(took));
        let shares = replies
            .iter_mut()
            .map(|reply| reply.try_recv().unwrap().time.unwrap().share);
        let shares: Vec<Duration> = shares.collect();
        assert!(shares.iter().sum::<Duration>() <= took);
        assert!(
            shares[1] > took * 98 / 100 && shares[0] == shares[2],
            "{shares:?}"
        );
        assert!(shares[0] > Duration::from_micros(300), "{shares:?}");
    }
}
