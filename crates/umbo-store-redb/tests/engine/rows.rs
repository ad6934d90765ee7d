//! Helpers that the tests of folders, reclaiming and kills share.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, Durability, ManualClock, Mutation,
    WriteError, WriteRequest, Written,
};
use umbo_store_redb::{Config, OpenError, RedbStore};
use umbo_types::{Clock, Key, NamespaceId, Row, Timestamp, Value, Version};

pub(crate) const NAMESPACE: NamespaceId = NamespaceId(1);

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_millis(1_000_000)))
}

pub(crate) fn config(folder: &Path, shards: Option<u16>) -> Config {
    Config {
        folder: folder.to_owned(),
        shards,
        cache_bytes: 16 << 20,
        ..Config::default()
    }
}

pub(crate) fn try_open(
    folder: &Path,
    shards: Option<u16>,
    clock: &Arc<ManualClock>,
) -> Result<RedbStore, OpenError> {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    RedbStore::open(config(folder, shards), clock)
}

pub(crate) fn open(folder: &Path, clock: &Arc<ManualClock>) -> RedbStore {
    try_open(folder, Some(4), clock).unwrap()
}

pub(crate) fn key(number: usize) -> Key {
    Key::new(format!("partition-{number}"), format!("sort-{number}")).unwrap()
}

pub(crate) fn put(key: Key, value: &[u8], expires_at: Option<Timestamp>) -> Mutation {
    let value = Value::new(Bytes::copy_from_slice(value), "", "").unwrap();
    Mutation {
        key,
        change: Change::Put { value, expires_at },
        condition: Condition::Always,
    }
}

pub(crate) async fn write(
    store: &RedbStore,
    clock: &ManualClock,
    mutations: Vec<Mutation>,
) -> Vec<Result<Written, WriteError>> {
    let request = WriteRequest {
        namespace: NAMESPACE,
        epoch: 0,
        mutations,
        atomicity: Atomicity::None,
        durability: Durability::Sync,
        proposed: Version::proposed_at(clock.wall()),
        idempotency: None,
        not_before: None,
        run: None,
    };
    store.write_rows(&CallContext::internal(), request).await
}

/// Writes rows `0..count`, whose values contain their numbers.
pub(crate) async fn fill(store: &RedbStore, clock: &ManualClock, count: usize) -> Vec<Version> {
    let mutations = (0..count).map(|number| put(key(number), &value(number), None));
    let answers = write(store, clock, mutations.collect()).await;
    answers
        .into_iter()
        .map(|answer| answer.unwrap().version)
        .collect()
}

pub(crate) fn value(number: usize) -> Vec<u8> {
    format!("value {number} ").repeat(20).into_bytes()
}

pub(crate) async fn get(store: &RedbStore, number: usize) -> Option<Row> {
    store
        .get_row(&CallContext::internal(), NAMESPACE, &key(number))
        .await
        .unwrap()
}

pub(crate) fn later(clock: &ManualClock, after: Duration) -> Timestamp {
    clock.wall().saturating_add(after)
}
