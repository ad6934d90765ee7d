//! What gathers while a commit waits for the disk is committed together, within bounds.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use umbo_store::{Store, StoreError, WriteError};

use super::Rig;

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(answer) => Some(answer),
        std::task::Poll::Pending => None,
    }
}

async fn wait_until_a_sync_waits(rig: &Rig) {
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
