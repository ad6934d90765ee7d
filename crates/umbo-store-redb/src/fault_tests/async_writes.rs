//! Asynchronous writes: visible at once, in the log, on the disk soon.

use std::io::ErrorKind;

use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, DIGEST_LEN, Durability, Idempotency,
    Mutation, RangeRequest, SortRange, WriteError, WriteRequest, Written,
};
use umbo_types::{Key, Timestamp, Version};

use crate::RedbStore;

use super::faulty_files::{FileFault, FileOperation};
use super::{NAMESPACE, Rig, get, put};

#[tokio::test]
async fn an_asynchronous_write_reaches_the_disk_by_itself() {
    let rig = Rig::with_room().await;
    // The first of them reserves versions, and is synced before it is answered.
    put(&rig.store, "first", "1", Durability::Async)
        .await
        .unwrap();
    let before = rig.files.syncs();
    put(&rig.store, "second", "2", Durability::Async)
        .await
        .unwrap();
    assert_eq!(rig.get("second").await.as_deref(), Some("2"));
    rig.files.wait_for_syncs(before + 1);
    let (copy, _folder) = rig.copy();
    assert_eq!(get(&copy, "first").await.as_deref(), Some("1"));
    assert_eq!(get(&copy, "second").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn a_durable_write_takes_the_asynchronous_ones_before_it_along() {
    let rig = Rig::new();
    for key in ["first", "second"] {
        put(&rig.store, key, "1", Durability::Async).await.unwrap();
    }
    rig.put("third", "1").await.unwrap();
    let (copy, _folder) = rig.copy();
    for key in ["first", "second", "third"] {
        assert!(get(&copy, key).await.is_some(), "{key}");
    }
}

#[tokio::test]
async fn every_answer_is_true_while_syncs_fail() {
    for kind in [FileOperation::Write, FileOperation::Sync] {
        let rig = Rig::new();
        put(&rig.store, "first", "1", Durability::Async)
            .await
            .unwrap();
        rig.files
            .arm(kind, FileFault::Fail(ErrorKind::StorageFull), 0);
        for number in 0..20 {
            let key = format!("key-{number}");
            let answer = put(&rig.store, &key, "2", Durability::Async).await;
            rig.files.disarm();
            let sync = rig.put("sync", "3").await;
            assert!(sync.is_ok(), "{sync:?}");
            assert_eq!(rig.get(&key).await.is_some(), answer.is_ok());
            rig.files
                .arm(kind, FileFault::Fail(ErrorKind::StorageFull), 0);
        }
        rig.files.disarm();
    }
}

#[tokio::test]
async fn acknowledged_asynchronous_writes_survive_failing_durable_ones() {
    let rig = Rig::new();
    put(&rig.store, "reserve", "0", Durability::Async)
        .await
        .unwrap();
    let mut acknowledged = Vec::new();
    for number in 0..30 {
        let key = format!("key-{number}");
        if put(&rig.store, &key, "1", Durability::Async).await.is_ok() {
            acknowledged.push(key);
        }
        rig.files.arm(
            FileOperation::Sync,
            FileFault::Fail(ErrorKind::Other),
            number % 3,
        );
        let _ = rig.put("durable", "2").await;
        rig.files.disarm();
        for key in &acknowledged {
            assert!(rig.get(key).await.is_some(), "{key} is not visible");
        }
    }
    assert_eq!(acknowledged.len(), 30);
    rig.put("durable", "3").await.unwrap();
    let (copy, _folder) = rig.copy();
    for key in &acknowledged {
        assert!(get(&copy, key).await.is_some(), "{key} was lost");
    }
}

#[tokio::test]
async fn a_reopening_for_a_reader_hides_no_acknowledged_write() {
    for _ in 0..3 {
        let rig = Rig::new();
        for number in 0..30 {
            let value = "x".repeat(200_000);
            rig.put(&format!("large-{number}"), &value).await.unwrap();
        }
        put(&rig.store, "reserve", "0", Durability::Async)
            .await
            .unwrap();
        put(&rig.store, "kept", "1", Durability::Async)
            .await
            .unwrap();
        // More than the cache holds, so that a read reaches the file, fails, and causes the file to be opened
        // again.
        rig.files
            .arm_once(FileOperation::Read, FileFault::Fail(ErrorKind::Other), 0);
        for number in 0..30 {
            assert!(rig.get(&format!("large-{number}")).await.is_some());
            assert_eq!(rig.get("kept").await.as_deref(), Some("1"));
        }
        assert_eq!(rig.files.disarm(), 1);
    }
}

/// Whichever operation fails, and for how long: an acknowledged write is readable or its read fails, and is
/// never reported as absent.
#[tokio::test]
async fn an_acknowledged_write_never_vanishes_while_the_disk_fails() {
    let key = |key: &str| Key::new(key.to_owned(), "").unwrap();
    let call = CallContext::internal();
    for after in 0..30 {
        let rig = Rig::new();
        rig.put("other", "0").await.unwrap();
        put(&rig.store, "reserve", "0", Durability::Async)
            .await
            .unwrap();
        put(&rig.store, "kept", "1", Durability::Async)
            .await
            .unwrap();
        rig.files.arm(
            FileOperation::Change,
            FileFault::Fail(ErrorKind::StorageFull),
            after,
        );
        for _ in 0..3 {
            let _ = rig.put("durable", "2").await;
            let kept = rig.store.get_row(&call, NAMESPACE, &key("kept")).await;
            assert!(!matches!(kept, Ok(None)), "after {after}");
            let request = RangeRequest {
                namespace: NAMESPACE,
                partition: key("kept").partition,
                range: SortRange::default(),
                reverse: false,
                rows_max: 10,
                bytes_max: 1_000,
                keys_only: false,
            };
            if let Ok(page) = rig.store.range_of(&call, &request).await {
                assert_eq!(page.rows.len(), 1, "after {after}");
            }
        }
        rig.files.disarm();
        rig.put("durable", "3").await.unwrap();
        for key in ["other", "reserve", "kept"] {
            assert!(rig.get(key).await.is_some(), "{key} was lost after {after}");
        }
    }
}

#[tokio::test]
async fn versions_of_lost_asynchronous_writes_are_not_given_again() {
    let rig = Rig::new();
    for key in ["first", "reserve"] {
        put(&rig.store, key, "0", Durability::Async).await.unwrap();
    }
    // Nothing that comes later is on the disk, as in a power failure.
    let (copy, _folder) = rig.copy();
    let mut last = Version(0);
    for number in 0..10 {
        let key = format!("key-{number}");
        let written = put(&rig.store, &key, "1", Durability::Async).await.unwrap();
        assert_eq!(get(&copy, &key).await, None);
        last = written.version;
    }
    assert!(get(&copy, "reserve").await.is_some());
    let anew = put(&copy, "key-9", "2", Durability::Sync).await.unwrap();
    assert!(anew.version > last, "{last:?} {anew:?}");
}

#[tokio::test]
async fn an_increment_beside_failing_commits_is_counted_once_and_recognised() {
    let rig = Rig::new();
    put(&rig.store, "reserve", "0", Durability::Async)
        .await
        .unwrap();
    let mut counted = Vec::new();
    for number in 0..20 {
        if add_once(&rig.store, number).await.is_ok() {
            counted.push(number);
        }
        rig.files.arm(
            FileOperation::Sync,
            FileFault::Fail(ErrorKind::Other),
            (number % 3).into(),
        );
        let _ = rig.put("durable", "2").await;
        rig.files.disarm();
    }
    rig.put("durable", "3").await.unwrap();
    assert!(counted.len() > 10, "{counted:?}");
    let (copy, _folder) = rig.copy();
    for store in [&rig.store, &copy] {
        let sum = counted.len().to_string();
        assert_eq!(get(store, "counter").await, Some(sum));
        for &number in &counted {
            assert!(add_once(store, number).await.unwrap().is_replayed);
        }
    }
}

/// Adds 1 to a counter, asynchronously, once for each number.
async fn add_once(store: &RedbStore, number: u8) -> Result<Written, WriteError> {
    let request = WriteRequest {
        namespace: NAMESPACE,
        epoch: 0,
        mutations: vec![Mutation {
            key: Key::new("counter", "").unwrap(),
            change: Change::Increment {
                by: 1,
                expires_at: None,
                default_expiry: None,
            },
            condition: Condition::Always,
        }],
        atomicity: Atomicity::None,
        durability: Durability::Async,
        proposed: Version(1),
        idempotency: Some(Idempotency {
            id: [number; DIGEST_LEN],
            request: [0; DIGEST_LEN],
            keep_until: Timestamp(u64::MAX),
            keeps_refusals: true,
            lines: vec![0],
        }),
        not_before: None,
        run: None,
    };
    let call = CallContext::internal();
    let written = store.write_rows(&call, request);
    written.await.remove(0)
}
