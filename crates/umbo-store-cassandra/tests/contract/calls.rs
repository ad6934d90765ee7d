//! Calls of a store as its clients make them: one row each.

use bytes::Bytes;
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, Durability, Mutation, StoreError,
    WriteError, WriteRequest, Written,
};
use umbo_store_cassandra::CassandraStore;
use umbo_types::{Key, NamespaceId, Row, Value, Version};

/// The namespace of the rows.
pub(crate) const NS: NamespaceId = NamespaceId(7);

pub(crate) fn key(partition: &str) -> Key {
    Key::new(partition.to_owned(), Bytes::from_static(b"s")).expect("it is short")
}

pub(crate) fn put(at: &Key, bytes: &str) -> Mutation {
    Mutation {
        key: at.clone(),
        change: Change::Put {
            value: Value::new(bytes.to_owned(), "", "").expect("it is short"),
            expires_at: None,
        },
        condition: Condition::Always,
    }
}

pub(crate) fn increment(at: &Key, by: i64) -> Mutation {
    Mutation {
        change: Change::Increment {
            by,
            expires_at: None,
            default_expiry: None,
        },
        ..put(at, "")
    }
}

pub(crate) fn request(mutation: Mutation) -> WriteRequest {
    WriteRequest {
        namespace: NS,
        epoch: 0,
        mutations: vec![mutation],
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version(1),
        idempotency: None,
        not_before: None,
        run: None,
    }
}

pub(crate) async fn write(
    store: &CassandraStore,
    request: WriteRequest,
) -> Result<Written, WriteError> {
    let mut answers = store.write_rows(&CallContext::internal(), request).await;
    answers.pop().expect("one answer a mutation")
}

pub(crate) async fn read(
    store: &CassandraStore,
    dataset: NamespaceId,
    at: &Key,
) -> Result<Option<Row>, StoreError> {
    store.get_row(&CallContext::internal(), dataset, at).await
}
