//! Identification of the peer: hello, welcome, refusals, and the end of connections.

use std::sync::Arc;
use std::time::Duration;

use umbo_protocol::{ProtocolVersion, Refusal};
use umbo_shard::NodeLimits;
use umbo_store::MemoryStore;

use crate::support::{Started, WallClock, get, hello, key_of};

#[tokio::test]
async fn a_connection_begins_with_one_hello() {
    let node = Started::new();
    // Requests behind the first bytes, where the hello should be.
    let mut peer = node.silent_peer().await;
    peer.send_bytes(&umbo_protocol::PREFACE).await;
    peer.send(vec![get(&key_of(0, 0))]).await;
    peer.end().await;
    assert!(peer.welcome.is_none());
    let mut peer = node.peer().await;
    peer.greet_again(&hello()).await;
    peer.end().await;
}

#[tokio::test]
async fn a_dispatcher_that_means_another_node_is_told_so() {
    let node = Started::new();
    let mut others = [hello(), hello(), hello()];
    others[0].cluster_id = "elsewhere".to_owned();
    others[1].node = "b".to_owned();
    others[2].version_min = ProtocolVersion(ProtocolVersion::MAX.0 + 1);
    others[2].version_max = others[2].version_min;
    for (other, hello) in others.iter().enumerate() {
        let mut peer = node.silent_peer().await;
        peer.greet(hello).await;
        let refusal = peer.welcome().await.refusal.unwrap();
        let is_named = match other {
            0 => matches!(refusal, Refusal::OtherCluster(_)),
            1 => matches!(refusal, Refusal::OtherNode(_)),
            _ => matches!(refusal, Refusal::NoCommonVersion(_)),
        };
        assert!(is_named, "{refusal}");
        peer.end().await;
    }
}

#[tokio::test]
async fn a_peer_that_says_no_hello_is_not_waited_for() {
    let store = MemoryStore::new(4, Arc::new(WallClock)).unwrap();
    let limits = NodeLimits {
        handshake_timeout: Duration::from_millis(50),
        ..NodeLimits::default()
    };
    let node = Started::with(Arc::new(store), limits);
    let mut silent = node.silent_peer().await;
    silent.end().await;
    let mut slow = node.silent_peer().await;
    slow.send_bytes(&umbo_protocol::PREFACE).await;
    slow.end().await;
    assert_eq!(node.node.connections_open(), 0);
}

#[tokio::test]
async fn every_frame_says_what_the_node_knows() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let welcomed = peer.stamp;
    assert_eq!((welcomed.map_version, welcomed.records.number), (1, 0));
    peer.ping().await;
    while peer.pongs == 0 {
        peer.read().await;
    }
    assert!(peer.stamp.stamp_ns > welcomed.stamp_ns);
}

#[tokio::test]
async fn a_new_connection_of_a_dispatcher_ends_the_old_one() {
    let node = Started::new();
    let hello = hello();
    let mut old = node.peer_of(&hello).await;
    let mut other = node.peer().await;
    let mut new = node.peer_of(&hello).await;
    old.end().await;
    new.ask(get(&key_of(0, 0))).await;
    other.ask(get(&key_of(0, 0))).await;
    assert_eq!(node.node.connections_open(), 2);
}

#[tokio::test]
async fn a_node_that_stops_answers_what_was_asked() {
    let node = Started::new();
    let mut peer = node.peer().await;
    assert!(node.node.is_ready());
    node.tell_to_stop();
    while !peer.is_draining {
        assert!(peer.read().await);
    }
    assert!(!node.node.is_ready());
    peer.ask(get(&key_of(0, 0))).await;
    let id = peer.send(vec![get(&key_of(0, 1))]).await[0];
    peer.half_close().await;
    assert_eq!(peer.answer().await.id, id);
    peer.end().await;
    let closed = node.closed().await;
    assert_eq!((closed.connections, closed.cut), (1, 0));
}

#[tokio::test]
async fn a_node_that_stops_waits_for_nobody_for_ever() {
    let store = MemoryStore::new(4, Arc::new(WallClock)).unwrap();
    let limits = NodeLimits {
        drain_timeout: Duration::from_millis(50),
        ..NodeLimits::default()
    };
    let node = Started::with(Arc::new(store), limits);
    let mut peer = node.peer().await;
    // A peer that has not sent a hello is not waited for at all.
    let _silent = node.silent_peer().await;
    while node.node.connections_open() < 2 {
        tokio::task::yield_now().await;
    }
    let closed = node.closed().await;
    assert_eq!((closed.connections, closed.cut), (2, 1));
    peer.end().await;
}
