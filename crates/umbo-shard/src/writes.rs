//! Writes: the mutations or the removal of one shard, passed to the store.

use umbo_protocol::{NodeError, Outcome, WriteAnswer};
use umbo_store::{
    CallContext, DeleteRangeRequest, Mutation, Store, WriteError, WriteRequest, Written,
};
use umbo_types::ShardId;

use crate::reads::outcome;

/// A change of rows of one shard.
#[derive(Debug)]
pub(crate) enum ServedWrite {
    Write(WriteRequest),
    DeleteRange(DeleteRangeRequest),
}

impl ServedWrite {
    /// Passes it to the store.
    pub(crate) async fn run(
        self,
        store: &dyn Store,
        call: &CallContext,
        shard: ShardId,
    ) -> Outcome {
        match self {
            Self::Write(request) => {
                let answers = store.write(call, shard, request).await;
                Outcome::Written(answers.into_iter().map(told).collect())
            }
            Self::DeleteRange(request) => {
                let deleted = store.delete_range(call, shard, request).await;
                outcome(deleted, Outcome::Deleted)
            }
        }
    }

    /// Returns the number of rows that it touches and their bytes of keys and values; of a removal, after it
    /// is done.
    pub(crate) fn size(&self) -> (u64, u64) {
        let Self::Write(request) = self else {
            return (0, 0);
        };
        let bytes = request.mutations.iter().map(mutation_len).sum();
        (request.mutations.len() as u64, bytes)
    }
}

/// Converts an answer of the store.
fn told(answer: Result<Written, WriteError>) -> WriteAnswer {
    match answer {
        Err(WriteError::Store(error)) => Err(NodeError::Store(error)),
        decided => Ok(decided),
    }
}

/// Returns the bytes of a mutation with both of its keys.
fn mutation_len(mutation: &Mutation) -> u64 {
    let key = &mutation.key;
    let value = match &mutation.change {
        umbo_store::Change::Put { value, .. } => value.bytes.len(),
        umbo_store::Change::Upload(step) => step.len(),
        umbo_store::Change::Delete | umbo_store::Change::Increment { .. } => 0,
    };
    (key.partition.as_bytes().len() + key.sort.as_bytes().len() + value) as u64
}
