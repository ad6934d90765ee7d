//! Who is on the other side: hello, welcome, refusals, and how streams end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tonic::Code;
use umbo_protocol::{ProtocolVersion, Refusal, RequestFrame};
use umbo_shard::NodeLimits;
use umbo_store::MemoryStore;

use crate::support::{Started, WallClock, get, hello, key_of};

#[tokio::test]
async fn a_stream_begins_with_a_hello() {
    let node = Started::new();
    let mut peer = node.silent_peer().await;
    peer.send(vec![get(&key_of(0, 0))]);
    assert_eq!(peer.end().await.code(), Code::InvalidArgument);
    let mut peer = node.peer().await;
    peer.send_frame(RequestFrame::hello(&hello()));
    assert_eq!(
        peer.end().await.code(),
        Code::InvalidArgument,
        "and only begins with one"
    );
}

#[tokio::test]
async fn who_means_another_node_is_told_so() {
    let node = Started::new();
    let mut others = [hello(), hello(), hello()];
    others[0].cluster_id = "elsewhere".to_owned();
    others[1].node = "b".to_owned();
    others[2].version_min = ProtocolVersion(ProtocolVersion::MAX.0 + 1);
    others[2].version_max = others[2].version_min;
    for (other, hello) in others.iter().enumerate() {
        let mut peer = node.silent_peer().await;
        peer.send_frame(RequestFrame::hello(hello));
        let refusal = peer.welcome().await.refusal.unwrap();
        let is_named = match other {
            0 => matches!(refusal, Refusal::OtherCluster(_)),
            1 => matches!(refusal, Refusal::OtherNode(_)),
            _ => matches!(refusal, Refusal::NoCommonVersion(_)),
        };
        assert!(is_named, "{refusal}");
        assert_eq!(peer.end().await.code(), Code::FailedPrecondition);
    }
}

#[tokio::test]
async fn who_says_nothing_is_not_waited_for() {
    let store = MemoryStore::new(4, Arc::new(WallClock)).unwrap();
    let limits = NodeLimits {
        handshake_timeout: Duration::from_millis(50),
        frame_timeout: Duration::from_millis(50),
        ..NodeLimits::default()
    };
    let node = Started::with(Arc::new(store), limits);
    let mut silent = node.silent_peer().await;
    assert_eq!(silent.end().await.code(), Code::InvalidArgument);
    // Who has said hello may be silent for as long as it likes.
    let mut patient = node.peer().await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    patient.ask(get(&key_of(0, 0))).await;
}

#[tokio::test]
async fn garbage_ends_its_own_stream_only() {
    let node = Started::new();
    let mut good = node.peer().await;
    for garbage in [&b"\xff\xff\xff\xff"[..], b"\x12\x7f", &[0; 3]] {
        let mut bad = node.peer().await;
        bad.send_frame(Bytes::from_static(garbage));
        assert_eq!(bad.end().await.code(), Code::InvalidArgument);
        good.ask(get(&key_of(0, 0))).await;
    }
}

#[tokio::test]
async fn a_node_that_stops_answers_what_was_asked() {
    let node = Started::new();
    let mut peer = node.peer().await;
    assert!(node.node.is_ready());
    node.tell_to_stop();
    while !peer.is_draining {
        peer.read().await.unwrap();
    }
    assert!(!node.node.is_ready());
    peer.ask(get(&key_of(0, 0))).await;
    peer.half_close();
    assert_eq!(peer.end().await.code(), Code::Ok);
    let closed = node.closed().await;
    assert_eq!((closed.streams, closed.cut), (1, 0));
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
    let closed = node.closed().await;
    assert_eq!((closed.streams, closed.cut), (1, 1));
    assert_ne!(peer.end().await.code(), Code::Ok);
}
