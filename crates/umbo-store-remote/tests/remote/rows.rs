//! Rows for the tests to write and read.

use umbo_store::{
    Atomicity, CallContext, Change, Condition, Durability, Mutation, Store, WriteError,
    WriteRequest, Written,
};
use umbo_types::{Key, NamespaceId, Value, Version};

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
        mutations,
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version(1),
    }
}

/// Writes one row.
pub(crate) async fn write(
    store: &dyn Store,
    key: &Key,
    value: &[u8],
) -> Result<Written, WriteError> {
    let request = write_of(vec![put(key, value)]);
    let answer = store.write(&CallContext::internal(), request).await.pop();
    answer.expect("one answer")
}
