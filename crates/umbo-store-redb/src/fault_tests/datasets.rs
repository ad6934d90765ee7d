//! Datasets that take the same writes, on a disk that fails and after a crash at any point.

use std::io::ErrorKind;
use std::sync::Arc;

use umbo_store::{
    DatasetGroup, Durability, RecordsCopy, RecordsKeeper, RecordsRevision, WriteError,
};
use umbo_types::NamespaceId;

use super::faulty_files::{FileFault, FileOperation};
use super::{NAMESPACE, Rig, get_in, load_in, put};

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
