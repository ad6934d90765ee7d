//! Connections that are lost, silent or drained.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use umbo_protocol::{Ask, Outcome};
use umbo_store::{StoreReport, Written};
use umbo_store_remote::RemoteSettings;
use umbo_types::Version;

use crate::peer::{Peers, connected, settings, until};
use crate::rows::{key, read, unavailable_for_write, write};

fn applied() -> Outcome {
    Outcome::Written(vec![Ok(Ok(Written::new(Version(9), false)))])
}

/// The outcome of writes that were sent is unknown; they are never sent again.
#[tokio::test(start_paused = true)]
async fn writes_that_were_sent_are_unknown_after_a_loss() {
    let (store, mut peers, mut peer) = connected().await;
    let writes: Vec<_> = (0..10)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { write(&*store, &key(&format!("{n}")), b"v").await })
        })
        .collect();
    for _ in 0..10 {
        peer.request().await;
    }
    drop(peer);
    for write in writes {
        let (_, outcome) = unavailable_for_write(write.await.unwrap());
        assert_eq!(outcome, umbo_store::Outcome::Unknown);
    }
    let mut next = peers.welcomed().await;
    assert!(next.settle().await.0.is_empty());
}

/// No node can have begun a write whose last chunk was not sent: it is sent again.
#[tokio::test(start_paused = true)]
async fn a_write_of_which_a_part_was_sent_is_sent_again_after_a_loss() {
    let (store, mut peers) = Peers::of(settings());
    let mut peer = peers.next().await;
    let mut welcome = peer.hello().await.welcome("test", "node-0", 1);
    welcome.window = 512 << 10;
    peer.is_granting = false;
    peer.welcome(&welcome).await;
    let large = tokio::spawn({
        let store = Arc::clone(&store);
        async move { write(&*store, &key("a"), &vec![1; 1 << 20]).await }
    });
    let small = tokio::spawn({
        let store = Arc::clone(&store);
        async move { write(&*store, &key("a"), b"v").await }
    });
    let (requests, _) = peer.settle().await;
    assert!(requests.is_empty());
    drop(peer);
    let mut next = peers.welcomed().await;
    for _ in 0..2 {
        let request = next.request().await;
        assert!(matches!(request.ask, Ask::Write(_)));
        next.answer(request.id, applied()).await;
    }
    assert!(large.await.unwrap().is_ok() && small.await.unwrap().is_ok());
}

/// Reads may be done twice.
#[tokio::test(start_paused = true)]
async fn reads_are_sent_again_after_a_loss() {
    let (store, mut peers, mut peer) = connected().await;
    let reading = tokio::spawn(async move { read(&*store, &key("a")).await });
    peer.request().await;
    drop(peer);
    let mut next = peers.welcomed().await;
    let request = next.request().await;
    next.answer(request.id, Outcome::Row(None)).await;
    assert_eq!(reading.await.unwrap(), Ok(None));
}

/// A node that shuts down answers the requests that it has; later ones wait for the next connection.
#[tokio::test(start_paused = true)]
async fn a_node_that_stops_answers_what_it_was_sent() {
    let (store, mut peers, mut peer) = connected().await;
    let writing = tokio::spawn({
        let store = Arc::clone(&store);
        async move { write(&*store, &key("a"), b"v").await }
    });
    let request = peer.request().await;
    peer.writer.draining();
    peer.flush().await;
    until(|| store.nodes()[0].failure.is_some()).await;
    let later = tokio::spawn({
        let store = Arc::clone(&store);
        async move { read(&*store, &key("a")).await }
    });
    assert!(peer.settle().await.0.is_empty());
    peer.answer(request.id, applied()).await;
    assert!(writing.await.unwrap().is_ok());
    peer.end().await;
    assert_eq!(store.stats().connections_lost, 0);
    let mut next = peers.welcomed().await;
    let request = next.request().await;
    assert!(matches!(request.ask, Ask::Get(..)));
    next.answer(request.id, Outcome::Row(None)).await;
    assert_eq!(later.await.unwrap(), Ok(None));
}

/// The connection to a node that sends nothing is closed, even if the socket stays open.
#[tokio::test(start_paused = true)]
async fn a_silent_node_is_given_up() {
    let (store, mut peers) = Peers::of(RemoteSettings {
        silence_max: Duration::from_millis(20),
        probe_timeout: Duration::from_millis(30),
        ..settings()
    });
    let peer = peers.welcomed().await;
    until(|| store.nodes()[0].failure.is_none()).await;
    let (_, outcome) = unavailable_for_write(write(&*store, &key("a"), b"v").await);
    assert_eq!(outcome, umbo_store::Outcome::Unknown);
    assert_eq!(store.stats().connections_lost, 1);
    drop(peer);
}

/// The connection to a node whose store makes no progress is kept while its pongs come.
#[tokio::test(start_paused = true)]
async fn a_node_that_only_lives_is_waited_for() {
    let (store, mut peers) = Peers::of(RemoteSettings {
        silence_max: Duration::from_millis(5),
        ..settings()
    });
    let mut peer = peers.welcomed().await;
    until(|| store.nodes()[0].failure.is_none()).await;
    let key = key("a");
    let mut reading = Box::pin(read(&*store, &key));
    assert!((&mut reading).now_or_never().is_none());
    let request = peer.request().await;
    let mut pings = 0;
    while pings < 3 {
        if let Some(umbo_protocol::DispatcherFrame::Ping) = peer.frame().await {
            pings += 1;
            peer.writer.pong();
            peer.flush().await;
        }
    }
    peer.answer(request.id, Outcome::Row(None)).await;
    assert_eq!(reading.await, Ok(None));
}
