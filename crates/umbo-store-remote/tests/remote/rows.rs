//! Rows for the tests to write and read.

use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, Durability, Mutation, Outcome, Store,
    StoreError, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, Row, ShardId, Value, Version};

pub(crate) const NS: NamespaceId = NamespaceId(7);

pub(crate) fn key(name: &str) -> Key {
    Key::new(name.to_owned(), "").expect("a key")
}

pub(crate) fn put(key: &Key, value: &[u8]) -> Mutation {
    Mutation {
        key: key.clone(),
        change: Change::Put {
            value: Value::new(value.to_vec(), "", "").expect("a value"),
            expires_at: None,
        },
        condition: Condition::Always,
    }
}

pub(crate) fn write_of(mutations: Vec<Mutation>) -> WriteRequest {
    WriteRequest {
        namespace: NS,
        epoch: 0,
        mutations,
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version(1),
        idempotency: None,
        not_before: None,
        run: None,
    }
}

/// Writes one row.
pub(crate) async fn write(
    store: &dyn Store,
    key: &Key,
    value: &[u8],
) -> Result<Written, WriteError> {
    let request = write_of(vec![put(key, value)]);
    let call = CallContext::internal();
    let answer = store.write_rows(&call, request).await.pop();
    answer.expect("one answer")
}

/// Reads one row.
pub(crate) async fn read(store: &dyn Store, key: &Key) -> Result<Option<Row>, StoreError> {
    store.get_row(&CallContext::internal(), NS, key).await
}

/// Returns the shard and the outcome of an unavailable shard.
pub(crate) fn unavailable(error: &StoreError) -> (ShardId, Outcome) {
    match error {
        StoreError::Unavailable { shard, outcome, .. } => (*shard, *outcome),
        other => panic!("not unavailable: {other}"),
    }
}

/// Returns the same for a write.
pub(crate) fn unavailable_for_write(answer: Result<Written, WriteError>) -> (ShardId, Outcome) {
    match answer {
        Err(WriteError::Store(error)) => unavailable(&error),
        other => panic!("not unavailable: {other:?}"),
    }
}
