//! Work that gathers while a commit waits for the disk is committed together, within bounds.

use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};
use std::time::Duration;

use umbo_store::{
    Atomicity, ByKey as _, CallContext, Change, Condition, DeleteRangeRequest, Durability,
    Mutation, RecordsKeeper, SortRange, StoreError, StoreReport, WriteError, WriteRequest,
};
use umbo_types::{Key, NamespaceId, ShardId, Version};

use super::faulty_files::{FileFault, FileOperation};
use super::{NAMESPACE, Rig, fencing, put_in};

pub(super) fn poll_once<F: Future + ?Sized>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    }
}

pub(super) async fn wait_until_a_sync_waits(rig: &Rig) {
    while !rig.files.is_sync_waiting() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_gathers_is_committed_together() {
    let rig = Rig::new();
    rig.files.hold_syncs();
    let mut first = pin!(rig.put("first", "1"));
    assert!(poll_once(first.as_mut()).is_none());
    wait_until_a_sync_waits(&rig).await;
    let mut waiting: Vec<_> = (0..100)
        .map(|number| {
            let rig = &rig;
            Box::pin(async move { rig.put(&format!("key-{number}"), "2").await })
        })
        .collect();
    for write in &mut waiting {
        assert!(poll_once(write.as_mut()).is_none());
    }
    assert_eq!(rig.store.status()[0].queued, 100);
    // Nothing is visible before it is acknowledged as durable.
    assert_eq!(rig.get("first").await, None);
    rig.files.release_syncs();
    first.await.unwrap();
    for write in waiting {
        write.await.unwrap();
    }
    let status = rig.store.status().remove(0);
    assert_eq!((status.commits, status.mutations), (2, 101));
}

#[tokio::test]
async fn the_wait_for_the_commit_before_it_is_no_service_time_of_a_write() {
    let rig = Rig::new();
    rig.files.hold_syncs();
    let mut first = pin!(rig.put("first", "1"));
    assert!(poll_once(first.as_mut()).is_none());
    wait_until_a_sync_waits(&rig).await;
    let call = CallContext::internal();
    let request = DeleteRangeRequest {
        namespace: NAMESPACE,
        epoch: 0,
        partition: Key::new("other", "").unwrap().partition,
        range: SortRange::default(),
        rows_max: 10,
        durability: Durability::Sync,
    };
    let mut second = rig.store.remove_rows(&call, request);
    assert!(poll_once(second.as_mut()).is_none());
    // By the clock of the disk.
    let wait = Duration::from_hours(1);
    rig.files.advance(wait);
    rig.files.release_syncs();
    first.await.unwrap();
    second.await.unwrap();
    assert!(call.service_time().unwrap() < wait);
}

#[tokio::test]
async fn the_writes_of_a_commit_share_its_time_by_rows() {
    let rig = Rig::new();
    rig.files.hold_syncs();
    let mut first = pin!(rig.put("first", "1"));
    assert!(poll_once(first.as_mut()).is_none());
    wait_until_a_sync_waits(&rig).await;
    let rows = [1_u32, 1, 2, 6];
    let calls = rows.map(|_| CallContext::internal());
    let mut waiting = Vec::new();
    for (call, rows) in calls.iter().zip(rows) {
        let mutations = (0..rows).map(|row| Mutation {
            key: Key::new(format!("key-{}", waiting.len()), format!("{row}")).unwrap(),
            change: Change::Delete,
            condition: Condition::Always,
        });
        let request = WriteRequest {
            namespace: NAMESPACE,
            epoch: 0,
            mutations: mutations.collect(),
            atomicity: Atomicity::None,
            durability: Durability::Sync,
            proposed: Version(1),
            idempotency: None,
            not_before: None,
            run: None,
        };
        waiting.push(rig.store.write_rows(call, request));
    }
    for write in &mut waiting {
        assert!(poll_once(write.as_mut()).is_none());
    }
    rig.files.release_syncs();
    first.await.unwrap();
    for write in waiting {
        assert!(write.await.iter().all(Result::is_ok));
    }
    assert_eq!(rig.store.status()[0].commits, 2);
    // All took as long as their commit, and each is charged its share of it.
    let took = calls[0].service_time().unwrap();
    for (call, rows) in calls.iter().zip(rows) {
        assert_eq!(call.service_time(), Some(took));
        let share = took.as_nanos() as u64 * u64::from(rows) / 10;
        assert_eq!(call.busy_time(), Some(Duration::from_nanos(share.max(1))));
    }
}

#[tokio::test]
async fn what_is_given_up_before_it_is_begun_is_never_applied() {
    let rig = Rig::new();
    rig.put("kept", "0").await.unwrap();
    rig.files.hold_syncs();
    let mut begun = Box::pin(rig.put("begun", "1"));
    assert!(poll_once(begun.as_mut()).is_none());
    wait_until_a_sync_waits(&rig).await;
    let mut waiting = Box::pin(rig.put("waiting", "1"));
    assert!(poll_once(waiting.as_mut()).is_none());
    let removal = DeleteRangeRequest {
        namespace: NAMESPACE,
        epoch: 0,
        partition: Key::new("kept", "").unwrap().partition,
        range: SortRange::default(),
        rows_max: 10,
        durability: Durability::Sync,
    };
    let call = CallContext::internal();
    let mut removal = rig.store.remove_rows(&call, removal);
    assert!(poll_once(removal.as_mut()).is_none());
    let mut later = pin!(rig.put("later", "1"));
    assert!(poll_once(later.as_mut()).is_none());
    drop((begun, waiting, removal));
    rig.files.release_syncs();
    later.await.unwrap();
    // The write that had already been handed to the disk completes.
    assert_eq!(rig.get("begun").await.as_deref(), Some("1"));
    assert_eq!(rig.get("waiting").await, None);
    assert_eq!(rig.get("kept").await.as_deref(), Some("0"));
    let served = rig.store.served(ShardId(0));
    let counters = &served.open(ShardId(0)).unwrap().counters;
    assert_eq!(counters.withdrawn.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn writes_that_wait_meet_a_fence_that_came_after_them() {
    let rig = Rig::new();
    let other = NamespaceId(NAMESPACE.0 + 1);
    rig.files.hold_syncs();
    let mut first = pin!(rig.put("first", "1"));
    assert!(poll_once(first.as_mut()).is_none());
    wait_until_a_sync_waits(&rig).await;
    let mut waiting = pin!(rig.put("waiting", "1"));
    assert!(poll_once(waiting.as_mut()).is_none());
    let mut beside = pin!(put_in(&rig.store, other, "beside", "1", Durability::Sync));
    assert!(poll_once(beside.as_mut()).is_none());
    let copy = fencing(NAMESPACE);
    let mut fencing = rig.store.keep_records(Arc::new(copy));
    // The folder's file is written on a blocking thread of the runtime, then the shard is asked.
    let is_asked = || {
        rig.store
            .served(ShardId(0))
            .open(ShardId(0))
            .unwrap()
            .queue
            .len()
            == 3
    };
    while !is_asked() {
        assert!(poll_once(fencing.as_mut()).is_none());
        tokio::task::yield_now().await;
    }
    rig.files.release_syncs();
    first.await.unwrap();
    let gone = StoreError::NamespaceGone {
        shard: ShardId(0),
        namespace: NAMESPACE,
    };
    let refused = waiting.await.unwrap_err();
    assert_eq!(refused, WriteError::Store(gone.clone()));
    beside.await.unwrap();
    assert_eq!(fencing.await, [(ShardId(0), Ok(()))]);
    let key = Key::new("waiting", "").unwrap();
    let read = rig
        .store
        .get_row(&CallContext::internal(), NAMESPACE, &key)
        .await;
    assert_eq!(read, Err(gone));
}

#[tokio::test]
async fn a_fence_that_did_not_reach_the_disk_is_no_fence_yet() {
    let rig = Rig::new();
    rig.put("row", "1").await.unwrap();
    let copy = Arc::new(fencing(NAMESPACE));
    rig.files
        .arm(FileOperation::Sync, FileFault::Fail(ErrorKind::Other), 0);
    for _ in 0..3 {
        let answers = rig.store.keep_records(Arc::clone(&copy)).await;
        assert!(answers.len() == 1 && answers[0].1.is_err(), "{answers:?}");
    }
    assert!(rig.files.disarm() > 0);
    let answers = rig.store.keep_records(Arc::clone(&copy)).await;
    assert_eq!(answers, [(ShardId(0), Ok(()))]);
    // After a kill the shard's own file knows it, whatever has become of the folder's copy.
    std::fs::remove_file(rig.folder.path().join("records")).unwrap();
    let (copied, _folder) = rig.copy();
    let (call, key) = (CallContext::internal(), Key::new("row", "").unwrap());
    let gone = copied.get_row(&call, NAMESPACE, &key);
    assert!(matches!(gone.await, Err(StoreError::NamespaceGone { .. })));
}

#[tokio::test]
async fn a_full_queue_refuses_and_recovers() {
    let rig = Rig::with(|config| config.queue_mutations_max = 2);
    rig.files.hold_syncs();
    let mut first = pin!(rig.put("first", "1"));
    assert!(poll_once(first.as_mut()).is_none());
    wait_until_a_sync_waits(&rig).await;
    let mut second = pin!(rig.put("second", "1"));
    let mut third = pin!(rig.put("third", "1"));
    assert!(poll_once(second.as_mut()).is_none());
    assert!(poll_once(third.as_mut()).is_none());
    let refused = rig.put("refused", "1").await.unwrap_err();
    let is_full = matches!(refused, WriteError::Store(StoreError::QueueFull { .. }));
    assert!(is_full, "{refused}");
    rig.files.release_syncs();
    first.await.unwrap();
    second.await.unwrap();
    third.await.unwrap();
    rig.put("later", "1").await.unwrap();
    assert_eq!(rig.get("refused").await, None);
}
