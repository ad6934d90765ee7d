//! Reads on a failing disk: an error that names the file, never a panic, and the shard keeps serving.

use std::io::ErrorKind;
use std::time::Duration;

use umbo_store::{BackupRequest, ByKey as _, CallContext, Store, StoreError};
use umbo_types::Key;

use super::faulty_files::{FileFault, FileOperation};
use super::{NAMESPACE, Rig};

/// Values larger than the cache, so that reads reach the file.
async fn fill(rig: &Rig) {
    for number in 0..40 {
        let value = "x".repeat(200_000);
        rig.put(&format!("key-{number}"), &value).await.unwrap();
    }
}

async fn read_all(rig: &Rig) -> Vec<StoreError> {
    let mut errors = Vec::new();
    for number in 0..40 {
        let key = Key::new(format!("key-{number}"), "").unwrap();
        match rig
            .store
            .get_row(&CallContext::internal(), NAMESPACE, &key)
            .await
        {
            Ok(row) => assert_eq!(row.unwrap().value.bytes.len(), 200_000),
            Err(error) => errors.push(error),
        }
    }
    errors
}

#[tokio::test]
async fn a_failing_read_is_tried_again_on_a_fresh_file() {
    let rig = Rig::new();
    fill(&rig).await;
    rig.files
        .arm_once(FileOperation::Read, FileFault::Fail(ErrorKind::Other), 0);
    assert_eq!(read_all(&rig).await, []);
    assert_eq!(rig.files.disarm(), 1);
    rig.put("later", "1").await.unwrap();
}

#[tokio::test]
async fn reads_that_keep_failing_name_the_file_and_recover_with_it() {
    let rig = Rig::new();
    fill(&rig).await;
    for fault in [FileFault::Fail(ErrorKind::Other), FileFault::RedbPanic] {
        rig.files.arm(FileOperation::Read, fault, 0);
        let errors = read_all(&rig).await;
        assert!(!errors.is_empty());
        for error in errors {
            assert!(error.to_string().contains("shard-000.redb"), "{error}");
        }
        assert!(rig.files.disarm() > 0);
        rig.files.advance(Duration::from_secs(10));
        rig.put("later", "1").await.unwrap();
        assert_eq!(read_all(&rig).await, []);
    }
}

/// Stands for the rows of a backup that is gone.
const GONE: u64 = u64::MAX;

/// Reads these pieces of a backup, or up to its end; returns its rows.
pub(super) async fn read_backup(
    rig: &Rig,
    backup: u64,
    pieces: std::ops::Range<u32>,
) -> Result<u64, StoreError> {
    let mut check = crate::BackupCheck::default();
    for piece in pieces {
        let request = BackupRequest {
            shard: umbo_types::ShardId(0),
            backup,
            piece,
        };
        let call = CallContext::internal();
        match rig.store.backup(&call, &request).await? {
            Some(_) if piece == 0 => {}
            Some(piece) if piece.is_empty() => return Ok(GONE),
            Some(piece) => check.read(&piece).unwrap(),
            None => return Ok(check.end().unwrap()),
        }
    }
    Ok(0)
}

#[tokio::test]
async fn a_backup_ends_where_its_file_cannot_be_read_or_is_opened_again() {
    for operation in [FileOperation::Read, FileOperation::Sync] {
        let rig = Rig::new();
        fill(&rig).await;
        read_backup(&rig, 1, 0..2).await.unwrap();
        rig.files
            .arm(operation, FileFault::Fail(ErrorKind::Other), 0);
        if operation == FileOperation::Read {
            let failed = read_backup(&rig, 1, 2..u32::MAX).await.unwrap_err();
            assert!(failed.to_string().contains("shard-000.redb"), "{failed}");
        } else {
            rig.put("later", "1").await.unwrap_err();
        }
        assert!(rig.files.disarm() > 0, "{operation:?}");
        rig.files.advance(Duration::from_secs(10));
        rig.put("later", "2").await.unwrap();
        assert_eq!(read_backup(&rig, 1, 2..3).await.unwrap(), GONE);
        // Begun again, it is whole.
        assert_eq!(read_backup(&rig, 2, 0..u32::MAX).await.unwrap(), 41);
        rig.store.close().await;
    }
}
