//! Writes of a dispatcher are begun in the order in which they were sent, before their deadline, or not at
//! all.

use std::sync::atomic::Ordering;

use umbo_protocol::{Ask, NodeError, Outcome};
use umbo_shard::NodeLimits;
use umbo_store::StoreError;
use umbo_types::{Key, ShardId};

use crate::slow::Slow;
use crate::support::{Peer, Started, get, hello, key_of, put};

async fn value(peer: &mut Peer, key: &Key) -> Option<u8> {
    let Outcome::Row(row) = peer.ask(get(key)).await.outcome else {
        panic!("no row")
    };
    row.map(|row| row.value.bytes[0])
}

fn is_late(outcome: &Outcome) -> bool {
    let late = StoreError::DeadlinePassed { shard: ShardId(0) };
    *outcome == Outcome::Failed(NodeError::Store(late))
}

async fn until_idle(node: &Started, in_flight: usize) {
    while node.node.requests_in_flight() > in_flight {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn large_and_small_writes_of_a_key_are_applied_as_they_were_sent() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let key = key_of(0, 0);
    for round in 0..20_u8 {
        let large = put(&key, vec![round; 1 << 20]);
        let small = put(&key, vec![round + 100; 1]);
        peer.send(vec![large, small]).await;
        peer.answers(2).await;
        assert_eq!(value(&mut peer, &key).await, Some(round + 100));
    }
}

#[tokio::test]
async fn what_a_connection_leaves_behind_is_withdrawn() {
    let store = Slow::new();
    let node = Started::with(store.clone(), NodeLimits::default());
    let key = key_of(0, 0);
    let mut leaving = node.peer().await;
    leaving.send(vec![put(&key, "x"), get(&key)]).await;
    store.until_begun(2).await;
    drop(leaving);
    until_idle(&node, 0).await;
    assert_eq!(store.dropped.load(Ordering::SeqCst), 2);
    store.let_all();
    assert_eq!(value(&mut node.peer().await, &key).await, None);
}

#[tokio::test]
async fn a_new_connection_is_welcomed_after_the_old_one_is_withdrawn() {
    let store = Slow::new();
    let node = Started::with(store.clone(), NodeLimits::default());
    let (hello, key) = (hello(), key_of(0, 0));
    let mut old = node.peer_of(&hello).await;
    old.send(vec![put(&key, "old")]).await;
    store.until_begun(1).await;
    // The old connection is still open, as when a dispatcher has dropped it and the node has not noticed.
    let mut new = node.peer_of(&hello).await;
    assert_eq!(store.dropped.load(Ordering::SeqCst), 1);
    assert_eq!(node.node.requests_in_flight(), 0);
    store.let_all();
    new.ask(put(&key, "new")).await;
    assert_eq!(value(&mut new, &key).await, Some(b'n'));
    old.end().await;
}

#[tokio::test]
async fn what_is_cancelled_is_withdrawn() {
    let store = Slow::new();
    let node = Started::with(store.clone(), NodeLimits::default());
    let key = key_of(0, 0);
    let mut peer = node.peer().await;
    let ids = peer
        .send(vec![get(&key), put(&key, "x"), put(&key, "y")])
        .await;
    store.until_begun(3).await;
    peer.cancel(&[ids[0], ids[1], 99]).await;
    until_idle(&node, 1).await;
    assert_eq!(store.dropped.load(Ordering::SeqCst), 2);
    store.let_all();
    assert_eq!(peer.answer().await.id, ids[2], "and is not answered");
    assert_eq!(value(&mut peer, &key).await, Some(b'y'));
}

#[tokio::test]
async fn what_is_cancelled_before_it_was_looked_at_is_never_begun() {
    let node = Started::new();
    let key = key_of(0, 0);
    let mut peer = node.peer().await;
    peer.ask(put(&key, vec![7; 1 << 20])).await;
    // Unread answers keep the requests behind them from being begun.
    peer.grants = false;
    peer.send(vec![get(&key); 64]).await;
    let id = peer.send(vec![put(&key, "cancelled")]).await[0];
    peer.cancel(&[id]).await;
    peer.grants = true;
    peer.answers(64).await;
    assert_eq!(value(&mut peer, &key).await, Some(7));
}

#[tokio::test]
async fn what_is_late_on_the_clock_of_the_node_is_not_begun() {
    let store = Slow::new();
    let node = Started::with(store.clone(), NodeLimits::default());
    let key = key_of(0, 0);
    let mut peer = node.peer().await;
    let now = peer.stamp.stamp_ns;
    for ask in [
        get(&key),
        put(&key, "x"),
        Ask::MultiGet(crate::support::NS, vec![key.clone()]),
    ] {
        let mut request = peer.request(ask);
        request.deadline_ns = Some(now);
        peer.send_requests(vec![request]).await;
        let answer = peer.answer().await;
        assert!(is_late(&answer.outcome), "{answer:?}");
    }
    assert_eq!(store.begun.load(Ordering::SeqCst), 0);
    // A read ends at its deadline. On a slow machine the deadline may have passed before the node has the request.
    let mut within_ns = 30_000_000;
    while store.begun.load(Ordering::SeqCst) == 0 {
        let mut request = peer.request(get(&key));
        request.deadline_ns = Some(peer.stamp.stamp_ns + within_ns);
        peer.send_requests(vec![request]).await;
        assert!(is_late(&peer.answer().await.outcome));
        within_ns *= 2;
    }
    assert_eq!(store.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_store_is_told_the_deadline_of_a_write() {
    let store = Slow::new();
    let node = Started::with(store.clone(), NodeLimits::default());
    store.let_all();
    let mut peer = node.peer().await;
    let begun = std::time::Instant::now();
    let stamp = peer.stamp.stamp_ns;
    for deadline_ns in [None, Some(stamp + 60_000_000_000), Some(u64::MAX)] {
        let mut request = peer.request(put(&key_of(0, 0), "x"));
        request.deadline_ns = deadline_ns;
        peer.send_requests(vec![request]).await;
        peer.answer().await;
    }
    let deadlines = store.deadlines.lock().unwrap();
    assert_eq!(deadlines.len(), 3);
    assert!(deadlines[0].is_none());
    let left = deadlines[1].unwrap().remaining(begun);
    assert!((1..=60).contains(&left.as_secs()), "{left:?}");
}
