//! Hello and welcome.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use umbo_protocol::{Ask, Outcome};
use umbo_store::{ByKey as _, CallContext, RecordsKeeper, RecordsRevision, StoreReport};
use umbo_types::Deadline;

use crate::peer::{Peers, connected, settings, until};
use crate::rows::{NS, key, read};

/// The node withdraws older requests before it sends the welcome: a request sent before it would be withdrawn
/// too, or overtaken.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_welcome() {
    let (store, mut peers) = Peers::of(settings());
    let asking = tokio::spawn({
        let store = Arc::clone(&store);
        async move { read(&*store, &key("a")).await }
    });
    let mut peer = peers.next().await;
    let hello = peer.hello().await;
    let (requests, cancelled) = peer.settle().await;
    assert!(requests.is_empty() && cancelled.is_empty());
    peer.welcome(&hello.welcome("test", "node-0", 1)).await;
    let request = peer.request().await;
    assert!(matches!(request.ask, Ask::Get(NS, _)));
    peer.answer(request.id, Outcome::Row(None)).await;
    assert_eq!(asking.await.unwrap(), Ok(None));
}

/// All connections of a store have one incarnation, and those of two stores have different ones.
#[tokio::test(start_paused = true)]
async fn a_store_keeps_its_incarnation() {
    let (store, mut peers) = Peers::of(settings());
    let mut first = peers.next().await;
    let hello = first.hello().await;
    drop(first);
    let mut second = peers.next().await;
    assert_eq!(second.hello().await.incarnation, hello.incarnation);
    let mut other_settings = settings();
    other_settings.seed = None;
    let (_other, mut others) = Peers::of(other_settings);
    let other = others.next().await.hello().await;
    assert_ne!(other.incarnation, hello.incarnation);
    drop(store);
}

/// The state of the node in any frame is recorded: the version of its map, and its revision of the records.
#[tokio::test(start_paused = true)]
async fn every_frame_of_the_node_counts() {
    let (store, mut peers, mut peer) = connected().await;
    assert_eq!(store.records_revision(), RecordsRevision::default());
    let revision = RecordsRevision {
        epoch: 2,
        number: 90,
    };
    (peer.records, peer.map_version) = (revision, 5);
    peer.writer.pong();
    peer.flush().await;
    until(|| store.records_revision() == revision).await;
    assert_eq!(store.nodes()[0].map_version, Some(5));
    // The highest revision counts, and the next hello contains it.
    peer.records = RecordsRevision::default();
    peer.writer.pong();
    peer.flush().await;
    drop(peer);
    assert_eq!(peers.next().await.hello().await.records, revision);
    assert_eq!(store.records_revision(), revision);
}

/// A node tells its time of day with its status, and a clock that is far off is named.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_far_from_that_of_the_node_is_named() {
    let (store, _peers, mut peer) = connected().await;
    tokio::select! {
        // Answers the probes of the store.
        request = peer.request() => panic!("{request:?}"),
        () = until(|| store.nodes()[0].clock_problem().is_some()) => {}
    }
    let problem = store.nodes()[0].clock_problem().unwrap_or_default();
    assert!(problem.contains("ahead of that of node"), "{problem}");
}

/// A deadline is sent as an instant of the node's clock that is never later than the deadline itself.
#[tokio::test(start_paused = true)]
async fn a_deadline_comes_on_the_clock_of_the_node() {
    let (store, _peers, mut peer) = connected().await;
    let deadline = Instant::now() + Duration::from_mins(10);
    let asking = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let call = CallContext::internal_until(Deadline::at(deadline.into_std()));
            store.get_row(&call, NS, &key("a")).await
        }
    });
    let request = peer.request().await;
    let exact = u64::try_from(deadline.duration_since(peer.began).as_nanos()).unwrap();
    let came = request.deadline_ns.expect("a deadline");
    assert!(came <= exact, "{came} is later than {exact}");
    // The delay was no longer than the test so far.
    assert!(came >= exact - peer.now_ns(), "{came} for {exact}");
    peer.answer(request.id, Outcome::Row(None)).await;
    assert_eq!(asking.await.unwrap(), Ok(None));
    let untimed = tokio::spawn(async move { read(&*store, &key("a")).await });
    assert_eq!(peer.request().await.deadline_ns, None);
    drop(peer);
    untimed.abort();
}
