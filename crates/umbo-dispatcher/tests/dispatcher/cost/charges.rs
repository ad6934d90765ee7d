//! What each operation is charged, by hand from the cost model.

use std::time::Duration;

use umbo_dispatcher::overload::OverloadSettings;
use umbo_store::{Outcome, StoreError};
use umbo_types::{RequestUnits, ShardId};

use crate::cost::support::{TestDispatcher, by_caller};

const KV: &str = "/v1/ns/listings/kv/";

#[tokio::test]
async fn point_operations_cost_what_the_model_says() {
    let pod = TestDispatcher::open(&[]).await;
    // Half a unit for five milliseconds.
    pod.store.set_time(Duration::from_millis(5));
    let value = vec![b'v'; 8_191];
    let target = &format!("{KV}p/s");
    let put = pod.ask("PUT", target, &[], value.clone()).await;
    // 6 + 0.05 + 8,192 bytes of sort key and value.
    assert_eq!((put.status, put.ru()), (201, "8.55"));
    let tag = put.header("etag").unwrap().to_owned();
    let get = pod.ask("GET", target, &[], "").await;
    assert_eq!((get.status, get.ru()), (200, "3.55"));
    let head = pod.ask("HEAD", target, &[], "").await;
    assert_eq!((head.status, head.ru()), (200, "3.55"));
    let known = pod.ask("GET", target, &[("if-none-match", &tag)], "").await;
    assert_eq!((known.status, known.ru()), (304, "3.55"));
    let other = pod.ask("GET", target, &[("if-match", "\"1\"")], "").await;
    assert_eq!((other.status, other.ru()), (412, "3.55"));
    let absent = pod.ask("GET", &format!("{KV}absent"), &[], "").await;
    assert_eq!((absent.status, absent.ru()), (404, "1.55"));
    let false_condition = pod.ask("PUT", target, &[("if-none-match", "*")], value);
    let false_condition = false_condition.await;
    assert_eq!(
        (false_condition.status, false_condition.ru()),
        (412, "8.55")
    );
    let delete = pod.ask("DELETE", target, &[], "").await;
    assert_eq!((delete.status, delete.ru()), (204, "6.55"));
}

#[tokio::test]
async fn a_slow_read_among_fast_ones_pays_for_its_time_also_where_shards_are_watched() {
    for overload in [None, Some(OverloadSettings::default())] {
        let pod = TestDispatcher::open_with(&[], overload).await;
        let target = &format!("{KV}p");
        pod.store.set_time(Duration::from_micros(10));
        for _ in 0..300 {
            let get = pod.ask("GET", target, &[], "").await;
            assert_eq!((get.status, get.ru()), (404, "1.051"));
        }
        pod.store.set_time(Duration::from_millis(10));
        let get = pod.ask("GET", target, &[], "").await;
        assert_eq!((get.status, get.ru()), (404, "2.05"));
    }
}

#[tokio::test]
async fn operations_on_many_rows_cost_what_the_model_says() {
    let pod = TestDispatcher::open(&[]).await;
    let line = |pk: &str, sk: &str| {
        let value = "v".repeat(1_024 - pk.len() - sk.len());
        format!("{{\"pk\":\"{pk}\",\"sk\":\"{sk}\",\"v\":\"{value}\"}}\n")
    };
    let lines = [
        line("p", "a"),
        line("p", "b"),
        line("p", "c"),
        line("q", "a"),
    ]
    .concat();
    let written = pod
        .ask("POST", "/v1/ns/listings/batch/write", &[], lines)
        .await;
    // 6 + 4 × 0.05 + 4 KiB with partition keys.
    assert_eq!((written.status, written.ru()), (200, "7.2"));
    assert_eq!(written.last_line()["end"]["ru"], 7.2);

    let range = pod.ask("GET", "/v1/ns/listings/range/p", &[], "").await;
    // 1 + 3 × 0.05 + 3 × 1,023 bytes of sort keys and values.
    assert_eq!((range.status, range.ru()), (200, "1.899268"));
    assert_eq!(range.last_line()["end"]["bytes"], 3_069);
    assert_eq!(range.last_line()["end"]["ru"], 1.899_268);

    let keys =
        "{\"keys\":[{\"pk\":\"p\",\"sk\":\"a\"},{\"pk\":\"q\",\"sk\":\"a\"},{\"pk\":\"r\"}]}";
    let got = pod
        .ask("POST", "/v1/ns/listings/batch/get", &[], keys)
        .await;
    // 1 + 3 × 0.05 + 2 KiB with partition keys; a row that is absent was looked up, too.
    assert_eq!((got.status, got.ru()), (200, "1.65"));
    assert_eq!(got.last_line()["end"]["ru"], 1.65);

    // Keys alone cost what the rows do: a value is read with its key.
    for target in [
        "range/p?keys_only=true",
        "range/p?keys_only=true&max_bytes=1",
    ] {
        let mut target = format!("/v1/ns/listings/{target}");
        let mut units = 0;
        loop {
            let keys = pod.ask("GET", &target, &[], "").await;
            let end = &keys.last_line()["end"];
            units += keys.units().as_micros() - 1_000_000;
            let Some(cursor) = end["cursor"].as_str() else {
                break;
            };
            assert_eq!(end["bytes"], 1);
            target = format!("/v1/ns/listings/range/p?keys_only=true&max_bytes=1&cursor={cursor}");
        }
        assert!((899_268..899_271).contains(&units), "{units}");
    }

    let scan = pod.ask("POST", "/v1/ns/listings/scan", &[], "").await;
    assert_eq!((scan.status, scan.ru()), (200, "2.2"));
    assert_eq!(scan.last_line()["end"]["bytes"], 4_096);
    let array = pod.ask(
        "POST",
        "/v1/ns/listings/scan",
        &[("accept", "application/json")],
        "",
    );
    assert_eq!(array.await.ru(), "2.2");

    let count = pod
        .ask("DELETE", "/v1/ns/listings/range/p?all&dry_run", &[], "")
        .await;
    assert_eq!(
        (count.json()["rows"].as_u64(), count.ru()),
        (Some(3), "6.899268")
    );
    let removed = pod
        .ask("DELETE", "/v1/ns/listings/range/p?all", &[], "")
        .await;
    assert_eq!(
        (removed.json()["rows"].as_u64(), removed.ru()),
        (Some(3), "6.15")
    );
    let nothing = pod
        .ask("DELETE", "/v1/ns/listings/range/p?start=b&end=a", &[], "")
        .await;
    assert_eq!((nothing.status, nothing.ru()), (200, "0"));
}

#[tokio::test]
async fn rows_of_a_batch_that_are_malformed_cost_nothing() {
    let pod = TestDispatcher::open(&[]).await;
    let lines = "{\"pk\":\"p\",\"v\":\"\"}\n{}\n{\"pk\":\"q\",\"v\":\"\",\"if_match\":\"*\"}\n";
    let written = pod
        .ask("POST", "/v1/ns/listings/batch/write", &[], lines)
        .await;
    // Two rows were tried, with two bytes of partition keys.
    assert_eq!((written.status, written.ru()), (207, "6.100489"));
    let written = pod
        .ask("POST", "/v1/ns/listings/batch/write", &[], "{}\n")
        .await;
    assert_eq!((written.status, written.ru()), (207, "0"));
    assert_eq!(written.last_line()["end"]["ru"], 0);
}

#[tokio::test]
async fn what_touches_no_rows_costs_nothing() {
    let pod = TestDispatcher::open(&[]).await;
    for (method, target, body) in [
        ("GET", "/healthz", ""),
        ("GET", "/nothing", ""),
        ("GET", "/admin/v1/namespaces", ""),
        ("GET", "/admin/v1/tokens/none", ""),
        ("PATCH", "/v1/ns/listings/kv/p", ""),
        ("GET", "/v1/ns/absent/kv/p", ""),
        ("GET", "/v1/ns/listings/kv/%4", ""),
        ("GET", "/v1/ns/listings/range/p?limit=0", ""),
        ("POST", "/v1/ns/listings/batch/get", "[]"),
        ("GET", "/v1/ns/listings/usage", ""),
        (
            "POST",
            "/v1/ns/listings/explain",
            "{\"operation\":\"scan\"}",
        ),
    ] {
        let reply = pod.ask(method, target, &[], body).await;
        assert_eq!(reply.ru(), "0", "{method} {target} {}", reply.status);
    }
    assert_eq!((pod.store.calls(), pod.ledger().as_micros()), (0, 0));
}

#[tokio::test]
async fn the_end_line_of_a_long_page_says_what_the_head_could_not_know() {
    let pod = TestDispatcher::open(&[]).await;
    for at in 0..8 {
        let target = format!("{KV}p/{at}");
        let put = pod.ask("PUT", &target, &[], vec![b'v'; 131_071]).await;
        assert_eq!(put.ru(), "38.05");
    }
    let before = pod.ledger();
    pod.store.set_time(Duration::from_millis(1));
    let range = pod.ask("GET", "/v1/ns/listings/range/p", &[], "").await;
    let end = &range.last_line()["end"];
    // Two rows a chunk: four calls of the store, and a fifth where it cannot know that it was all.
    let calls = 4 + u64::from(end["ru"] != 257.8);
    let exact = 1_000_000 + 8 * 50_000 + 256_000_000 + calls * 100_000;
    assert_eq!(end["ru"], RequestUnits::from_micros(exact).as_f64());
    assert!(range.units().as_micros() < exact, "{}", range.ru());
    let spent = pod.ledger().saturating_sub(before);
    assert_eq!(spent.as_micros(), exact);
}

#[tokio::test]
async fn a_stream_that_breaks_off_says_what_it_cost() {
    let pod = TestDispatcher::open(&[]).await;
    for at in 0..4 {
        let target = format!("{KV}p/{at}");
        pod.ask("PUT", &target, &[], vec![b'v'; 262_143]).await;
    }
    let before = pod.ledger();
    // The store is gone by the time of the second chunk, of which there is no waiting here.
    let later = StoreError::Unavailable {
        shard: ShardId(0),
        reason: "gone".to_owned(),
        outcome: Outcome::NotApplied,
    };
    let then = || pod.store.set_error(Some(later));
    let reply = pod.ask_and_then("/v1/ns/listings/range/p", then).await;
    assert!(reply.is_cut);
    let line = reply.last_line();
    assert_eq!(line["error"]["type"], "/v1/errors/shard-unavailable");
    let spent = pod.ledger().saturating_sub(before);
    assert_eq!(line["ru"], spent.as_f64());
    // One row was read.
    assert!(spent.as_micros() >= 65_050_000, "{spent}");
}

#[tokio::test]
async fn what_the_store_refuses_to_begin_is_not_charged() {
    let pod = TestDispatcher::open(&[by_caller("p", "1000", "1000")]).await;
    pod.store
        .set_error(Some(StoreError::QueueFull { shard: ShardId(0) }));
    let target = &format!("{KV}p");
    let put = pod.ask("PUT", target, &[], "v").await;
    assert_eq!((put.status, put.ru()), (503, "0"));
    let lines = "{\"pk\":\"p\",\"v\":\"\"}\n";
    let batch = pod
        .ask("POST", "/v1/ns/listings/batch/write", &[], lines)
        .await;
    assert_eq!((batch.status, batch.ru()), (207, "0"));
    assert_eq!(pod.quota.spent("p"), 0);
    // A disk that failed did work.
    pod.store.set_error(Some(StoreError::Io {
        shard: ShardId(0),
        reason: "broken".to_owned(),
        outcome: Outcome::NotApplied,
    }));
    let get = pod.ask("GET", target, &[], "").await;
    assert_eq!(get.status, 503);
    assert!(get.units().as_micros() >= 1_000_000, "{}", get.ru());
    assert_eq!(
        pod.quota.spent("p").cast_unsigned(),
        get.units().as_micros()
    );
}

#[tokio::test]
async fn a_deadline_that_passes_in_the_store_costs_the_estimate() {
    let pod = TestDispatcher::open(&[]).await;
    let target = &format!("{KV}p");
    let put = pod.ask("PUT", target, &[], "four").await;
    assert_eq!(put.ru(), "6.050977");
    pod.store.set_hangs(true);
    let late = pod
        .ask("PUT", target, &[("umbo-timeout-ms", "1")], "four")
        .await;
    assert_eq!((late.status, late.ru()), (504, "6.050977"));
    pod.store.set_hangs(false);
    assert_eq!(pod.ledger().to_string(), "12.101954");
}
