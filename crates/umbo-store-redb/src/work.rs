//! What a committer is asked to do, and how it answers.
//!
//! Keys are encoded before they are queued, on the caller's thread, so that the one committer of a
//! shard does only what must be done in order.

use tokio::sync::oneshot;
use umbo_store::{
    Atomicity, Change, Condition, Deleted, Durability, PurgeProgress, StoreError, WriteError,
    Written,
};
use umbo_types::{Deadline, NamespaceId, Version};

use crate::queue::Size;

/// Most rows that one step of a range removal or purge touches.
pub(crate) const REMOVED_ROWS_MAX: u32 = 4_096;

/// Answer to one mutation.
pub(crate) type WriteAnswer = Result<Written, WriteError>;

/// One mutation.
#[derive(Debug)]
pub(crate) struct Op {
    /// Its index in the request.
    pub(crate) index: usize,
    /// Physical key.
    pub(crate) key: Vec<u8>,
    /// Length of the part of the key that the partition shares.
    pub(crate) prefix_len: usize,
    /// What to do.
    pub(crate) change: Change,
    /// When to do it.
    pub(crate) condition: Condition,
}

impl Op {
    /// Returns the part of the key that the partition shares.
    pub(crate) fn partition(&self) -> &[u8] {
        &self.key[..self.prefix_len]
    }

    /// Returns the bytes of key and value.
    pub(crate) fn bytes(&self) -> usize {
        let value = match &self.change {
            Change::Put { value, .. } => crate::row_codec::encoded_len_max(value),
            Change::Delete => 0,
        };
        self.key.len() + value
    }
}

/// The mutations of a request that belong to this shard.
#[derive(Debug)]
pub(crate) struct Write {
    /// The mutations, in order.
    pub(crate) ops: Vec<Op>,
    /// What belongs together.
    pub(crate) atomicity: Atomicity,
    /// When to answer.
    pub(crate) durability: Durability,
    /// Version proposed from above.
    pub(crate) proposed: Version,
    /// When not to begin any more.
    pub(crate) deadline: Option<Deadline>,
    /// Where the answers go, one for each mutation in order.
    pub(crate) reply: oneshot::Sender<Vec<WriteAnswer>>,
}

/// One step of the removal of a range.
#[derive(Debug)]
pub(crate) struct DeleteRange {
    /// First physical key, and first one beyond.
    pub(crate) bounds: (Vec<u8>, Vec<u8>),
    /// Length of the part of the key that the partition shares.
    pub(crate) prefix_len: usize,
    /// Most rows to remove.
    pub(crate) rows_max: u32,
    /// When to answer.
    pub(crate) durability: Durability,
    /// When not to begin any more.
    pub(crate) deadline: Option<Deadline>,
    /// Where the answer goes.
    pub(crate) reply: oneshot::Sender<Result<Deleted, StoreError>>,
}

/// One step of the removal of a namespace.
#[derive(Debug)]
pub(crate) struct Purge {
    /// The namespace.
    pub(crate) namespace: NamespaceId,
    /// Most rows to remove.
    pub(crate) rows_max: u32,
    /// Where the answer goes.
    pub(crate) reply: oneshot::Sender<Result<PurgeProgress, StoreError>>,
}

/// Answer to one piece of work.
#[derive(Debug)]
pub(crate) enum Answer {
    /// To a write.
    Write(Vec<WriteAnswer>),
    /// To the removal of a range.
    DeleteRange(Deleted),
    /// To the removal of a namespace.
    Purge(PurgeProgress),
}

/// A piece of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// Apply mutations.
    Write(Write),
    /// Remove a part of a range.
    DeleteRange(DeleteRange),
    /// Remove a part of a namespace.
    Purge(Purge),
}

impl Work {
    /// Returns how much of the queue the work takes.
    pub(crate) fn size(&self) -> Size {
        match self {
            Self::Write(write) => Size {
                mutations: write.ops.len(),
                bytes: write.ops.iter().map(Op::bytes).sum(),
            },
            Self::DeleteRange(DeleteRange { rows_max, .. })
            | Self::Purge(Purge { rows_max, .. }) => Size {
                mutations: (*rows_max).min(REMOVED_ROWS_MAX) as usize,
                bytes: 0,
            },
        }
    }

    /// Returns the instant after which the work is not begun any more.
    pub(crate) fn deadline(&self) -> Option<Deadline> {
        match self {
            Self::Write(write) => write.deadline,
            Self::DeleteRange(delete) => delete.deadline,
            Self::Purge(_) => None,
        }
    }

    /// Answers. A caller that has left is not an error.
    pub(crate) fn answer(self, answer: Answer) {
        match (self, answer) {
            (Self::Write(Write { reply, .. }), Answer::Write(answers)) => {
                let _ = reply.send(answers);
            }
            (Self::DeleteRange(DeleteRange { reply, .. }), Answer::DeleteRange(deleted)) => {
                let _ = reply.send(Ok(deleted));
            }
            (Self::Purge(Purge { reply, .. }), Answer::Purge(progress)) => {
                let _ = reply.send(Ok(progress));
            }
            (work, _) => unreachable!("an answer of another kind than {work:?}"),
        }
    }

    /// Says whether the work must be on the disk before it is answered.
    pub(crate) fn is_sync(&self) -> bool {
        match self {
            Self::Write(write) => write.durability == Durability::Sync,
            Self::DeleteRange(delete) => delete.durability == Durability::Sync,
            Self::Purge(_) => true,
        }
    }

    /// Answers that the store failed. A caller that has left is not an error.
    pub(crate) fn refuse(self, error: StoreError) {
        match self {
            Self::Write(Write { ops, reply, .. }) => {
                let answers = ops.iter().map(|_| Err(error.clone().into())).collect();
                let _ = reply.send(answers);
            }
            Self::DeleteRange(DeleteRange { reply, .. }) => {
                let _ = reply.send(Err(error));
            }
            Self::Purge(Purge { reply, .. }) => {
                let _ = reply.send(Err(error));
            }
        }
    }
}
