//! A home that is away, slow, or not what it was: what is served meanwhile, and by what.

use std::sync::Arc;
use std::time::Duration;

use umbo_store::RecordsKeeper;

use crate::records::store::FaultyStore;
use crate::records::support::{Site, path};

#[tokio::test]
async fn without_the_home_rows_are_served_and_nothing_is_changed() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    one.create("x").await;
    assert_eq!(one.put_row("x", "k", "v").await.status, 201);
    other.follow().await;
    other.store.cut_home();
    other.dispatcher.control.follow_records().await.unwrap_err();
    assert_eq!(other.get_row("x", "k").await.bytes, "v");
    assert_eq!(other.put_row("x", "k", "w").await.status, 204);
    let token = r#"{"name":"root","grants":["*:*"]}"#;
    for (method, path, body) in [
        ("PUT", path("y"), ""),
        ("DELETE", path("x"), ""),
        ("POST", "/admin/v1/tokens".to_owned(), token),
    ] {
        let refused = other.ask(method, &path, body).await;
        refused.refused(503, "records-unavailable");
        refused.not_applied();
    }
    let ready = other.ask("GET", "/readyz", "").await;
    assert_eq!(
        (ready.status, ready.body["status"].as_str()),
        (200, Some("degraded"))
    );
    // What changes meanwhile is learnt from the copies that nodes keep.
    one.create("y").await;
    other.dispatcher.control.follow_records().await.unwrap_err();
    assert_eq!(other.put_row("y", "k", "v").await.status, 201);
    assert_eq!(other.revision().await, one.revision().await);
}

#[tokio::test]
async fn a_dispatcher_starts_from_a_copy_and_without_one_it_does_not() {
    let site = Site::new();
    let cut = || {
        let store = FaultyStore::new(&site.store);
        store.cut_home();
        store
    };
    let refused = site.try_pod(cut()).await.err().expect("nothing is known");
    assert!(refused.to_string().contains("away"), "{refused}");
    let one = site.pod().await;
    one.create("x").await;
    assert_eq!(one.put_row("x", "k", "v").await.status, 201);
    let late = site.try_pod(cut()).await.unwrap();
    assert_eq!(late.get_row("x", "k").await.bytes, "v");
    late.store.heal();
    late.follow().await;
    late.create("y").await;
}

#[tokio::test]
async fn what_could_not_be_confirmed_for_too_long_serves_nobody() {
    let site = Site::new();
    let one = site.pod().await;
    one.create("x").await;
    assert_eq!(one.put_row("x", "k", "v").await.status, 201);
    one.store.cut_home();
    site.clock.advance(Duration::from_hours(24));
    one.dispatcher.control.follow_records().await.unwrap_err();
    assert_eq!(one.get_row("x", "k").await.status, 200);
    site.clock.advance(Duration::from_secs(1));
    one.get_row("x", "k").await.refused(503, "records-stale");
    let put = one.put_row("x", "k", "w").await;
    put.refused(503, "records-stale");
    put.not_applied();
    let list = one.ask("GET", "/admin/v1/namespaces", "").await;
    list.refused(503, "records-stale");
    assert_eq!(one.ask("GET", "/readyz", "").await.status, 503);
    assert_eq!(one.ask("GET", "/healthz", "").await.status, 200);
    one.store.heal();
    one.follow().await;
    assert_eq!(one.get_row("x", "k").await.status, 200);
    assert_eq!(one.ask("GET", "/readyz", "").await.status, 200);
}

#[tokio::test]
async fn a_slow_look_never_brings_an_older_revision_back() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    other.create("removed").await;
    // The first one reads the records, and what it has read is slow to come.
    one.store.hold_walk();
    let slow = {
        let dispatcher = Arc::clone(&one.dispatcher);
        tokio::spawn(async move { dispatcher.control.refresh().await })
    };
    let before = one.store.calls();
    while one.store.calls() < before + 2 {
        tokio::task::yield_now().await;
    }
    // Meanwhile it makes a change itself, of a newer revision.
    assert_eq!(one.remove("removed").await.status, 204);
    let revision = one.revision().await;
    one.store.release_walk();
    slow.await.unwrap().unwrap();
    assert_eq!(one.revision().await, revision);
    assert!(one.listed("removed").await.is_none());
}

#[tokio::test]
async fn a_home_that_was_put_back_to_an_older_state_is_not_followed() {
    let site = Site::new();
    let one = site.pod().await;
    one.create("x").await;
    // Nodes keep a copy of a revision that the home does not know any more.
    let kept = site.store.kept_records().await.unwrap().unwrap();
    let mut newer = (*kept).clone();
    newer.revision.number += 5;
    site.store.keep_records(Arc::new(newer)).await;
    let refused = one.ask("PUT", &path("y"), "").await;
    refused.refused(503, "records-unavailable");
    refused.not_applied();
    one.dispatcher.control.follow_records().await.unwrap_err();
    assert_eq!(one.revision().await, kept.revision.number + 5);
    let late = site.pod().await;
    assert_eq!(late.revision().await, kept.revision.number + 5);
    assert!(late.listed("x").await.is_some());
}

#[tokio::test]
async fn changes_of_many_dispatchers_are_all_made() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    let made = (0..20).map(|number| {
        let pod = [&one, &other][number % 2];
        async move { pod.create(&format!("n{number}")).await }
    });
    let mut ids = futures_util::future::join_all(made).await;
    ids.sort_unstable();
    assert_eq!(ids, (1..=20).collect::<Vec<_>>());
}
