//! The queue of each bucket: what waits for its next commit, in order.
//!
//! One task of this process commits to a bucket at a time, and takes at once all that has gathered meanwhile. So
//! writers of a process never contend for the guard, and share its cost. The invariant: work is begun in the order of
//! its arrival, and withdrawn work is not begun.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use umbo_store::{
    Change, CommitTime, DeleteRangeRequest, Deleted, Mutation, StoreError, WriteError,
    WriteRequest, Written,
};
use umbo_types::Deadline;

use crate::error::ClusterError;

/// Mutations of one commit, unless a group of a request has more.
const COMMIT_ROWS: usize = 1_000;
/// Bytes of the values of one commit, unless a group of a request has more. A sixteenth of what the commit log of a
/// node takes as one mutation by default.
const COMMIT_BYTES: usize = 1 << 20;

/// An answer to work, with the time of its commit.
pub(crate) type Committed<T> = (T, CommitTime);

/// A write to one bucket.
#[derive(Debug)]
pub(crate) struct QueuedWrite {
    pub(crate) request: WriteRequest,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) answer: oneshot::Sender<Committed<Vec<Result<Written, WriteError>>>>,
}

/// Returns the bytes that a mutation adds to its commit.
pub(crate) fn bytes_of(mutation: &Mutation) -> usize {
    match &mutation.change {
        Change::Put { value, .. } => value.bytes.len(),
        Change::Delete | Change::Increment { .. } | Change::Upload(_) => 0,
    }
}

/// The rows and bytes of a commit while it is filled.
#[derive(Debug, Default)]
pub(crate) struct CommitRoom {
    rows: usize,
    bytes: usize,
}

impl CommitRoom {
    /// Adds to the commit. Returns false if that is too much, and begins the next commit.
    pub(crate) fn take(&mut self, rows: usize, bytes: usize) -> bool {
        let (all_rows, all_bytes) = (self.rows + rows, self.bytes + bytes);
        let fits = self.rows == 0 || (all_rows <= COMMIT_ROWS && all_bytes <= COMMIT_BYTES);
        (self.rows, self.bytes) = if fits {
            (all_rows, all_bytes)
        } else {
            (rows, bytes)
        };
        fits
    }
}

impl QueuedWrite {
    /// Answers all mutations with the same error.
    pub(crate) fn refuse(self, error: StoreError) {
        let count = self.request.mutations.len();
        let answers = vec![Err(WriteError::Store(error)); count];
        let _ = self.answer.send((answers, CommitTime::default()));
    }

    /// Returns what the write counts in its commit.
    pub(crate) fn weight(&self) -> u64 {
        let mutations = &self.request.mutations;
        let bytes: usize = mutations.iter().map(bytes_of).sum();
        CommitTime::weight(mutations.len() as u64, bytes as u64)
    }
}

/// A step of a removal.
#[derive(Debug)]
pub(crate) struct QueuedRemoval {
    pub(crate) request: DeleteRangeRequest,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) answer: oneshot::Sender<Committed<Result<Deleted, StoreError>>>,
}

/// The end of a step of reclaiming.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reclaimed {
    /// Nothing is left.
    All,
    /// More may be left.
    Some,
    /// The step was not made.
    Nothing,
}

/// A step in a bucket.
#[derive(Debug)]
pub(crate) enum Work {
    Write(QueuedWrite),
    Removal(QueuedRemoval),
    /// Binds the bucket to the copy of the records that this process knows.
    Bind(oneshot::Sender<Result<(), ClusterError>>),
    /// Counts the bucket, and makes a step of reclaiming fenced rows and uploads that are due.
    Reclaim(oneshot::Sender<Reclaimed>),
}

impl Work {
    pub(crate) fn mutations(&self) -> u64 {
        match self {
            Self::Write(write) => write.request.mutations.len() as u64,
            Self::Removal(_) => 1,
            Self::Bind(_) | Self::Reclaim(_) => 0,
        }
    }

    /// Returns whether a run of a load makes it.
    pub(crate) fn is_of_run(&self) -> bool {
        matches!(self, Self::Write(write) if write.request.run.is_some())
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
        let (mut taken, mut room) = (Vec::new(), CommitRoom::default());
        while let Some(next) = self.0.front() {
            let Work::Write(QueuedWrite { request, .. }) = next else {
                if taken.is_empty() {
                    taken.extend(self.0.pop_front());
                }
                break;
            };
            let bytes = request.mutations.iter().map(bytes_of).sum();
            if !room.take(request.mutations.len(), bytes) {
                break;
            }
            taken.extend(self.0.pop_front());
        }
        taken
    }
}
