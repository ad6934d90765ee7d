//! Writes: mutations of shards that this node serves are passed on, the others are refused one by
//! one.

use umbo_protocol::{NodeError, Outcome, WriteAnswer};
use umbo_store::{
    CallContext, DeleteRangeRequest, Mutation, Store, WriteError, WriteRequest, Written,
};
use umbo_types::NamespaceId;

use crate::ownership::Ownership;
use crate::reads::outcome;

/// A write, as far as this node serves it.
#[derive(Debug)]
pub(crate) enum Writing {
    Write(Sorted),
    DeleteRange(DeleteRangeRequest),
    Purge(NamespaceId, u32),
}

/// The mutations that are passed on, and what the others are told.
#[derive(Debug)]
pub(crate) struct Sorted {
    request: WriteRequest,
    /// Of every mutation of the request, where some are refused: why it is.
    refused: Vec<Option<NodeError>>,
}

impl Sorted {
    /// Divides the mutations of a request.
    pub(crate) fn new(mut request: WriteRequest, ownership: &Ownership) -> Self {
        let namespace = request.namespace;
        let check = |mutation: &Mutation| {
            let partition = &mutation.key.partition;
            ownership.locate(namespace, partition).err()
        };
        if request
            .mutations
            .iter()
            .all(|mutation| check(mutation).is_none())
        {
            let refused = Vec::new();
            return Self { request, refused };
        }
        let refused: Vec<_> = request.mutations.iter().map(check).collect();
        let mut verdicts = refused.iter();
        request
            .mutations
            .retain(|_| verdicts.next().is_some_and(Option::is_none));
        Self { request, refused }
    }

    /// Returns what is passed on.
    pub(crate) fn request(&self) -> &WriteRequest {
        &self.request
    }

    /// Returns the bytes of keys and values that are passed on.
    pub(crate) fn bytes(&self) -> u64 {
        self.request.mutations.iter().map(mutation_len).sum()
    }

    /// Says whether nothing of it is passed on.
    pub(crate) fn is_empty(&self) -> bool {
        self.request.mutations.is_empty()
    }

    async fn run(self, store: &dyn Store, call: &CallContext) -> Vec<WriteAnswer> {
        let answers = if self.is_empty() {
            Vec::new()
        } else {
            store.write(call, self.request).await
        };
        if self.refused.is_empty() {
            return answers
                .into_iter()
                .map(|answer| told(answer, None))
                .collect();
        }
        let passed = self.refused.iter().enumerate();
        let passed = passed.filter(|(_, refused)| refused.is_none());
        let indexes: Vec<_> = passed.map(|(index, _)| index).collect();
        let mut answers = answers.into_iter();
        let all = self.refused.into_iter();
        all.filter_map(|refused| match refused {
            Some(error) => Some(Err(error)),
            None => answers.next().map(|answer| told(answer, Some(&indexes))),
        })
        .collect()
    }
}

/// Returns an answer of the store as it goes out. `indexes` says where the mutations that were
/// passed on stand in the request, where some were not.
fn told(answer: Result<Written, WriteError>, indexes: Option<&[usize]>) -> WriteAnswer {
    match answer {
        Err(WriteError::Store(error)) => Err(error.into()),
        Err(WriteError::GroupAborted { index }) => {
            let index = indexes
                .and_then(|all| all.get(index).copied())
                .unwrap_or(index);
            Ok(Err(WriteError::GroupAborted { index }))
        }
        other => Ok(other),
    }
}

impl Writing {
    /// Has the store do it.
    pub(crate) async fn run(self, store: &dyn Store, call: &CallContext) -> Outcome {
        match self {
            Self::Write(sorted) => Outcome::Written(sorted.run(store, call).await),
            Self::DeleteRange(request) => {
                outcome(store.delete_range(call, request).await, Outcome::Deleted)
            }
            Self::Purge(namespace, rows_max) => {
                outcome(store.purge(namespace, rows_max).await, Outcome::Purged)
            }
        }
    }

    /// Returns rows and bytes of keys and values that it touches; of a removal, once it is done.
    pub(crate) fn size(&self) -> (u64, u64) {
        let Self::Write(sorted) = self else {
            return (0, 0);
        };
        (sorted.request.mutations.len() as u64, sorted.bytes())
    }
}

fn mutation_len(mutation: &Mutation) -> u64 {
    let key = &mutation.key;
    let value = match &mutation.change {
        umbo_store::Change::Put { value, .. } => value.bytes.len(),
        umbo_store::Change::Delete => 0,
    };
    (key.partition.as_bytes().len() + key.sort.as_bytes().len() + value) as u64
}
