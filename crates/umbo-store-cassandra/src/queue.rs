//! The queue of each bucket: what waits for its next commit, in order.
//!
//! One task of this process commits to a bucket at a time, and takes at once all that has gathered meanwhile. So
//! writers of a process never contend for the guard, and share its cost. The invariant: work is begun in the order of
//! its arrival, and work that nobody waits for any more is not begun.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use umbo_store::{DeleteRangeRequest, Deleted, StoreError, WriteError, WriteRequest, Written};
use umbo_types::Deadline;

use crate::error::ClusterError;

/// Mutations of one commit, unless a request has more of one bucket.
const COMMIT_ROWS: usize = 1_000;
/// Bytes of the values of one commit, unless a request has more of one bucket. A sixteenth of what the commit log of a
/// node takes as one mutation by default.
const COMMIT_BYTES: usize = 1 << 20;

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

/// A step in a bucket.
#[derive(Debug)]
pub(crate) enum Work {
    Write(QueuedWrite),
    Removal(QueuedRemoval),
    /// Binds the bucket to the copy of the records that this process knows.
    Bind(oneshot::Sender<Result<(), ClusterError>>),
    /// Reclaims fenced rows, and uploads that are due. Answered with whether nothing is left to reclaim.
    Reclaim(oneshot::Sender<bool>),
}

impl Work {
    pub(crate) fn mutations(&self) -> u64 {
        match self {
            Self::Write(write) => write.request.mutations.len() as u64,
            Self::Removal(_) => 1,
            Self::Bind(_) | Self::Reclaim(_) => 0,
        }
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        match self {
            Self::Write(write) => write.answer.is_closed(),
            Self::Removal(removal) => removal.answer.is_closed(),
            Self::Bind(done) => done.is_closed(),
            Self::Reclaim(done) => done.is_closed(),
        }
    }
}

/// Work that waits. A bucket has a task exactly while it has a queue.
#[derive(Debug, Default)]
pub(crate) struct BucketQueue(VecDeque<Work>);

impl BucketQueue {
    pub(crate) fn add(&mut self, work: Work) {
        self.0.push_back(work);
    }

    /// Takes the next work: one step, or writes that fit into one commit.
    pub(crate) fn take(&mut self) -> Vec<Work> {
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
