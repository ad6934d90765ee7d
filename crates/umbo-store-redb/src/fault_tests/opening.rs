//! A shard whose file fails to open serves as soon as it can be opened.

use std::fs;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{advance, timeout};
use umbo_store::{Outcome, ShardState, Store, StoreError, WriteError};

use super::Rig;
use super::bad_sectors::{break_text, cold};
use super::faulty_files::{FaultyFiles, FileFault, FileOperation};
use super::group_commit::poll_once;
use crate::disk::Disk;
use crate::file_error::FileError;
use crate::opener::Opener;
use crate::shard_file::close;
use crate::watched_file::WatchedFile;

/// A closed store of one row, whose page is the root of its table, opened while that page is unreadable.
async fn unopened() -> Rig {
    let mut rig = Rig::new();
    rig.put("a", "the only row").await.unwrap();
    break_text(&rig, "the only row");
    rig.reopen(cold).await;
    let ShardState::Unavailable(reason) = rig.state() else {
        panic!("{:?}", rig.state());
    };
    assert!(reason.contains("shard-000.redb"), "{reason}");
    rig
}

#[tokio::test]
async fn a_shard_that_failed_to_open_is_tried_again() {
    let rig = unopened().await;
    let reports = rig.store.open_failed().await.unwrap();
    assert!(reports[0].unavailable.is_some());
    let refused = rig.put("b", "1").await.unwrap_err();
    let WriteError::Store(StoreError::Unavailable { outcome, .. }) = refused else {
        panic!("{refused}");
    };
    assert_eq!(outcome, Outcome::NotApplied);

    rig.files.heal_sectors();
    let reports = rig.store.open_failed().await.unwrap();
    assert_eq!(reports[0].unavailable, None);
    assert_eq!(rig.state(), ShardState::Available);
    assert_eq!(rig.get("a").await.as_deref(), Some("the only row"));
    rig.put("b", "2").await.unwrap();
    assert!(rig.store.open_failed().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn shards_that_failed_to_open_are_tried_every_ten_seconds() {
    let rig = unopened().await;
    rig.files.heal_sectors();
    let openings = rig.files.openings();
    let mut retrying = pin!(rig.store.retry_opening());
    let too_soon = timeout(Duration::from_millis(9_999), retrying.as_mut()).await;
    assert!(too_soon.is_err());
    assert_eq!(rig.files.openings(), openings);
    advance(Duration::from_millis(1)).await;
    while rig.state() != ShardState::Available {
        assert!(poll_once(retrying.as_mut()).is_none());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_file_that_was_missing_may_be_unfinished_and_is_not_opened() {
    let mut rig = Rig::new();
    rig.put("a", "1").await.unwrap();
    rig.store.close().await;
    let path = rig.folder.path().join("shard-000.redb");
    let content = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    rig.reopen(cold).await;
    fs::write(&path, &content[..content.len() / 2]).unwrap();
    assert!(rig.store.open_failed().await.unwrap().is_empty());
    assert!(matches!(rig.state(), ShardState::Unavailable(_)));
}

#[tokio::test]
async fn a_close_that_fails_is_told_and_loses_nothing() {
    let fault = FileFault::Fail(ErrorKind::StorageFull);
    let (folder, files) = (tempfile::tempdir().unwrap(), Arc::<FaultyFiles>::default());
    let path = folder.path().join("rows");
    files.create(&path).unwrap();
    let opener: Arc<dyn Opener> = Arc::<FaultyFiles>::clone(&files);
    let file = WatchedFile {
        inner: files.open(&path).unwrap(),
        path,
        at_once: None,
        disk: Disk::new(opener),
    };
    let database = redb::Builder::new().create_with_backend(file).unwrap();
    files.arm(FileOperation::Sync, fault, 0);
    assert!(matches!(close(database), Err(FileError::Full(_))));

    let mut rig = Rig::new();
    rig.put("a", "1").await.unwrap();
    rig.files.arm(FileOperation::Sync, fault, 0);
    rig.store.close().await;
    assert!(rig.files.disarm() > 0);
    rig.reopen(cold).await;
    assert_eq!(rig.get("a").await.as_deref(), Some("1"));
    rig.put("a", "2").await.unwrap();
}

#[tokio::test]
async fn a_closed_store_opens_nothing() {
    let rig = unopened().await;
    rig.store.close().await;
    rig.files.heal_sectors();
    assert!(rig.store.open_failed().await.unwrap().is_empty());
}
