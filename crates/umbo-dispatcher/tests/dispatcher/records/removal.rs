//! Namespaces that are removed while shards are away, and through dispatchers that do not know it yet.

use std::time::Duration;

use serde_json::json;
use umbo_store::IdRange;

use crate::records::support::{Site, TestDispatcher, path};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_refused_removal_leaves_every_row() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    one.create("x").await;
    for row in 0..60 {
        assert_eq!(one.put_row("x", &format!("k{row}"), "v").await.status, 201);
    }
    // The disk of the home is full.
    one.store.fill(0);
    let refused = one.remove("x").await;
    refused.refused(507, "storage-full");
    refused.not_applied();
    one.store.heal();
    for _ in 0..10 {
        site.clock.advance(6 * SECOND);
        one.follow().await;
        other.follow().await;
    }
    for row in 0..60 {
        for pod in [&one, &other] {
            assert_eq!(pod.get_row("x", &format!("k{row}")).await.status, 200);
        }
    }
}

#[tokio::test]
async fn a_name_is_free_once_every_shard_has_confirmed() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    let id = one.create("x").await;
    assert_eq!(one.put_row("x", "k", "v").await.status, 201);
    one.store.fill(2);
    other.store.fill(2);
    let removing = one.remove("x").await;
    assert_eq!(removing.status, 202, "{removing:?}");
    let expected = json!({"name": "x", "state": "removing", "waiting_for": [2]});
    assert_eq!(removing.body, expected);
    for _ in 0..3 {
        site.clock.advance(2 * SECOND);
        for pod in [&one, &other] {
            pod.follow().await;
            let listed = pod.listed("x").await.unwrap();
            assert_eq!(
                (&listed["state"], &listed["waiting_for"]),
                (&json!("removing"), &json!([2]))
            );
            pod.get_row("x", "k")
                .await
                .refused(404, "namespace-not-found");
            let put = pod.put_row("x", "k", "v").await;
            put.refused(404, "namespace-not-found");
            put.not_applied();
            let detail = pod.ask("PUT", &path("x"), "").await;
            let detail = detail.refused(409, "namespace-being-removed");
            assert!(detail.contains("shards 2"), "{detail}");
        }
    }
    // It may be asked for again, and any dispatcher finishes it.
    assert_eq!(one.remove("x").await.status, 202);
    other.store.heal();
    site.clock.advance(2 * SECOND);
    other.follow().await;
    assert!(other.listed("x").await.is_none());
    other.remove("x").await.refused(404, "namespace-not-found");
    assert_ne!(other.create("x").await, id, "ids are not used again");
    other.get_row("x", "k").await.refused(404, "key-not-found");
    one.follow().await;
    one.get_row("x", "k").await.refused(404, "key-not-found");
}

#[tokio::test]
async fn an_operator_can_do_without_a_shard() {
    let site = Site::new();
    let one = site.pod().await;
    one.create("x").await;
    one.store.fill(1);
    one.store.fill(2);
    assert_eq!(one.remove("x").await.body["waiting_for"], json!([1, 2]));
    let query = |shard: &str| format!("{}?abandon_shard={shard}", path("x"));
    for bad in ["4", "-1", "x", ""] {
        let refused = one.ask("DELETE", &query(bad), "").await;
        refused.refused(400, "invalid-query");
    }
    let first = one.ask("DELETE", &query("1"), "").await;
    assert_eq!(
        (first.status, &first.body["waiting_for"]),
        (202, &json!([2]))
    );
    // The word holds on every dispatcher.
    let other = site.pod().await;
    other.store.fill(1);
    site.clock.advance(2 * SECOND);
    other.follow().await;
    assert!(other.listed("x").await.is_none());
    one.follow().await;
    let second = one.ask("DELETE", &query("2"), "").await;
    second.refused(404, "namespace-not-found");
    one.create("x").await;
}

#[tokio::test]
async fn writes_through_a_dispatcher_that_knows_the_old_namespace_go_to_the_new_one() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    one.create("x").await;
    other.follow().await;
    for round in 0..5 {
        assert_eq!(one.put_row("x", "old", "old").await.status, 201);
        assert_eq!(other.get_row("x", "old").await.status, 200);
        assert_eq!(one.remove("x").await.status, 204);
        let id = one.create("x").await;
        // Nothing has told the other one: a shard does.
        match round {
            0 => assert_eq!(other.put_row("x", "k", "v").await.status, 201),
            1 => {
                let lines = (0..40).map(|row| format!("{{\"pk\":\"b{row}\",\"v\":\"v\"}}"));
                let lines = lines.collect::<Vec<_>>().join("\n");
                let batch = other.ask("POST", "/v1/ns/x/batch/write", &lines).await;
                assert_eq!(batch.status, 200, "{batch:?}");
                for row in 0..40 {
                    let got = one.get_row("x", &format!("b{row}")).await;
                    assert_eq!(got.status, 200, "row {row}: {got:?}");
                }
            }
            2 => {
                let keys = r#"{"keys":[{"pk":"old"},{"pk":"a"}]}"#;
                let got = other.ask("POST", "/v1/ns/x/batch/get", keys).await;
                let text = String::from_utf8(got.bytes.to_vec()).unwrap();
                assert_eq!(text.matches("\"status\":404").count(), 2, "{text}");
            }
            3 => {
                let scan = other.ask("POST", "/v1/ns/x/scan", "").await;
                let text = String::from_utf8(scan.bytes.to_vec()).unwrap();
                assert!(scan.status == 200 && !text.contains("old"), "{text}");
            }
            _ => {
                let range = "/v1/ns/x/range/old?all=true";
                let removed = other.ask("DELETE", range, "").await;
                assert_eq!((removed.status, &removed.body["rows"]), (200, &json!(0)));
            }
        }
        other
            .get_row("x", "old")
            .await
            .refused(404, "key-not-found");
        assert_eq!(other.listed("x").await.unwrap()["id"], id);
        for pod in [&one, &other] {
            let put = other.put_row("x", "k", "v").await;
            assert!([201, 204].contains(&put.status), "{put:?}");
            assert_eq!(pod.get_row("x", "k").await.bytes, "v");
        }
    }
    // Where there is none of its name any more, nothing is applied, and all rows are reclaimed.
    assert_eq!(one.remove("x").await.status, 204);
    let put = other.put_row("x", "k", "v").await;
    put.refused(404, "namespace-not-found");
    put.not_applied();
    let keys = r#"{"keys":[{"pk":"k"}]}"#;
    let got = other.ask("POST", "/v1/ns/x/batch/get", keys).await;
    got.refused(404, "namespace-not-found");
    let records: u64 = umbo_store::StoreReport::status(&*site.store)
        .iter()
        .map(|status| status.rows)
        .sum();
    // The head, the secret, two fences, and for each namespace that ever was the events of its creation and removal.
    assert_eq!(
        records,
        2 + 2 + 6 * 2,
        "no row is left that belongs to none"
    );
}

#[tokio::test]
async fn the_fences_of_namespaces_that_were_removed_are_folded_once_every_shard_has_them() {
    let site = Site::new();
    let (one, other) = (site.pod().await, site.pod().await);
    let remove = async |pod: &TestDispatcher| {
        pod.create("x").await;
        pod.remove("x").await
    };
    let fenced = async || {
        let copy = one.dispatcher.control.records_at_home().await.unwrap();
        let ends = |range: &IdRange| (range.first.0, range.last.0);
        copy.fenced.iter().map(ends).collect::<Vec<_>>()
    };
    // Each dispatcher changes what the other one has handed over.
    for _ in 0..5 {
        assert_eq!(remove(&one).await.status, 204);
        assert_eq!(remove(&other).await.status, 204);
    }
    let folded = fenced().await;
    assert!(folded.len() <= 4 && folded[0].0 == 1, "{folded:?}");
    assert_eq!(folded.last().unwrap().1, 10);
    one.create("stays").await;
    // A shard that does not answer may not have what it was told since.
    one.store.fill(2);
    for number in 0..4 {
        one.create(&format!("y{number}")).await;
        assert_eq!(one.remove(&format!("y{number}")).await.status, 202);
    }
    let unconfirmed = [(12, 12), (13, 13), (14, 14), (15, 15)];
    assert!(fenced().await.ends_with(&unconfirmed));
    one.store.heal();
    site.clock.advance(2 * SECOND);
    one.follow().await;
    assert_eq!(remove(&one).await.status, 204);
    assert_eq!(fenced().await, [(1, 10), (12, 15), (16, 16)]);
    assert_eq!(one.listed("stays").await.unwrap()["id"], 11);
}
