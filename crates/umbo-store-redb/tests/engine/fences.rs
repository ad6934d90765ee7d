//! Fences of files that were away while a namespace was removed, and of folders whose copy is damaged.

use std::fs;
use std::sync::Arc;

use umbo_store::{
    ByKey as _, CallContext, RecordsCopy, RecordsKeeper, RecordsRevision, Store, StoreError,
    StoreReport,
};
use umbo_store_redb::RedbStore;

use crate::rows::{NAMESPACE, clock, fill, key, open, put, try_open, write};

/// A copy of the records that fences the namespace of the tests.
pub(crate) fn fencing() -> Arc<RecordsCopy> {
    Arc::new(RecordsCopy {
        revision: RecordsRevision {
            epoch: 1,
            number: 7,
        },
        fenced: vec![NAMESPACE.into()],
        ..RecordsCopy::default()
    })
}

/// Returns whether a row's shard refuses the namespace, for reads as for writes.
pub(crate) async fn is_gone(store: &RedbStore, number: usize) -> bool {
    let call = CallContext::internal();
    let read = store.get_row(&call, NAMESPACE, &key(number)).await;
    matches!(read, Err(StoreError::NamespaceGone { .. }))
}

/// Waits until no shard has anything to reclaim.
pub(crate) async fn reclaimed(store: &RedbStore) {
    let is_done = || {
        let status = store.status();
        status
            .iter()
            .all(|shard| shard.rows == 0 && shard.purging == 0)
    };
    while !is_done() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_file_that_was_away_catches_up_before_it_serves() {
    let (folder, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = clock();
    let store = open(folder.path(), &clock);
    fill(&store, &clock, 200).await;
    store.close().await;
    drop(store);
    let files = ["shard-000.redb", "shard-002.redb"];
    for file in files {
        fs::copy(folder.path().join(file), aside.path().join(file)).unwrap();
    }
    let store = open(folder.path(), &clock);
    for (_, answer) in store.keep_records(fencing()).await {
        answer.unwrap();
    }
    reclaimed(&store).await;
    store.close().await;
    drop(store);
    // The earlier files come back, without a fence and with all their rows.
    for file in files {
        fs::copy(aside.path().join(file), folder.path().join(file)).unwrap();
    }
    let store = open(folder.path(), &clock);
    for number in 0..200 {
        assert!(is_gone(&store, number).await, "row {number} is served");
    }
    for answer in write(&store, &clock, vec![put(key(0), b"late", None)]).await {
        answer.unwrap_err();
    }
    reclaimed(&store).await;
    for (_, answer) in store.keep_records(fencing()).await {
        answer.unwrap();
    }
    store.close().await;
    drop(store);
    // By now the files have the fences themselves.
    fs::remove_file(folder.path().join("records")).unwrap();
    let store = open(folder.path(), &clock);
    assert_eq!(store.kept_records().await, Ok(None));
    for number in 0..200 {
        assert!(is_gone(&store, number).await, "row {number} is served");
    }
}

#[tokio::test]
async fn a_damaged_copy_of_the_records_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = open(folder.path(), &clock);
    store.keep_records(fencing()).await;
    store.close().await;
    drop(store);
    let path = folder.path().join("records");
    let mut bytes = fs::read(&path).unwrap();
    bytes[12] ^= 1;
    fs::write(&path, bytes).unwrap();
    let refused = try_open(folder.path(), Some(4), &clock).unwrap_err();
    let refused = refused.to_string();
    assert!(
        refused.contains("records") && refused.contains("checksum"),
        "{refused}"
    );
}
