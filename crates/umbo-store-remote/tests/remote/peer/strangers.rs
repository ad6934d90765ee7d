//! Peers at the address of a node that are not nodes, or not the expected one.

use std::sync::Arc;
use std::time::Duration;

use umbo_protocol::{Ask, Hello, NodeError, Outcome, ProtocolVersion, Welcome};
use umbo_store::{Store, StoreError, StoreReport};
use umbo_store_remote::{RemoteSettings, RemoteStore};

use crate::peer::{Peers, connected, put_varint, settings, until};
use crate::rows::{key, read, unavailable_for_write, write};

fn impatient() -> RemoteSettings {
    RemoteSettings {
        grace: Duration::ZERO,
        ..settings()
    }
}

async fn failure_of(store: &RemoteStore, words: &str) {
    let failure = || store.nodes()[0].failure.clone().unwrap_or_default();
    until(|| failure().contains(words)).await;
    let refused = read(store, &key("a")).await.expect_err("no node");
    assert!(
        matches!(refused, StoreError::Unavailable { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains(words), "{refused}");
}

/// Sends the same answer to every hello.
fn welcoming(
    mut peers: Peers,
    welcome: impl Fn(&Hello) -> Welcome + Send + 'static,
) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let mut peer = peers.next().await;
            let hello = peer.hello().await;
            peer.welcome(&welcome(&hello)).await;
            peer.end().await;
        }
    })
}

/// The welcome of another node than the expected one is refused with its name.
#[tokio::test(start_paused = true)]
async fn the_wrong_node_is_refused_and_named() {
    type Change = fn(&mut Welcome);
    let changes: [(Change, &str); 3] = [
        (
            |welcome| welcome.cluster_id = "b".to_owned(),
            "identifies itself as \"b\"",
        ),
        (
            |welcome| welcome.node = "node-9".to_owned(),
            "identifies itself as \"node-9\"",
        ),
        (|welcome| welcome.version = ProtocolVersion(7), "version 7"),
    ];
    for (change, words) in changes {
        let (store, peers) = Peers::of(impatient());
        let serving = welcoming(peers, move |hello| {
            let mut welcome = hello.welcome("test", "node-0", 1);
            change(&mut welcome);
            welcome
        });
        failure_of(&store, words).await;
        serving.abort();
    }
    let refusals: [(&str, &str, &str); 2] = [
        ("other", "node-0", "another cluster"),
        ("test", "node-9", "another node"),
    ];
    for (cluster, node, words) in refusals {
        let (store, peers) = Peers::of(impatient());
        let serving = welcoming(peers, move |hello| hello.welcome(cluster, node, 1));
        failure_of(&store, words).await;
        serving.abort();
    }
}

/// A node of an unsupported version reports that.
#[tokio::test(start_paused = true)]
async fn a_node_of_another_version_is_refused_and_named() {
    let (store, peers) = Peers::of(impatient());
    let _serving = welcoming(peers, |hello| {
        let newer = Hello {
            version_min: ProtocolVersion(8),
            version_max: ProtocolVersion(9),
            ..hello.clone()
        };
        newer.welcome("test", "node-0", 1)
    });
    failure_of(&store, "no common version").await;
}

/// Bytes that are not a valid frame at that point end the connection before the welcome.
#[tokio::test(start_paused = true)]
async fn what_speaks_something_else_is_no_node() {
    for (greeting, words) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], "not a shard node"),
        (b"220 ready\r\n", "not a shard node"),
        (b"\x00\x00\x00\x00", "not a shard node"),
        (b"\x0c\x00\x00\x00\x06\0\0\0\0\0\0\0\0\0\0\0", "no welcome"),
        (b"", "no welcome"),
    ] {
        let (store, mut peers) = Peers::of(impatient());
        let serving = tokio::spawn(async move {
            loop {
                peers.next().await.raw(greeting).await;
            }
        });
        failure_of(&store, words).await;
        serving.abort();
    }
}

/// A node that sends nothing is not waited for without limit.
#[tokio::test(start_paused = true)]
async fn a_late_welcome_is_not_waited_for() {
    let (store, mut peers) = Peers::of(RemoteSettings {
        connect_timeout: Duration::from_millis(20),
        ..impatient()
    });
    let serving = tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            kept.push(peers.next().await);
        }
    });
    failure_of(&store, "no welcome within 20 ms").await;
    serving.abort();
}

/// Bytes that are not a frame end the connection after the welcome too; the outcome of sent requests is then
/// unknown.
#[tokio::test(start_paused = true)]
async fn garbage_ends_the_connection_and_is_named() {
    let stamp = [0; 11];
    let too_long = [0xff, 0xff, 0xff, 0x00, 2].to_vec();
    let unknown = [&[12, 0, 0, 0, 9][..], &stamp].concat();
    let second_welcome = [
        &[19, 0, 0, 0, 1][..],
        &stamp,
        &[1, 0, 0, 1, 0x80, 0x80, 0x20],
    ]
    .concat();
    let no_entry = [&[14, 0, 0, 0, 2][..], &stamp, &[99, 0]].concat();
    let no_id = [&[15, 0, 0, 0, 2][..], &stamp, &[1, 0, 0x80]].concat();
    for (garbage, words) in [
        (too_long, "frame of 16777215 bytes"),
        (unknown, "unknown kind 9"),
        (second_welcome, "a second welcome"),
        (no_entry, "ends within a field"),
        (no_id, "ends within a field"),
    ] {
        let (store, mut peers, mut peer) = connected().await;
        let writing = tokio::spawn({
            let store = Arc::clone(&store);
            async move { write(&*store, &key("a"), b"v").await }
        });
        peer.request().await;
        peer.raw(&garbage).await;
        let answer = writing.await.unwrap();
        assert!(format!("{answer:?}").contains(words), "{answer:?}");
        let (_, outcome) = unavailable_for_write(answer);
        assert_eq!(outcome, umbo_store::Outcome::Unknown);
        peers.next().await;
    }
}

/// An answer that cannot be decoded affects only its own request; frames that may be ignored affect none.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_harms_nobody_else() {
    let (store, _peers, mut peer) = connected().await;
    let (one, other) = (key("a"), key("b"));
    let mut writing = Box::pin(write(&*store, &one, b"v"));
    let mut reading = Box::pin(read(&*store, &other));
    assert!(futures_util::poll!(&mut writing).is_pending());
    assert!(futures_util::poll!(&mut reading).is_pending());
    let (write, read) = (peer.request().await, peer.request().await);
    peer.raw(&[&[12, 0, 0, 0, 0x80][..], &[0; 11]].concat())
        .await;
    let mut unreadable = Vec::new();
    put_varint(&mut unreadable, write.id);
    unreadable.extend([0, 0, 0, 0, 99]);
    let mut frame = vec![0, 0, 0, 0, 2];
    frame.extend([0; 11]);
    frame.extend((unreadable.len() as u16).to_le_bytes());
    frame.extend(unreadable);
    frame[0] = frame.len() as u8 - 4;
    peer.raw(&frame).await;
    peer.answer(read.id, Outcome::Row(None)).await;
    assert_eq!(reading.await, Ok(None));
    let (_, outcome) = unavailable_for_write(writing.await);
    assert_eq!(outcome, umbo_store::Outcome::Unknown);
    assert_eq!(store.stats().connections_lost, 0);
}

/// An answer of the wrong kind, or a too long one, is not an answer; the outcome of a write is then unknown.
#[tokio::test(start_paused = true)]
async fn an_answer_to_something_else_is_no_answer() {
    let (store, _peers, mut peer) = connected().await;
    let serving = tokio::spawn(async move {
        loop {
            let request = peer.request().await;
            let wrong = match request.ask {
                Ask::Get(..) => Outcome::Written(Vec::new()),
                _ => Outcome::Row(None),
            };
            peer.answer(request.id, wrong).await;
        }
    });
    for _ in 0..2 {
        assert!(read(&*store, &key("a")).await.is_err());
        let error = write(&*store, &key("a"), b"v").await.unwrap_err();
        assert_eq!(error.outcome(), umbo_store::Outcome::Unknown);
    }
    assert_eq!(store.stats().in_flight, 0);
    serving.abort();
}

/// An older node that does not know a request reports that, and continues with the others.
#[tokio::test(start_paused = true)]
async fn an_older_node_refuses_what_it_does_not_know() {
    let (store, _peers, mut peer) = connected().await;
    let serving = tokio::spawn(async move {
        loop {
            let request = peer.request().await;
            let outcome = match request.ask {
                Ask::Get(..) => Outcome::Row(None),
                _ => Outcome::Failed(NodeError::Unsupported),
            };
            peer.answer(request.id, outcome).await;
        }
    });
    let error = write(&*store as &dyn Store, &key("a"), b"v")
        .await
        .unwrap_err();
    assert_eq!(error.outcome(), umbo_store::Outcome::NotApplied);
    assert!(error.to_string().contains("does not know"), "{error}");
    assert_eq!(read(&*store, &key("a")).await, Ok(None));
    serving.abort();
}
