//! Datasets that take the same writes, on a disk that fails and after a crash at any point.

use std::io::ErrorKind;
use std::sync::Arc;

use umbo_store::{
    DIGEST_LEN, DatasetGroup, Durability, RecordsCopy, RecordsKeeper, RecordsRevision, WriteError,
};
use umbo_types::{NamespaceId, Timestamp};

use super::faulty_files::{FileFault, FileOperation};
use super::{NAMESPACE, Rig, fencing, get_in, keep, load_in, once, put, put_request, send};

const BUILT: NamespaceId = NamespaceId(NAMESPACE.0 + 1);

/// A store with a dataset that a load builds.
async fn building() -> Rig {
    let rig = Rig::new();
    let copy = RecordsCopy {
        revision: RecordsRevision {
            epoch: 0,
            number: 1,
        },
        datasets: vec![DatasetGroup {
            epoch: 0,
            live: NAMESPACE,
            kept: Vec::new(),
            building: Some(BUILT),
            identity: NAMESPACE,
        }],
        ..RecordsCopy::default()
    };
    for (_, answer) in rig.store.keep_records(Arc::new(copy)).await {
        assert_eq!(answer, Ok(()));
    }
    rig
}

#[tokio::test]
async fn acknowledged_writes_are_in_all_datasets_while_commits_fail() {
    for kind in [FileOperation::Write, FileOperation::Sync] {
        let rig = building().await;
        put(&rig.store, "reserve", "0", Durability::Async)
            .await
            .unwrap();
        let mut acknowledged = Vec::new();
        for number in 0..20 {
            let key = format!("key-{number}");
            load_in(&rig.store, BUILT, &key, "loaded").await.unwrap();
            if put(&rig.store, &key, "written", Durability::Async)
                .await
                .is_ok()
            {
                acknowledged.push(key);
            }
            rig.files
                .arm(kind, FileFault::Fail(ErrorKind::Other), number % 3);
            let _ = rig.put("durable", "2").await;
            rig.files.disarm();
            rig.put("durable", "3").await.unwrap();
        }
        assert!(!acknowledged.is_empty());
        for key in &acknowledged {
            for dataset in [NAMESPACE, BUILT] {
                let found = get_in(&rig.store, dataset, key).await;
                assert_eq!(found.as_deref(), Some("written"), "{key} in {dataset}");
            }
            let again = load_in(&rig.store, BUILT, key, "loaded").await;
            assert!(
                matches!(again, Err(WriteError::ConditionFailed { .. })),
                "{key}: {again:?}"
            );
        }
    }
}

/// A record of the log is that of the namespace, whichever of its datasets is live. A shard that was away learns of the
/// next dataset and of the end of the first one at once.
#[tokio::test]
async fn a_write_with_a_key_is_made_once_though_its_dataset_ends_before_it_is_in_the_file() {
    let rig = Rig::new();
    for value in ["1", "2"] {
        rig.put("warm", value).await.unwrap();
    }
    let syncs = rig.files.syncs();
    let request = put_request(NAMESPACE, "key", "once", Durability::Sync);
    let mut request = once(request, [1; DIGEST_LEN], Timestamp::from_millis(100_000));
    assert!(!send(&rig.store, &request).await.unwrap().is_replayed);
    assert_eq!(rig.files.syncs() - syncs, 1, "the log took it");
    let copy = RecordsCopy {
        datasets: vec![DatasetGroup {
            epoch: 0,
            live: BUILT,
            kept: Vec::new(),
            building: None,
            identity: NAMESPACE,
        }],
        ..fencing(NAMESPACE)
    };
    keep(&rig.store, copy).await;
    request.namespace = BUILT;
    assert!(send(&rig.store, &request).await.unwrap().is_replayed);
    let (killed, _folder) = rig.copy();
    assert!(send(&killed, &request).await.unwrap().is_replayed);
}

/// The files are copied as a crash would leave them, between any two commits.
#[tokio::test]
async fn a_crash_leaves_a_write_in_all_datasets_or_in_none() {
    let rig = building().await;
    for number in 0..12 {
        let key = format!("key-{number}");
        let durability = if number % 2 == 0 {
            Durability::Sync
        } else {
            Durability::Async
        };
        put(&rig.store, &key, "written", durability).await.unwrap();
        let (copy, _folder) = rig.copy();
        for number in 0..=number {
            let key = format!("key-{number}");
            let live = get_in(&copy, NAMESPACE, &key).await;
            assert_eq!(live, get_in(&copy, BUILT, &key).await, "{key}");
            let loaded = load_in(&copy, BUILT, &key, "loaded").await;
            assert_eq!(loaded.is_err(), live.is_some(), "{key}: {loaded:?}");
        }
    }
}
