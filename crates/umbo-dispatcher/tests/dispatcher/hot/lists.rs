//! The lists: what they do, how long it lasts, and what is refused.

use std::time::Duration;

use serde_json::json;

use crate::hot::support::{Site, TestDispatcher};

const ROW: &str = "ns/shop/kv/listing:17";
const TERMS: &str = r#"{"reason":"a","ttl":60}"#;
const DATA: &str = "/v1/ns/shop/kv/listing:17";

async fn pod(site: &Site) -> TestDispatcher {
    let pod = site.pod(1).await;
    pod.create("shop").await;
    pod
}

#[tokio::test]
async fn a_blocked_key_is_refused_for_nothing_until_it_is_unblocked() {
    let site = Site::new();
    let pod = pod(&site).await;
    assert_eq!(pod.ask("PUT", DATA, "v").await.status, 201);
    let listed = pod.list("blocked", ROW, r#"{"reason":"crawler"}"#).await;
    assert_eq!(listed.status, 201);
    let expected = json!({
        "id": listed.body["id"], "hash": listed.body["hash"], "namespace": "shop", "kind": "row",
        "pk": "listing:17", "sk": "", "standing": "blocked", "by": "anonymous",
        "at": 1_700_000_000_000_u64, "reason": "crawler",
    });
    assert_eq!(listed.body, expected);
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let answer = pod.ask(method, DATA, "").await;
        assert_eq!((answer.status, answer.header("umbo-ru")), (429, "0"));
        if method != "HEAD" {
            answer.refused(429, "abnormal-usage-detected");
            assert!(!String::from_utf8_lossy(&answer.bytes).contains("crawler"));
        }
    }
    // Another row of the partition, and the row under another sort key, are not meant.
    assert_eq!(pod.get("/v1/ns/shop/kv/listing:18").await.status, 404);
    assert_eq!(pod.get(&format!("{DATA}/a")).await.status, 404);

    assert_eq!(pod.unlist("blocked", ROW).await.status, 204);
    assert_eq!(&pod.get(DATA).await.bytes[..], b"v");
    let gone = pod.unlist("blocked", ROW).await;
    assert_eq!(
        gone.refused(404, "hot-key-not-listed"),
        "this key is not blocked"
    );
}

#[tokio::test]
async fn a_pinned_key_is_kept_however_seldom_it_is_read() {
    let site = Site::new();
    let pod = pod(&site).await;
    assert_eq!(pod.ask("PUT", DATA, "v").await.status, 201);
    site.pass(Duration::from_secs(1), &[&pod]);
    for _ in 0..2 {
        let cold = pod.get(DATA).await;
        assert_eq!(cold.header("cache-status"), "umbo; fwd=miss");
        site.pass(Duration::from_secs(1), &[&pod]);
    }
    assert_eq!(pod.list("pinned", ROW, "").await.status, 201);
    assert_eq!(pod.get(DATA).await.header("cache-status"), "umbo; fwd=miss");
    site.pass(Duration::from_secs(1), &[&pod]);
    let hit = pod.get(DATA).await;
    assert!(
        hit.header("cache-status").starts_with("umbo; hit; ttl="),
        "{hit:?}"
    );
    assert_eq!((hit.header("age"), hit.header("umbo-ru")), ("1", "0.1"));

    assert_eq!(pod.unlist("pinned", ROW).await.status, 204);
    let gone = pod.unlist("pinned", ROW).await;
    gone.refused(404, "hot-key-not-listed");
}

#[tokio::test]
async fn a_key_that_is_pinned_and_blocked_is_blocked() {
    let site = Site::new();
    let pod = pod(&site).await;
    assert_eq!(
        pod.list("blocked", ROW, "").await.body["standing"],
        "blocked"
    );
    assert_eq!(
        pod.list("pinned", ROW, "").await.body["standing"],
        "blocked"
    );
    pod.get(DATA).await.refused(429, "abnormal-usage-detected");
    let keys = pod.keys().await;
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(keys[0]["standing"], "blocked");
    assert!(keys[0]["pinned"].is_object() && keys[0]["blocked"].is_object());
    pod.unlist("blocked", ROW).await;
    assert_eq!(pod.get(DATA).await.status, 404);
    assert_eq!(pod.keys().await[0]["standing"], "pinned");
}

#[tokio::test]
async fn a_listed_key_stays_as_it_stands_unless_a_condition_says_otherwise() {
    let site = Site::new();
    let pod = pod(&site).await;
    let first = pod.list("blocked", ROW, TERMS).await;
    assert_eq!(first.status, 201);
    assert_eq!(first.header("etag"), "\"1700000000000\"");
    site.clock.advance(Duration::from_secs(1));
    // A repetition changes nothing: its time does not begin anew.
    let same = pod.list("blocked", ROW, TERMS).await;
    assert_eq!((same.status, &same.body), (200, &first.body));
    for other in ["", r#"{"reason":"a"}"#, r#"{"reason":"a","ttl":61}"#] {
        let detail = pod.list("blocked", ROW, other).await;
        let detail = detail.refused(409, "hot-key-listed").clone();
        assert!(detail.contains("If-Match"), "{detail}");
    }
    assert_eq!(
        pod.keys().await[0]["blocked"]["until"],
        1_700_000_060_000_u64
    );
    // The id names the same key.
    let id = format!("id/{}", first.body["id"].as_str().unwrap());
    pod.list("blocked", &id, "")
        .await
        .refused(409, "hot-key-listed");
}

#[tokio::test]
async fn a_condition_decides_whether_a_listed_key_is_replaced() {
    let site = Site::new();
    let pod = pod(&site).await;
    let path = format!("/admin/v1/hot/blocked/{ROW}");
    let put = async |field, tag: &str, body: &str| {
        let fields = [(field, tag)];
        pod.ask_with("PUT", &path, &fields, body.to_owned()).await
    };
    let none = put("if-match", "*", TERMS).await;
    none.refused(412, "precondition-failed");
    let first = put("if-none-match", "*", TERMS).await;
    assert_eq!(first.status, 201);
    let again = put("if-none-match", "*", TERMS).await;
    again.refused(412, "precondition-failed");
    // Of one moment, yet of another version.
    let next = put("if-match", first.header("etag"), "").await;
    assert_eq!(
        (next.status, next.header("etag")),
        (200, "\"1700000000001\"")
    );
    assert_eq!(next.body["id"], first.body["id"]);
    assert!(next.body.get("until").is_none() && next.body.get("reason").is_none());
    let late = put("if-match", first.header("etag"), TERMS).await;
    late.refused(412, "precondition-failed");
    assert_eq!(put("if-match", "*", TERMS).await.status, 200);
    assert_eq!(pod.keys().await[0]["blocked"]["reason"], "a");
    // The id names the same key.
    let id = format!("id/{}", next.body["id"].as_str().unwrap());
    assert_eq!(pod.unlist("blocked", &id).await.status, 204);
    assert_eq!(pod.get(DATA).await.status, 404);
}

#[tokio::test]
async fn what_runs_out_ends_by_itself_and_makes_room() {
    let site = Site::new();
    let pod = pod(&site).await;
    let listed = pod.list("blocked", ROW, r#"{"ttl":60}"#).await;
    assert_eq!(listed.body["until"], 1_700_000_060_000_u64);
    site.pass(Duration::from_millis(59_999), &[&pod]);
    pod.get(DATA).await.refused(429, "abnormal-usage-detected");
    site.pass(Duration::from_millis(1), &[&pod]);
    assert_eq!(pod.get(DATA).await.status, 404);
    assert!(pod.keys().await.is_empty());
    let gone = pod.unlist("blocked", ROW).await;
    gone.refused(404, "hot-key-not-listed");
    // A pod that starts now does not block it either.
    assert_eq!(site.pod(2).await.get(DATA).await.status, 404);
}

#[tokio::test]
async fn other_pods_follow_at_their_refresh_and_a_restart_keeps_all() {
    let site = Site::new();
    let one = pod(&site).await;
    let other = site.pod(2).await;
    let id = one.list("blocked", ROW, "").await.body["id"].clone();
    one.list("pinned", "ns/shop/kv/a/b", "").await;
    assert_eq!(other.get(DATA).await.status, 404);
    other.refresh().await;
    other
        .get(DATA)
        .await
        .refused(429, "abnormal-usage-detected");
    // Ids and hashes are the same on all pods.
    let hashes = |keys: Vec<serde_json::Value>| {
        let mut hashes: Vec<_> = keys.iter().map(|key| key["hash"].to_string()).collect();
        hashes.sort();
        hashes
    };
    assert_eq!(hashes(one.keys().await), hashes(other.keys().await));
    let restarted = site.pod(3).await;
    restarted
        .get(DATA)
        .await
        .refused(429, "abnormal-usage-detected");
    assert_eq!(hashes(restarted.keys().await), hashes(one.keys().await));

    // A change is made of what is stored, whatever this pod has seen of it.
    let id = format!("id/{}", id.as_str().unwrap());
    assert_eq!(restarted.unlist("blocked", &id).await.status, 204);
    let gone = one.unlist("blocked", ROW).await;
    gone.refused(404, "hot-key-not-listed");
    for pod in [&one, &other] {
        pod.refresh().await;
        assert_eq!(pod.get(DATA).await.status, 404);
        assert_eq!(pod.keys().await.len(), 1);
    }
}

#[tokio::test]
async fn each_list_has_its_bound() {
    let site = Site::new();
    let pod = pod(&site).await;
    for number in 0..256 {
        let key = format!("ns/shop/kv/key-{number}");
        assert_eq!(pod.list("pinned", &key, "").await.status, 201);
    }
    let full = pod.list("pinned", ROW, "").await;
    let detail = full.refused(409, "hot-list-full");
    assert_eq!(
        detail,
        "256 keys are pinned, the maximum; take one off the list first"
    );
    // One that is listed is no more of them, and the other list is another one.
    assert_eq!(pod.list("pinned", "ns/shop/kv/key-7", "").await.status, 200);
    assert_eq!(pod.list("blocked", ROW, "").await.status, 201);
    assert_eq!(pod.unlist("pinned", "ns/shop/kv/key-0").await.status, 204);
    assert_eq!(pod.list("pinned", ROW, "").await.status, 201);
    assert_eq!(pod.keys().await.len(), 256);
}

#[tokio::test]
async fn the_longest_keys_fit_as_far_as_a_record_holds_them() {
    let site = Site::new();
    let pod = pod(&site).await;
    let sort = "s".repeat(2_048);
    let mut statuses = Vec::new();
    for number in 0..256 {
        let key = format!("ns/shop/kv/{number:0>1024}/{sort}");
        let reason = format!("{{\"reason\":\"{}\"}}", "r".repeat(256));
        statuses.push(pod.list("blocked", &key, &reason).await.status);
    }
    let taken = statuses.iter().filter(|status| **status == 201).count();
    assert!(taken >= 200, "{taken}");
    assert!(statuses[taken..].iter().all(|status| *status == 409));
    let full = pod.list("blocked", ROW, "").await;
    // A short one may still find room.
    assert!([201, 409].contains(&full.status));
    assert!(pod.keys().await.len() >= taken);
}

#[tokio::test]
async fn the_keys_of_a_removed_namespace_are_forgotten() {
    let site = Site::new();
    let pod = pod(&site).await;
    let listed = pod.list("blocked", ROW, "").await;
    let id = format!("id/{}", listed.body["id"].as_str().unwrap());
    let removed = pod.ask("DELETE", "/admin/v1/namespaces/shop", "").await;
    assert_eq!(removed.status, 204);
    assert!(pod.keys().await.is_empty());
    let gone = pod.unlist("blocked", &id).await;
    gone.refused(404, "namespace-not-found");
    // A namespace of the same name is another one.
    pod.create("shop").await;
    assert_eq!(pod.get(DATA).await.status, 404);
    let gone = pod.unlist("blocked", ROW).await;
    gone.refused(404, "hot-key-not-listed");
}

#[tokio::test]
async fn bytes_are_keys_and_namespaces_do_not_mix() {
    let site = Site::new();
    let pod = pod(&site).await;
    pod.create("other").await;
    let listed = pod.list("blocked", "ns/shop/kv/%00%FF/%2Fa", "").await;
    assert_eq!(listed.status, 201, "{listed:?}");
    assert_eq!(
        (&listed.body["pk64"], &listed.body["sk"]),
        (&json!("AP8"), &json!("/a"))
    );
    let path = |namespace: &str| format!("/v1/ns/{namespace}/kv/%00%FF/%2Fa");
    pod.get(&path("shop"))
        .await
        .refused(429, "abnormal-usage-detected");
    pod.get("/v1/ns/shop/kv/AP8/L2E?enc=b64u")
        .await
        .refused(429, "abnormal-usage-detected");
    assert_eq!(pod.get(&path("other")).await.status, 404);
    let removed = pod.unlist("blocked", "ns/shop/kv/AP8/L2E?enc=b64u").await;
    assert_eq!(removed.status, 204);
}

#[tokio::test]
async fn what_is_malformed_is_refused_by_name() {
    let site = Site::new();
    let pod = pod(&site).await;
    let long = format!("ns/shop/kv/{}", "k".repeat(1_025));
    for (key, status, code) in [
        ("ns/nowhere/kv/a", 404, "namespace-not-found"),
        ("ns/No/kv/a", 400, "invalid-key"),
        ("ns/shop/kv/", 400, "invalid-key"),
        ("ns/shop/kv/a%2", 400, "invalid-key"),
        ("ns/shop/kv/a?enc=hex", 400, "invalid-query"),
        ("ns/shop/kv/a?limit=1", 400, "invalid-query"),
        (&*long, 413, "key-too-large"),
        ("id/nonsense", 400, "invalid-key"),
        ("id/AQAAAAABAAFh?enc=b64u", 400, "invalid-query"),
        // Umbo's own rows, by an id that was made up.
        ("id/AQAAAAAAAAFh", 404, "namespace-not-found"),
        ("ns/shop", 404, "route-not-found"),
        ("key/a", 404, "route-not-found"),
    ] {
        pod.list("blocked", key, "").await.refused(status, code);
        pod.unlist("blocked", key).await.refused(status, code);
    }
    pod.list("hated", ROW, "")
        .await
        .refused(404, "route-not-found");
    for body in [
        r#"{"ttl":0}"#,
        r#"{"ttl":315360001}"#,
        r#"{"ttl":"soon"}"#,
        r#"{"reson":"a"}"#,
        r#"{"reason":"a\nb"}"#,
        "[]",
        &format!("{{\"reason\":\"{}\"}}", "r".repeat(257)),
    ] {
        let refused = pod.list("blocked", ROW, body).await;
        refused.refused(400, "invalid-body");
    }
    assert!(pod.keys().await.is_empty());
    pod.ask("POST", &format!("/admin/v1/hot/blocked/{ROW}"), "")
        .await
        .refused(405, "method-not-allowed");
}
