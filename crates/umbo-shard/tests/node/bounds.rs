//! A peer that breaks a bound loses its own connection, and affects no other.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_util::sync::CancellationToken;
use umbo_protocol::{FRAME_LEN_MAX, PREFACE, RequestWriter, WINDOW_LEN};
use umbo_shard::{ConnectionEnd, Node, NodeLimits, NodeParts, serve_connection};
use umbo_store::MemoryStore;

use crate::support::{Started, WallClock, get, hello, key_of, map, put, request};

/// A frame of a kind, of these bytes.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32 + 1).to_le_bytes().to_vec();
    frame.push(kind);
    frame.extend_from_slice(payload);
    frame
}

#[tokio::test]
async fn garbage_ends_its_own_connection_only() {
    let node = Started::new();
    let mut good = node.peer().await;
    let garbage = [
        b"\xff\xff\xff\xff".to_vec(),
        (FRAME_LEN_MAX as u32 + 1).to_le_bytes().to_vec(),
        vec![0; 4],
        frame(0x7f, b"of no kind"),
        frame(2, b"\xff\xff"),
        frame(2, b"\x01\x00\xff"),
        frame(3, b""),
        // More credit than was ever used, and a chunk of nothing.
        frame(5, b"\xff\xff\xff\x07"),
        frame(3, b"\x07\x00"),
    ];
    for garbage in garbage {
        let mut bad = node.peer().await;
        bad.send_bytes(&garbage).await;
        bad.end().await;
        good.ask(get(&key_of(0, 0))).await;
    }
    let mut bad = node.silent_peer().await;
    bad.send_bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    bad.end().await;
    good.ask(get(&key_of(0, 0))).await;
}

#[tokio::test]
async fn frames_of_a_later_version_are_skipped() {
    let node = Started::new();
    let mut peer = node.peer().await;
    peer.send_bytes(&frame(0x80, b"what is to come")).await;
    peer.ask(get(&key_of(0, 0))).await;
}

#[tokio::test]
async fn a_request_that_cannot_be_read_is_refused_alone() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let mut request = peer.request(get(&key_of(0, 0)));
    request.traceparent = bytes::Bytes::from_static(b"\xff\xfe");
    let id = peer.send_requests(vec![request]).await[0];
    let answer = peer.answer().await;
    assert_eq!(answer.id, id);
    let umbo_protocol::Outcome::Failed(error) = answer.outcome else {
        panic!("a trace context of no text")
    };
    assert!(
        matches!(error, umbo_protocol::NodeError::BadRequest(_)),
        "{error}"
    );
    peer.ask(get(&key_of(0, 0))).await;
}

/// A node without a socket, and the end of its one connection.
struct Alone {
    peer: DuplexStream,
    ended: tokio::task::JoinHandle<ConnectionEnd>,
}

impl Alone {
    /// Welcomes a peer that has not sent anything yet.
    async fn new(limits: NodeLimits) -> Self {
        let node = Node::new(NodeParts {
            name: "a".to_owned(),
            map: Arc::new(map()),
            store: Arc::new(MemoryStore::new(4, Arc::new(WallClock)).unwrap()),
            clock: Arc::new(WallClock),
            limits,
        });
        let (mut peer, io) = tokio::io::duplex(1 << 20);
        let drain = CancellationToken::new();
        let ended = tokio::spawn(serve_connection(Arc::new(node.unwrap()), io, drain));
        let mut out = Vec::new();
        RequestWriter::hello(&mut out, &hello());
        peer.write_all(&out).await.unwrap();
        let mut length = [0; 4];
        peer.read_exact(&mut length).await.unwrap();
        let mut welcome = vec![0; u32::from_le_bytes(length) as usize];
        peer.read_exact(&mut welcome).await.unwrap();
        Self { peer, ended }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_is_silent_is_given_up_and_one_that_pings_is_not() {
    let alone = Alone::new(NodeLimits::default()).await;
    let ending = alone.ended.await.unwrap();
    assert!(matches!(ending, ConnectionEnd::Silent(_)), "{ending}");
    drop(alone.peer);
    let mut alone = Alone::new(NodeLimits::default()).await;
    for _ in 0..20 {
        alone.peer.write_all(&frame(6, b"")).await.unwrap();
        tokio::time::advance(Duration::from_secs(5)).await;
        let mut pong = [0; 1];
        alone.peer.read_exact(&mut pong).await.unwrap();
    }
    drop(alone.peer);
    let ending = alone.ended.await.unwrap();
    assert!(matches!(ending, ConnectionEnd::Closed), "{ending}");
}

#[tokio::test(start_paused = true)]
async fn what_begins_and_does_not_go_on_is_not_waited_for() {
    // A frame, and a large request; pings come throughout.
    for begun in [&frame(2, &[0; 40])[..9], &frame(3, b"\x07\x00begun")] {
        let mut alone = Alone::new(NodeLimits {
            frame_timeout: Duration::from_secs(5),
            ..NodeLimits::default()
        })
        .await;
        alone.peer.write_all(begun).await.unwrap();
        let is_frame = begun[4] == 2;
        while !alone.ended.is_finished() {
            tokio::time::sleep(Duration::from_millis(500)).await;
            // Within the current frame, only a byte of it can come.
            let more = if is_frame { vec![0] } else { frame(6, b"") };
            let _ = alone.peer.write_all(&more).await;
        }
        let ending = alone.ended.await.unwrap();
        assert!(matches!(ending, ConnectionEnd::Stalled(_)), "{ending}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_no_answers_is_given_up() {
    let mut alone = Alone::new(NodeLimits::default()).await;
    let mut writer = RequestWriter::new(WINDOW_LEN as u32);
    let value = put(&key_of(0, 0), vec![1; 1 << 20]);
    let asks = [value].into_iter().chain(vec![get(&key_of(0, 0)); 8]);
    for (id, ask) in (1..).zip(asks) {
        writer.push(&(&request(id, ask)).into());
    }
    let mut out = Vec::new();
    loop {
        writer.fill(&mut out);
        if out.is_empty() {
            break;
        }
        alone.peer.write_all(&out).await.unwrap();
        out.clear();
    }
    while !alone.ended.is_finished() {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let _ = alone.peer.write_all(&frame(6, b"")).await;
    }
    let ending = alone.ended.await.unwrap();
    assert!(matches!(ending, ConnectionEnd::Untaken(_)), "{ending}");
}

#[tokio::test]
async fn more_than_was_granted_ends_the_connection() {
    let mut alone = Alone::new(NodeLimits::default()).await;
    // Unread answers stop the node from granting credit: a value that fills the pipe, requested many times.
    let mut sent = 0;
    let mut writer = RequestWriter::new(u32::MAX);
    let key = key_of(0, 0);
    let value = put(&key, vec![1; 1 << 20]);
    let mut ids = 1..;
    for (ask, id) in [value].into_iter().chain(vec![get(&key); 4]).zip(&mut ids) {
        writer.push(&(&request(id, ask)).into());
    }
    let mut out = Vec::new();
    while !alone.ended.is_finished() {
        if writer.queued_len() == 0 {
            for id in ids.by_ref().take(1_000) {
                writer.push(&(&request(id, get(&key))).into());
            }
        }
        writer.fill(&mut out);
        let write = alone.peer.write_all(&out);
        if write.await.is_err() {
            break;
        }
        sent += out.len();
        out.clear();
        assert!(sent < 2 * WINDOW_LEN, "nobody stops it");
    }
    let ending = alone.ended.await.unwrap();
    assert!(matches!(ending, ConnectionEnd::Broken(_)), "{ending}");
    assert!(ending.to_string().contains("window"), "{ending}");
}

#[tokio::test]
async fn a_connection_that_ends_within_a_frame_is_named() {
    let mut alone = Alone::new(NodeLimits::default()).await;
    alone.peer.write_all(&PREFACE).await.unwrap();
    alone.peer.write_all(&[0; 1]).await.unwrap();
    drop(alone.peer);
    let ending = alone.ended.await.unwrap();
    assert!(
        matches!(ending, ConnectionEnd::Broken(_) | ConnectionEnd::Cut),
        "{ending}"
    );
}
