//! What a client can ask of costs beforehand and afterwards: explain and usage.

use serde_json::json;
use umbo_api::ErrorCode;

use crate::cost::support::{SHARDS, TestDispatcher, by_caller};

const EXPLAIN: &str = "/v1/ns/listings/explain";
const USAGE: &str = "/v1/ns/listings/usage";

#[tokio::test]
async fn a_put_is_explained_to_the_micro_unit() {
    let pod = TestDispatcher::open(&[by_caller("small", "100", "200")]).await;
    let body = json!({"operation": "put", "pk": "p", "sk": "s", "bytes": 8_191});
    let reply = pod.ask("POST", EXPLAIN, &[], body.to_string()).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let answer = reply.json();
    // Its row is learned from the first one.
    assert_eq!(answer["estimate_ru"], 8.05);
    assert_eq!(
        answer["breakdown"],
        json!({
            "base": 6.0, "rows": 0.05, "read_bytes": 0.0, "write_bytes": 2.0, "latency": 0.0,
            "penalty": 0.0,
        })
    );
    assert_eq!(answer["shards"][0]["share"], 1.0);
    let small = answer["policies"]
        .as_array()
        .unwrap()
        .iter()
        .find(|policy| policy["name"] == "small")
        .unwrap();
    assert_eq!(
        (
            &small["rate"],
            &small["burst"],
            &small["balance"],
            &small["price"],
            &small["admits"]
        ),
        (
            &json!(100),
            &json!(200),
            &json!(200.0),
            &json!(8.05),
            &json!(true)
        )
    );
    let put = pod
        .ask("PUT", "/v1/ns/listings/kv/p/s", &[], vec![0; 8_191])
        .await;
    assert_eq!(put.ru(), "8.05");
    assert_eq!(pod.quota.spent("small"), 8_050_000);
}

/// A touch is admitted as a put of unknown length.
#[tokio::test]
async fn a_touch_is_explained_as_what_it_is_admitted_with() {
    let pod = TestDispatcher::open(&[by_caller("small", "100", "200")]).await;
    let explain = async |body: serde_json::Value| {
        let reply = pod.ask("POST", EXPLAIN, &[], body.to_string()).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    };
    let touch = explain(json!({"operation": "touch", "pk": "p", "sk": "s"})).await;
    assert_eq!(touch["breakdown"]["base"], 6.0);
    assert_eq!(touch["shards"][0]["share"], 1.0);
    let put = explain(json!({"operation": "put", "pk": "p", "sk": "s", "bytes": 8_191})).await;
    assert!(touch["estimate_ru"].as_f64() < put["estimate_ru"].as_f64());
}

#[tokio::test]
async fn an_explanation_says_when_a_request_would_be_rejected() {
    let pod = TestDispatcher::open(&[by_caller("tiny", "1", "1")]).await;
    let get = "/v1/ns/listings/kv/p";
    while pod.ask("GET", get, &[], "").await.status != 429 {}
    let body = json!({"operation": "get", "pk": "p"}).to_string();
    let answer = pod.ask("POST", EXPLAIN, &[], body).await.json();
    let tiny = &answer["policies"]
        .as_array()
        .unwrap()
        .iter()
        .find(|policy| policy["name"] == "tiny")
        .unwrap()
        .clone();
    assert_eq!(tiny["admits"], false);
    assert!(tiny["wait_ms"].as_u64().unwrap() >= 50, "{tiny}");
    assert!(tiny["balance"].as_f64().unwrap() <= 0.0, "{tiny}");
}

#[tokio::test]
async fn shards_are_named_with_their_shares() {
    let pod = TestDispatcher::open(&[]).await;
    let answer = |body: serde_json::Value| {
        let reply = pod.ask("POST", EXPLAIN, &[], body.to_string());
        async move { reply.await.json() }
    };
    let scan = answer(json!({"operation": "scan", "limit": 10})).await;
    assert_eq!(
        scan["shards"].as_array().unwrap().len(),
        usize::from(SHARDS)
    );
    let keys: Vec<_> = (0..40).map(|at| json!({"pk": format!("p{at}")})).collect();
    let many = answer(json!({"operation": "multi-get", "keys": keys})).await;
    let shares = many["shards"].as_array().unwrap().iter();
    let shares: f64 = shares.map(|shard| shard["share"].as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    let none = answer(json!({"operation": "batch-write", "bytes": 4_096})).await;
    assert_eq!(none["shards"], json!([]));
}

#[tokio::test]
async fn what_cannot_be_explained_is_refused() {
    let pod = TestDispatcher::open(&[]).await;
    for (body, code) in [
        ("{}", "invalid-body"),
        ("{\"operation\":\"admin\"}", "invalid-query"),
        ("{\"operation\":\"get\"}", "invalid-body"),
        ("{\"operation\":\"get\",\"pk\":\"\"}", "invalid-key"),
        ("{\"operation\":\"scan\",\"max_bytes\":0}", "invalid-query"),
        ("{\"operation\":\"scan\",\"more\":0}", "invalid-body"),
    ] {
        let reply = pod.ask("POST", EXPLAIN, &[], body).await;
        let problem = reply.problem();
        assert_eq!(
            problem.code().map(ErrorCode::as_str),
            Some(code),
            "{body}: {problem:?}"
        );
    }
}

#[tokio::test]
async fn usage_shows_ones_own_rows_and_an_administrator_all() {
    let pod = TestDispatcher::open(&[]).await;
    let operator = pod.token("", "operator", &["admin:*"]).await;
    let reader = pod.token(&operator, "reader", &["read:listings"]).await;
    let writer = pod
        .token(&operator, "writer", &["read,write:listings"])
        .await;
    let deleter = pod.token(&operator, "deleter", &["write:listings"]).await;
    let target = "/v1/ns/listings/kv/p";
    let put = pod
        .ask("PUT", target, &[("authorization", &writer)], "four")
        .await;
    let get = pod
        .ask("GET", target, &[("authorization", &reader)], "")
        .await;
    let own = pod
        .ask("GET", USAGE, &[("authorization", &reader)], "")
        .await;
    assert_eq!(
        own.json(),
        json!({
            "namespace": "listings",
            "ru": get.units().as_f64(),
            "penalty": 0.0,
            "rows": [{
                "caller": "reader", "operation": "get", "requests": 1, "rejected": 0,
                "ru": get.units().as_f64(), "penalty": 0.0, "rows": 1, "read_bytes": 4, "write_bytes": 0
            }],
            "shards": []
        })
    );
    let denied = pod
        .ask("GET", USAGE, &[("authorization", &deleter)], "")
        .await;
    assert_eq!(denied.status, 403);
    let both = pod.token(&operator, "both", &["read,admin:listings"]).await;
    let all = pod
        .ask("GET", USAGE, &[("authorization", &both)], "")
        .await
        .json();
    let callers: Vec<_> = all["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["caller"])
        .collect();
    assert_eq!(callers, ["writer", "reader"]);
    let sum = put.units().saturating_add(get.units());
    assert_eq!(all["ru"], sum.as_f64());
    assert_eq!(all["shards"][0]["requests"], 2);
    assert_eq!(all["shards"][0]["ru"], sum.as_f64());
}
