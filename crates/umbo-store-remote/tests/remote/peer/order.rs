//! The order of writes of a partition, and what is withdrawn.

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt as _;
use umbo_protocol::{Ask, Outcome, Request};
use umbo_store::{Store, StoreReport, Written};
use umbo_types::Version;

use crate::peer::{Peer, Peers, connected, settings, until};
use crate::rows::{key, read, write};

fn value_len(request: &Request) -> usize {
    let Ask::Write(write) = &request.ask else {
        panic!("{request:?}")
    };
    match &write.mutations[0].change {
        umbo_store::Change::Put { value, .. } => value.bytes.len(),
        umbo_store::Change::Upload(step) => step.len(),
        umbo_store::Change::Delete | umbo_store::Change::Increment { .. } => 0,
    }
}

fn applied() -> Outcome {
    Outcome::Written(vec![Ok(Ok(Written::new(Version(9), false)))])
}

/// A small write does not overtake a large one of its partition, but other requests do.
#[tokio::test(start_paused = true)]
async fn writes_of_a_partition_arrive_in_the_order_in_which_they_were_sent() {
    let (store, _peers, mut peer) = connected().await;
    let large = vec![1; 1 << 20];
    let mut writes: Vec<_> = [("a", &large[..]), ("a", b"x"), ("a", b"xy"), ("b", b"xyz")]
        .into_iter()
        .map(|(name, value)| {
            let (store, value) = (Arc::clone(&store), value.to_vec());
            async move { write(&*store, &key(name), &value).await }.boxed()
        })
        .collect();
    for write in &mut writes {
        assert!(write.now_or_never().is_none());
    }
    let mut arrived = Vec::new();
    for _ in 0..4 {
        let request = peer.request().await;
        arrived.push(value_len(&request));
        peer.answer(request.id, applied()).await;
    }
    assert_eq!(arrived, [3, 1 << 20, 1, 2]);
    for write in writes {
        assert!(write.await.is_ok());
    }
}

/// A get does not wait for a large write.
#[tokio::test(start_paused = true)]
async fn reads_pass_large_writes() {
    let (store, _peers, mut peer) = connected().await;
    let large = vec![1; 1 << 20];
    let key = key("a");
    let mut writing = pin!(write(&*store, &key, &large));
    let mut reading = pin!(read(&*store, &key));
    assert!(writing.as_mut().now_or_never().is_none());
    assert!(reading.as_mut().now_or_never().is_none());
    assert!(matches!(peer.request().await.ask, Ask::Get(..)));
    assert_eq!(value_len(&peer.request().await), 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn answers_may_come_in_any_order() {
    let (store, _peers, mut peer) = connected().await;
    let reads: Vec<_> = (0..10)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { read(&*store, &key(&format!("{n}"))).await })
        })
        .collect();
    let mut requests = Vec::new();
    for _ in 0..10 {
        requests.push(peer.request().await);
    }
    for request in requests.iter().rev() {
        let Ask::Get(_, key) = &request.ask else {
            panic!("{request:?}")
        };
        let row = umbo_types::Row {
            value: umbo_types::Value::new(key.partition.to_bytes(), "", "").unwrap(),
            version: Version(1),
            expires_at: None,
        };
        peer.answer(request.id, Outcome::Row(Some(row))).await;
    }
    for (n, read) in reads.into_iter().enumerate() {
        let row = read.await.unwrap().unwrap().expect("a row");
        assert_eq!(row.value.bytes, format!("{n}"));
    }
}

/// A write whose caller has gone is withdrawn: a sent one is cancelled, a queued one is never sent.
#[tokio::test(start_paused = true)]
async fn a_dropped_write_is_withdrawn() {
    let (store, _peers, mut peer) = connected().await;
    let key = key("a");
    let left = {
        let mut left = Box::pin(write(&*store, &key, b"left"));
        assert!((&mut left).now_or_never().is_none());
        left
    };
    let request = peer.request().await;
    drop(left);
    assert_eq!(peer.cancelled().await, request.id);
    until(|| store.stats().in_flight == 0).await;

    // A write that is dropped before the sending task has run.
    assert!(write(&*store, &key, b"not left").now_or_never().is_none());
    let (requests, cancelled) = peer.settle().await;
    let ids: Vec<_> = requests.iter().map(|request| request.id).collect();
    assert_eq!(ids, cancelled, "whatever left is cancelled");
}

/// A dropped write that waits behind a large one of its partition is never sent.
#[tokio::test(start_paused = true)]
async fn a_dropped_write_that_waits_never_leaves() {
    let (store, _peers, mut peer) = connected().await;
    let (key, large) = (key("a"), vec![1; 1 << 20]);
    let mut first = Box::pin(write(&*store, &key, &large));
    assert!((&mut first).now_or_never().is_none());
    assert!(write(&*store, &key, b"second").now_or_never().is_none());
    let third = tokio::spawn({
        let (store, key) = (Arc::clone(&store), key.clone());
        async move { write(&*store, &key, b"the third").await }
    });
    assert_eq!(value_len(&peer.request().await), 1 << 20);
    assert_eq!(value_len(&peer.request().await), "the third".len());
    let (requests, cancelled) = peer.settle().await;
    assert!(requests.is_empty() && cancelled.is_empty());
    third.abort();
}

/// A large write that is dropped while its chunks are sent is cancelled, and the writes that wait for it
/// continue.
#[tokio::test(start_paused = true)]
async fn a_dropped_large_write_frees_what_waits_for_it() {
    let (store, mut peers) = Peers::of(settings());
    let mut peer: Peer = peers.welcomed().await;
    until(|| store.nodes()[0].failure.is_none()).await;
    let (key, large) = (key("a"), vec![1; 1 << 20]);
    let mut first = Box::pin(write(&*store, &key, &large));
    assert!((&mut first).now_or_never().is_none());
    let second = tokio::spawn({
        let (store, key) = (Arc::clone(&store), key.clone());
        async move { write(&*store as &dyn Store, &key, b"second").await }
    });
    // So that some chunks are sent.
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    drop(first);
    assert_eq!(value_len(&peer.request().await), "second".len());
    second.abort();
}
