//! Writes: mutations of shards that this node serves are passed to the store, the others are refused one by
//! one.

use umbo_protocol::{NodeError, Outcome, WriteAnswer};
use umbo_store::{
    CallContext, DeleteRangeRequest, Mutation, Store, WriteError, WriteRequest, Written,
};

use crate::ownership::Ownership;
use crate::reads::outcome;

/// The part of a write that this node serves.
#[derive(Debug)]
pub(crate) enum ServedWrite {
    Write(SortedWrite),
    DeleteRange(DeleteRangeRequest),
}

/// The mutations that are passed on, and the errors of the others.
#[derive(Debug)]
pub(crate) struct SortedWrite {
    request: WriteRequest,
    /// For every mutation of the request, its error if it is refused; empty if none is.
    refused: Vec<Option<NodeError>>,
}

impl SortedWrite {
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
        if let Some(idempotency) = &mut request.idempotency {
            let served = (0..refused.len()).filter(|&index| refused[index].is_none());
            *idempotency = idempotency.of_part(served);
        }
        Self { request, refused }
    }

    /// Returns the part that is passed on.
    pub(crate) fn request(&self) -> &WriteRequest {
        &self.request
    }

    /// Returns the bytes of keys and values that are passed on.
    pub(crate) fn bytes(&self) -> u64 {
        self.request.mutations.iter().map(mutation_len).sum()
    }

    /// Returns whether nothing is passed on.
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

/// Converts an answer of the store. `indexes` holds the positions of the passed mutations in the request, if
/// some were refused.
fn told(answer: Result<Written, WriteError>, indexes: Option<&[usize]>) -> WriteAnswer {
    match answer {
        Err(WriteError::Store(error)) => Err(error.into()),
        Err(error) => {
            let in_request = |index| {
                let served = indexes.and_then(|all| all.get(index).copied());
                served.unwrap_or(index)
            };
            Ok(Err(error.with_index(in_request)))
        }
        Ok(written) => Ok(Ok(written)),
    }
}

impl ServedWrite {
    /// Passes it to the store.
    pub(crate) async fn run(self, store: &dyn Store, call: &CallContext) -> Outcome {
        match self {
            Self::Write(sorted) => Outcome::Written(sorted.run(store, call).await),
            Self::DeleteRange(request) => {
                outcome(store.delete_range(call, request).await, Outcome::Deleted)
            }
        }
    }

    /// Returns the number of rows that it touches and their bytes of keys and values; of a removal, after it
    /// is done.
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
        umbo_store::Change::Upload(step) => step.len(),
        umbo_store::Change::Delete | umbo_store::Change::Increment { .. } => 0,
    };
    (key.partition.as_bytes().len() + key.sort.as_bytes().len() + value) as u64
}
