//! Versions that are dropped while a dispatcher, or a shard, does not know it yet.

use std::time::Duration;

use serde_json::json;
use umbo_bulk::Bulk;
use umbo_dispatcher::LowPriority;
use umbo_observe::EventCursor;
use umbo_types::{NamespaceId, PartitionKey};

use crate::records::support::{Site, TestDispatcher};

/// Builds the next version of a namespace, without rows, and activates it; `meanwhile` happens while it is being built.
pub(super) async fn replace(pod: &TestDispatcher, namespace: &str, meanwhile: impl AsyncFnOnce()) {
    let spec = json!({"mode": "replace", "activate": true}).to_string();
    let loads = format!("/v1/ns/{namespace}/loads");
    let load = pod.ask("POST", &loads, &spec).await;
    assert_eq!(load.status, 201, "{load:?}");
    meanwhile().await;
    let load = format!("{loads}/{}", load.body["id"].as_str().unwrap());
    seal_and_run(pod, &load, 0).await;
}

/// Seals a load of so many parts, and applies it until it is live.
pub(super) async fn seal_and_run(pod: &TestDispatcher, load: &str, parts: u16) {
    let parts = json!({ "parts": parts }).to_string();
    let sealed = pod.ask("POST", &format!("{load}/seal"), &parts).await;
    assert_eq!(sealed.status, 200, "{sealed:?}");
    let bulk = Bulk::new(&pod.dispatcher);
    let here = LowPriority::default();
    let runner = tokio::spawn(async move { bulk.run(&here).await });
    let events = &pod.dispatcher.control.events;
    let is_live = async {
        let mut seen = EventCursor::default();
        loop {
            events.wait_for_newer(seen).await;
            seen = EventCursor::parse(events.since(seen).next.as_bytes()).unwrap();
            let state = pod.ask("GET", load, "").await.body["state"].clone();
            if state == "live" {
                return;
            }
            assert!(state != "failed", "{state}");
        }
    };
    // The runner works on threads of its own: a load that never ends fails the test, and does not hang it.
    let ended = tokio::time::timeout(Duration::from_mins(1), is_live).await;
    runner.abort();
    ended.unwrap();
}

async fn drop_version(pod: &TestDispatcher, namespace: &str, number: u32) {
    let path = format!("/v1/ns/{namespace}/versions/{number}");
    assert_eq!(pod.ask("DELETE", &path, "").await.status, 200);
}

fn dataset(pod: &TestDispatcher, namespace: &str) -> NamespaceId {
    let found = pod.dispatcher.control.namespaces.find(namespace);
    found.unwrap().dataset
}

/// Two dispatchers, of which the second takes version 1 for live, which was dropped; it may have heard that another one
/// is being built.
async fn stale(has_heard: bool) -> (TestDispatcher, TestDispatcher) {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    one.create("x").await;
    other.follow().await;
    let hear = async || {
        if has_heard {
            other.follow().await;
        }
    };
    replace(&one, "x", hear).await;
    drop_version(&one, "x", 1).await;
    assert_ne!(dataset(&one, "x"), dataset(&other, "x"));
    (one, other)
}

#[tokio::test]
async fn a_batch_is_applied_once_whatever_its_shards_have_heard() {
    for has_heard in [true, false] {
        let (one, other) = stale(has_heard).await;
        check_batch(&one, &other).await;
    }
}

async fn check_batch(one: &TestDispatcher, other: &TestDispatcher) {
    other.store.lag(2, dataset(other, "x"), dataset(one, "x"));
    let line = |row| format!("{{\"op\":\"inc\",\"pk\":\"b{row}\",\"by\":1}}");
    let lines: Vec<String> = (0..40).map(line).collect();
    let batch = other
        .ask("POST", "/v1/ns/x/batch/write", &lines.join("\n"))
        .await;
    assert_eq!(batch.status, 200, "{batch:?}");
    for row in 0..40 {
        let got = one.get_row("x", &format!("b{row}")).await;
        assert_eq!(
            (got.status, &got.bytes[..]),
            (200, &b"1"[..]),
            "row {row}: {got:?}"
        );
    }
}

#[tokio::test]
async fn a_removal_of_a_range_goes_on_in_the_live_version_and_counts_all_its_rows() {
    let (one, other) = stale(true).await;
    let dropped = dataset(&other, "x");
    let key = PartitionKey::new("p").unwrap();
    let shard = other.dispatcher.shard_map.locate(dropped, &key);
    let line = |row| format!("{{\"op\":\"put\",\"pk\":\"p\",\"sk\":\"{row:05}\",\"v\":\"v\"}}");
    let rows = 5_000;
    let lines: Vec<String> = (0..rows).map(line).collect();
    let lines = lines.join("\n");
    let batch = one.ask("POST", "/v1/ns/x/batch/write", &lines).await;
    assert_eq!(batch.status, 200, "{batch:?}");
    other.store.lag(shard.0, dropped, dataset(&one, "x"));
    let removed = other.ask("DELETE", "/v1/ns/x/range/p?all=true", "").await;
    assert_eq!((removed.status, &removed.body["rows"]), (200, &json!(rows)));
    let left = one.ask("GET", "/v1/ns/x/range/p", "").await;
    let left = String::from_utf8(left.bytes.to_vec()).unwrap();
    assert!(left.contains("\"rows\":0"), "{left}");
}

#[tokio::test]
async fn a_large_value_is_written_and_read_by_a_dispatcher_that_knows_a_dropped_version() {
    let (one, other) = stale(true).await;
    let value = "0123456789abcde\n".repeat((3 << 20) / 16);
    let put = other.put_row("x", "large", &value).await;
    assert_eq!(put.status, 201, "{put:?}");
    for pod in [&one, &other] {
        let got = pod.get_row("x", "large").await;
        assert!(
            got.status == 200 && got.bytes == value,
            "{}",
            got.bytes.len()
        );
    }
}

#[tokio::test]
async fn a_large_value_for_a_removed_namespace_is_not_cut_into_its_successor() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    one.create("x").await;
    other.follow().await;
    for len in [(1 << 20) + 1, 2 << 20, 3 << 20] {
        assert_eq!(one.remove("x").await.status, 204);
        one.create("x").await;
        // Its first bytes went to the removed namespace.
        let put = other.put_row("x", "large", &"v".repeat(len)).await;
        put.refused(404, "namespace-not-found");
        put.not_applied();
        one.get_row("x", "large")
            .await
            .refused(404, "key-not-found");
        // The other dispatcher knows it now.
        assert_eq!(
            other.put_row("x", "large", &"v".repeat(len)).await.status,
            201
        );
        assert_eq!(one.get_row("x", "large").await.bytes.len(), len);
    }
}
