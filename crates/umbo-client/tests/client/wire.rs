//! What the client sends and how it reads answers, against a small server that answers by script.

mod doubt;
mod loads;
mod script;

use std::time::Duration;

use script::{header, lines, ok, refusal, serve, with};
use umbo_api::batch::KeyFields;
use umbo_api::{ErrorCode, Outcome};
use umbo_client::{
    BatchOptions, Client, Condition, DeleteSelection, Error, Options, PutOptions, RangeOptions,
    RetryPolicy, ScanOptions,
};

#[tokio::test]
async fn a_row_comes_back_with_all_that_was_stored() {
    let headers = [
        ("etag", "\"17\""),
        ("content-type", "text/x"),
        ("content-encoding", "br"),
        ("umbo-expires-at", "99"),
    ];
    let (client, script) = serve([with(200, &headers, "value")]).await;
    let value = client.get("ns", b"a/b", b"").await.unwrap().unwrap();
    assert_eq!(
        (&*value.bytes, value.len, value.version),
        (&b"value"[..], 5, 17)
    );
    assert_eq!(value.content_type.as_deref(), Some("text/x"));
    assert_eq!(value.content_encoding.as_deref(), Some("br"));
    assert_eq!(value.expires_at, Some(99));
    assert_eq!(lines(&script), ["GET /v1/ns/ns/kv/YS9i?enc=b64u"]);
    assert_eq!(
        header(&script, 0, "authorization").unwrap(),
        "Bearer umbo_a_b"
    );
    assert_eq!(
        header(&script, 0, "umbo-timeout-ms").unwrap().len(),
        5,
        "30,000 or just less"
    );
}

#[tokio::test]
async fn an_absent_row_is_none_and_an_absent_namespace_an_error() {
    let answers = [ErrorCode::KeyNotFound, ErrorCode::NamespaceNotFound];
    let (client, _) = serve(answers.map(|code| refusal(code, None))).await;
    assert_eq!(client.get("ns", b"a", b"").await.unwrap(), None);
    let error = client.get("ns", b"a", b"").await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::NamespaceNotFound));
    assert_eq!(error.problem().unwrap().request_id, "r1");
}

#[tokio::test]
async fn a_head_has_the_length_and_no_bytes() {
    let headers = [("etag", "\"3\""), ("content-length", "1000")];
    let (client, script) =
        serve([with(200, &headers, vec![b'x'; 1_000]), with(404, &[], "")]).await;
    let value = client.head("ns", b"a", b"b.c").await.unwrap().unwrap();
    assert_eq!((value.len, value.bytes.len(), value.version), (1_000, 0, 3));
    assert_eq!(client.head("ns", b"a", b"").await.unwrap(), None);
    assert_eq!(lines(&script)[0], "HEAD /v1/ns/ns/kv/a/b.c");
}

#[tokio::test]
async fn a_put_says_all_it_was_told() {
    let etag = [("etag", "\"8\"")];
    let (client, script) = serve([with(201, &etag, ""), with(204, &etag, "")]).await;
    let options = PutOptions {
        ttl: Some(Duration::from_millis(1_500)),
        content_type: Some("a/b".to_owned()),
        condition: Condition::Version(7),
        durability: Some(umbo_api::admin::DurabilitySetting::Async),
        ..PutOptions::default()
    };
    let written = client.put("ns", b"a", b"", "v", &options).await.unwrap();
    assert!(written.is_new && written.version == 8);
    for (name, value) in [
        ("umbo-ttl", "2"),
        ("content-type", "a/b"),
        ("if-match", "\"7\""),
        ("umbo-durability", "async"),
    ] {
        assert_eq!(header(&script, 0, name).as_deref(), Some(value), "{name}");
    }
    let written = client
        .put("ns", b"a", b"", "v", &PutOptions::default())
        .await
        .unwrap();
    assert!(!written.is_new);
    assert_eq!(header(&script, 1, "if-match"), None);
    assert_eq!(header(&script, 1, "content-type"), None);
}

#[tokio::test]
async fn reads_and_writes_with_a_key_are_repeated_whatever_became_of_the_first() {
    let unavailable = || refusal(ErrorCode::ShardUnavailable, Some(Outcome::Unknown));
    let shed = || refusal(ErrorCode::WriteQueueFull, Some(Outcome::NotApplied));
    let etag = [("etag", "\"1\"")];
    let (client, script) = serve([
        unavailable(),
        unavailable(),
        with(200, &etag, ""),
        shed(),
        with(201, &etag, ""),
        unavailable(),
        with(201, &etag, ""),
        unavailable(),
        with(201, &etag, ""),
        shed(),
        shed(),
        shed(),
    ])
    .await;
    assert!(client.get("ns", b"a", b"").await.is_ok());
    let plain = PutOptions::default();
    assert!(client.put("ns", b"a", b"", "", &plain).await.is_ok());
    assert!(client.put("ns", b"a", b"", "", &plain).await.is_ok());
    let conditional = PutOptions {
        condition: Condition::Absent,
        ..PutOptions::default()
    };
    assert!(client.put("ns", b"a", b"", "", &conditional).await.is_ok());
    let error = client.put("ns", b"a", b"", "", &plain).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::WriteQueueFull));
    assert_eq!(lines(&script).len(), 12);
}

#[tokio::test]
async fn a_wait_longer_than_the_budget_is_not_begun() {
    let long = with(
        503,
        &[("retry-after", "3600")],
        "{\"type\":\"/v1/errors/shutting-down\",\
        \"title\":\"\",\"status\":503,\"detail\":\"\",\"retry\":{\"safe\":true}}",
    );
    let (client, script) = serve([long]).await;
    let error = client.get("ns", b"a", b"").await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_hours(1)));
    assert_eq!(lines(&script).len(), 1);
}

#[tokio::test]
async fn pages_are_followed_to_the_end_of_the_range() {
    let (client, script) = serve([
        ok("{\"sk\":\"a\",\"v\":\"1\"}\n{\"sk\":\"b\",\"v\":\"2\"}\n\
            {\"end\":{\"more\":true,\"cursor\":\"c+1\",\"why\":\"bytes\",\"rows\":2,\"bytes\":4}}\n"),
        ok("{\"sk\":\"c\",\"v\":\"3\"}\n\
            {\"end\":{\"more\":true,\"cursor\":\"c2\",\"why\":\"limit\",\"rows\":1,\"bytes\":2}}\n"),
    ])
    .await;
    let options = RangeOptions {
        prefix: Some(b"\xff".to_vec()),
        is_reverse: true,
        limit: Some(3),
        ..RangeOptions::default()
    };
    let mut reader = client.range("ns", b"US", &options);
    let mut blocks = Vec::new();
    while let Some(block) = reader.next_block().await.unwrap() {
        blocks.extend_from_slice(&block);
    }
    assert_eq!(reader.rows(), 3);
    assert_eq!(memchr::memchr_iter(b'\n', &blocks).count(), 3);
    assert_eq!(
        lines(&script),
        [
            "GET /v1/ns/ns/range/VVM?enc=b64u&prefix=_w&reverse=true&limit=3",
            "GET /v1/ns/ns/range/VVM?enc=b64u&prefix=_w&reverse=true&limit=1&cursor=c%2B1",
        ]
    );
}

#[tokio::test]
async fn a_stream_without_its_end_or_a_row_is_truncated() {
    for body in [
        "{\"pk\":\"a\",\"sk\":\"\",\"v\":\"1\"}\n",
        "{\"pk\":\"a\",\"sk\":\"\",\"v\":\"1\"}\n{\"end\":{\"more\":false,\"why\":\"done\",\"rows\":2,\"bytes\":4}}\n",
        "{\"pk\":\"a\",\"sk\":\"\",\"v\":\"1\"}\n{\"end\":{\"more\":false,\"why\":\"do",
    ] {
        let (client, _) = serve([ok(body)]).await;
        let mut reader = client.scan("ns", ScanOptions::default());
        assert!(reader.next_block().await.unwrap().is_some());
        let error = reader.next_block().await.unwrap_err();
        assert!(
            matches!(error, Error::TruncatedStream { rows: 1 }),
            "{error}"
        );
        assert!(reader.next_block().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn rows_as_a_stream_end_with_the_error_of_the_server() {
    use futures_util::StreamExt as _;
    let (client, script) = serve([ok(
        "{\"pk\":\"a\",\"v\":\"1\"}\n{\"pk\":\"b\",\"v64\":\"_w\"}\n\
        {\"error\":{\"type\":\"/v1/errors/data-damaged\",\"title\":\"t\",\"status\":500,\
        \"detail\":\"d\",\"retry\":{\"safe\":false}}}\n",
    )])
    .await;
    let options = ScanOptions {
        segment: Some((1, 4)),
        keys_only: true,
        ..ScanOptions::default()
    };
    let rows = client.scan("ns", options).into_rows();
    let rows: Vec<_> = rows.collect().await;
    assert_eq!(rows[1].as_ref().unwrap().value().unwrap(), Some(vec![255]));
    let error = rows[2].as_ref().unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::DataDamaged));
    assert_eq!(rows.len(), 3);
    let body = script.lock().unwrap().seen[0].body.clone();
    assert_eq!(body, "{\"segments\":4,\"segment\":1,\"keys_only\":true}");
}

#[tokio::test]
async fn batches_are_read_to_their_end() {
    let (client, script) = serve([
        with(207, &[], "{\"i\":1,\"status\":400,\"error\":{\"type\":\"/v1/errors/invalid-body\",\
            \"detail\":\"d\",\"outcome\":\"not-applied\",\"retry\":{\"safe\":false}}}\n\
            {\"end\":{\"rows\":2,\"failed\":1}}\n"),
        ok("{\"i\":0,\"status\":200,\"pk\":\"a\",\"v\":\"1\"}\n{\"end\":{\"rows\":1,\"failed\":0}}\n"),
        ok("{\"i\":0,\"status\":201}\n"),
    ])
    .await;
    let options = BatchOptions {
        is_atomic: true,
        is_minimal: true,
        ..BatchOptions::default()
    };
    let result = client.batch_write("ns", "x\ny\n", options).await.unwrap();
    assert_eq!(
        (result.rows[0].i, result.end.rows, result.end.failed),
        (1, 2, 1)
    );
    assert_eq!(header(&script, 0, "prefer").unwrap(), "return=minimal");
    assert_eq!(
        lines(&script)[0],
        "POST /v1/ns/ns/batch/write?atomic=partition"
    );
    let rows = client
        .multi_get("ns", vec![KeyFields::of(b"a", b"")])
        .await
        .unwrap();
    assert_eq!(rows[0].row.value().unwrap(), Some(b"1".to_vec()));
    let cut = client
        .batch_write("ns", "x\n", BatchOptions::default())
        .await;
    assert!(matches!(cut, Err(Error::TruncatedStream { rows: 1 })));
}

#[tokio::test]
async fn a_removal_of_a_range_names_its_bounds() {
    let answer = "{\"rows\":2,\"bytes\":9,\"dry_run\":true}";
    let (client, script) = serve([ok(answer), ok(answer)]).await;
    let bounded = DeleteSelection {
        start: Some(b"a".to_vec()),
        dry_run: true,
        ..DeleteSelection::default()
    };
    assert_eq!(
        client
            .delete_range("ns", b"p", &bounded)
            .await
            .unwrap()
            .rows,
        2
    );
    let all = DeleteSelection {
        is_all: true,
        ..DeleteSelection::default()
    };
    client.delete_range("ns", b"p", &all).await.unwrap();
    assert_eq!(
        lines(&script),
        [
            "DELETE /v1/ns/ns/range/cA?enc=b64u&start=YQ&dry_run=true",
            "DELETE /v1/ns/ns/range/cA?enc=b64u&all=true",
        ]
    );
}

#[tokio::test]
async fn policies_are_changed_under_a_condition() {
    let change =
        "{\"name\":\"a\",\"before\":{\"name\":\"a\",\"unit\":\"ru\",\"rate\":1},\"dry_run\":false}";
    let users = "{\"policy\":\"a\",\"total\":1,\"users\":[{\"label\":\"caller=x\",\
        \"limit\":{\"rate\":1,\"burst\":\"1\",\"unit\":\"ru\"},\"balance\":-0.5,\"observed\":2,\"rejected\":3}]}";
    let (client, script) = serve([
        ok("{\"policies\":[]}"),
        ok(change),
        ok(change),
        ok(change),
        ok(users),
    ])
    .await;
    assert!(client.quotas().await.unwrap().policies.is_empty());
    let policy =
        serde_json::from_str("{\"name\":\"a\",\"unit\":\"ru\",\"rate\":\"0.10\"}").unwrap();
    let changed = client
        .put_quota(&policy, Condition::Absent, true)
        .await
        .unwrap();
    assert_eq!(changed.before.unwrap().rate.as_str(), "1");
    let version = Condition::Version(7);
    client.put_quota(&policy, version, false).await.unwrap();
    client.delete_quota("a", version, false).await.unwrap();
    let users = client.quota_users("a", Some(5)).await.unwrap();
    assert_eq!(users.users[0].limit.burst.as_str(), "1");
    assert_eq!(
        lines(&script),
        [
            "GET /admin/v1/quotas",
            "PUT /admin/v1/quotas/a?dry_run=true",
            "PUT /admin/v1/quotas/a",
            "DELETE /admin/v1/quotas/a",
            "GET /admin/v1/quotas/a/users?limit=5",
        ]
    );
    assert_eq!(header(&script, 1, "if-none-match").as_deref(), Some("*"));
    for at in [2, 3] {
        assert_eq!(header(&script, at, "if-match").as_deref(), Some("\"7\""));
    }
    let body = script.lock().unwrap().seen[2].body.clone();
    assert_eq!(body, "{\"name\":\"a\",\"unit\":\"ru\",\"rate\":\"0.10\"}");
}

#[tokio::test]
async fn costs_are_asked_for() {
    let explained = "{\"estimate_ru\":1.05,\"breakdown\":{\"base\":1,\"rows\":0.05,\"read_bytes\":0,\
        \"write_bytes\":0,\"latency\":0},\"samples\":0,\"shards\":[{\"shard\":3,\"share\":1}],\"policies\":[]}";
    let usage = "{\"namespace\":\"n\",\"ru\":2.5,\"rows\":[],\"shards\":[]}";
    let simulated = "{\"policy\":{\"name\":\"a\",\"unit\":\"ru\",\"rate\":1},\"seconds\":60,\
        \"requests\":9,\"rejected\":4,\"rows\":[]}";
    let (client, script) = serve([ok(explained), ok(usage), ok(simulated)]).await;
    let get = umbo_api::quota::ExplainBody {
        operation: "get".to_owned(),
        pk: Some("a".to_owned()),
        ..Default::default()
    };
    let explained = client.explain("n", &get).await.unwrap();
    assert_eq!(explained.shards[0].shard, 3);
    assert!((client.usage("n").await.unwrap().ru - 2.5).abs() < 1e-9);
    let body = umbo_api::quota::SimulateBody {
        policy: serde_json::from_str("{\"name\":\"a\",\"unit\":\"ru\",\"rate\":1}").unwrap(),
        last_seconds: Some(60),
    };
    assert_eq!(client.simulate_quota(&body).await.unwrap().rejected, 4);
    assert_eq!(
        lines(&script),
        [
            "POST /v1/ns/n/explain",
            "GET /v1/ns/n/usage",
            "POST /admin/v1/quotas/simulate",
        ]
    );
    let body = script.lock().unwrap().seen[0].body.clone();
    assert_eq!(body, "{\"operation\":\"get\",\"pk\":\"a\"}");
}

#[tokio::test]
async fn what_is_not_umbo_is_told_apart() {
    let (client, _) = serve([with(403, &[], "<html>\nno</html>"), ok("{}")]).await;
    let error = client.namespaces().await.unwrap_err();
    assert!(
        matches!(&error, Error::Foreign { status: 403, body, .. } if body == "<html>no</html>")
    );
    assert!(matches!(client.tokens().await, Err(Error::Malformed(_))));
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_unreachable() {
    // No server of another test gets this address meanwhile.
    let listener = std::net::TcpListener::bind("127.0.0.3:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut options = Options::new(format!("http://{address}"));
    options.retry = RetryPolicy {
        attempts_max: 2,
        wait_first: Duration::from_micros(10),
        ..RetryPolicy::default()
    };
    let client = Client::new(&options).unwrap();
    let error = client.namespaces().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
}

#[test]
fn addresses_and_certificates_that_cannot_be_used_are_refused() {
    for server in ["localhost:8080", "ftp://x", "http://", "http://x/?a=1"] {
        let refused = Client::new(&Options::new(server));
        assert!(matches!(refused, Err(Error::BadUrl { .. })), "{server}");
    }
    let mut options = Options::new("https://localhost");
    options.ca_file = Some("/nonexistent.pem".into());
    assert!(matches!(Client::new(&options), Err(Error::Tls(_))));
}

const REFUSED_HALF_WAY: &str = "{\"pk\":\"a\",\"v\":\"1\"}\n{\"error\":{\"type\":\"/v1/errors/overloaded\",\
    \"title\":\"t\",\"status\":503,\"detail\":\"d\",\"retry\":{\"safe\":true,\"after_ms\":1}},\"cursor\":\"c1\",\"ru\":1}\n";
const LAST_PAGE: &str = "{\"pk\":\"b\",\"v\":\"2\"}\n{\"end\":{\"more\":false,\"why\":\"done\",\"rows\":1,\"bytes\":2}}\n";

#[tokio::test]
async fn a_page_that_is_refused_half_way_goes_on_at_the_cursor_of_its_error_line() {
    let (client, script) = serve([ok(REFUSED_HALF_WAY), ok(LAST_PAGE)]).await;
    let mut reader = client.scan("ns", ScanOptions::default());
    let mut rows = Vec::new();
    while let Some(block) = reader.next_block().await.unwrap() {
        rows.extend_from_slice(&block);
    }
    assert_eq!(
        rows,
        b"{\"pk\":\"a\",\"v\":\"1\"}\n{\"pk\":\"b\",\"v\":\"2\"}\n"
    );
    let bodies: Vec<_> = script
        .lock()
        .unwrap()
        .seen
        .iter()
        .map(|seen| seen.body.clone())
        .collect();
    assert_eq!(bodies, ["{}", "{\"cursor\":\"c1\"}"]);
}

#[tokio::test]
async fn a_reader_of_pages_goes_on_after_any_failure_and_misses_no_row() {
    let cut = "{\"pk\":\"a\",\"v\":\"1\"}\n";
    let (client, script) = serve([
        ok(cut),
        ok(REFUSED_HALF_WAY),
        with(400, &[], "odd"),
        ok(LAST_PAGE),
    ])
    .await;
    let mut reader = client.scan("ns", ScanOptions::default());
    let truncated = reader.next_page().await.unwrap_err();
    assert!(
        matches!(truncated, Error::TruncatedStream { .. }),
        "{truncated}"
    );
    let page = reader.next_page().await.unwrap().unwrap();
    assert_eq!((&*page.lines, page.rows), (cut.as_bytes(), 1));
    assert_eq!(page.cursor.as_deref(), Some("c1"));
    reader.next_page().await.unwrap_err();
    let page = reader.next_page().await.unwrap().unwrap();
    assert_eq!((page.rows, page.cursor), (1, None));
    assert_eq!(reader.next_page().await.unwrap(), None);
    assert_eq!(reader.rows(), 2);
    let last = script.lock().unwrap().seen[3].body.clone();
    assert_eq!(last, "{\"cursor\":\"c1\"}");
}
