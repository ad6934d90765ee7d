//! `umbo hot …` and `umbo top`: what they send and what they print; and what comes of it on a real
//! server.

#![allow(clippy::format_collect, reason = "tests are read, not timed")]

use std::path::Path;

use crate::server::{Ran, Server, run};
use crate::stub::{Seen, Stub, answer, stub};
use umbo_api::{ErrorCode, Problem};

type Response = axum::http::Response<axum::body::Body>;

const REPORT: &str = r#"{"keys":[
    {"id":"AQA","hash":"00f1","namespace":"shop","kind":"row","pk":"listing:17","sk":"","standing":"hot",
     "is_hot":true,"rate":1234.5,"rate_error":2.5,"rate_now":1300.0,"ru_rate":130.0,"hot_for_ms":90500,
     "reads":5000,"hits":4990,"hit_ratio":0.998,"callers":[{"caller":"crawler","share":0.9}]},
    {"id":"AQE","hash":"00f2","namespace":"shop","kind":"range","pk64":"_w","standing":"blocked",
     "is_hot":false,"rate":0,"rate_error":0,"rate_now":0,"ru_rate":0,"hot_for_ms":0,"reads":0,"hits":0,
     "hit_ratio":0,"callers":[],"blocked":{"by":"ops","at":0,"until":1500,"reason":"a test"}}],
    "pod":{"reads_rate":2000,"threshold_rate":200,"saved_share":0.75,"reads":5000,"hits":4990,
     "negative_hits":0,"leaders":10,"followers":0,"elections":0,"crowded":0,"overtaken":0,"stale":0,
     "uncounted":0,"flights":0,"cache_entries":1,"cache_bytes":1024,"detection_bytes":270000}}"#;

const LISTED: &str = r#"{"id":"AQA","hash":"00f1","namespace":"shop","kind":"row","pk":"listing:17",
    "sk":"a","standing":"blocked","by":"ops","at":0,"until":1500,"reason":"a test"}"#;

const BUSY: &str = r#"{"start_ms":5000,"step_ms":2000,"shards":[{"shard":3,"busy":0.82,"sources":[
    {"share":0.91,"caller":"crawler","operation":"range","namespace":"shop","pk":"listing:17"},
    {"share":0.05,"operation":"scan"}]},{"shard":4,"busy":0.01,"sources":[]}]}"#;

const SHED: &str = r#"{"enabled":true,"shards":[{"shard":0,"overloaded":true,
    "classes":[{"class":"point-read","overloaded":true,"pressure":0.5,"ratio":0.4,"samples":9,"window_ms":10},
               {"class":"range","overloaded":false,"pressure":0.25,"ratio":0.8,"samples":9,"window_ms":10}],
    "tiers":[{"tier":"sheddable","penalised":true,"penalty":2,"penalty_above":8,"waiting":7,"oldest_ms":7.5,
              "overloaded":true,"shed":{}}],
    "queue":{"limit":18,"in_flight":17,"waiting":7,"waiting_ru":12.6}}],
    "episodes_total":0,"episodes":[],"lag_ms":0.1}"#;

const HISTORY: &str = r#"{"now_ms":12500,"start_ms":9000,"step_ms":1000,"series":[
    {"name":"served","labels":{"operation":"get"},"unit":"","values":[7,1000,2000]},
    {"name":"served","labels":{"operation":"admin"},"unit":"","values":[null,5,5]},
    {"name":"shed","labels":{"operation":"get"},"unit":"","values":[null,null,50]},
    {"name":"refused","labels":{"operation":"get"},"unit":"","values":[null,4,null]},
    {"name":"latency_p50_ms","labels":{"operation":"get"},"unit":"","values":[9,0.25,0.5]},
    {"name":"latency_p99_ms","labels":{"operation":"get"},"unit":"","values":[9,2.5,1.5]},
    {"name":"connections","labels":{},"unit":"","values":[1,2,3]},
    {"name":"caller_ru","labels":{"caller":"crawler"},"unit":"","values":[null,10,30]},
    {"name":"shard_requests","labels":{"shard":"0"},"unit":"","values":[1,500,700]}]}"#;

/// Answers as a server that has one hot row and one blocked range, and a history of three seconds.
fn hot_server() -> Stub {
    stub(move |seen: &Seen| match &*seen.line {
        "GET /admin/v1/hot" => answer(200, REPORT),
        line if line.starts_with("GET /admin/v1/history?") => answer(200, HISTORY),
        "GET /admin/v1/quotas" => answer(200, r#"{"policies":[]}"#),
        "GET /admin/v1/shed" => answer(200, SHED),
        "GET /admin/v1/shards" => answer(
            200,
            r#"{"shards":[{"shard":0,"state":"read-only","reason":"full","slots":4096,"rows":7,
                "file_bytes":4096,"queued":1}]}"#,
        ),
        "DELETE /admin/v1/hot/pinned/id/AQE" => refusal(ErrorCode::HotKeyNotListed),
        line if line.starts_with("DELETE ") => answer(204, ""),
        line if line.contains("/pinned/") => answer(200, LISTED),
        _ => answer(201, LISTED),
    })
}

fn refusal(code: ErrorCode) -> Response {
    let problem = Problem::new(code, "for a test");
    answer(code.status(), serde_json::to_vec(&problem).unwrap())
}

fn umbo(stub: &Stub, folder: &Path, code: i32, arguments: &[&str]) -> Ran {
    run(&stub.url, folder, code, arguments, b"")
}

#[test]
fn keys_are_named_as_in_the_data_plane_or_by_their_id() {
    let (server, folder) = (hot_server(), tempfile::tempdir().unwrap());
    let run = |code, arguments: &[&str]| umbo(&server, folder.path(), code, arguments);
    run(
        0,
        &[
            "hot",
            "block",
            "shop",
            "listing-17",
            "a",
            "--reason",
            "a test",
            "--ttl",
            "90s",
        ],
    );
    run(0, &["hot", "block", "shop", "0x00ff"]);
    run(0, &["hot", "unblock", "shop", "a/b", "c"]);
    run(0, &["hot", "pin", "--id", "AQE"]);
    let gone = run(3, &["hot", "unpin", "--id", "AQE"]);
    assert!(gone.err.contains("umbo hot ls --listed"), "{}", gone.err);
    assert_eq!(
        server.lines(),
        [
            "PUT /admin/v1/hot/blocked/ns/shop/kv/listing-17/a",
            "PUT /admin/v1/hot/blocked/ns/shop/kv/AP8?enc=b64u",
            "DELETE /admin/v1/hot/blocked/ns/shop/kv/YS9i/Yw?enc=b64u",
            "PUT /admin/v1/hot/pinned/id/AQE",
            "DELETE /admin/v1/hot/pinned/id/AQE",
        ]
    );
    let seen = server.seen();
    let expected = serde_json::json!({"reason": "a test", "ttl": 90});
    assert_eq!(seen[0].json(), expected);
    assert_eq!(seen[1].json(), serde_json::json!({}));
}

#[test]
fn the_list_is_a_table_or_what_the_server_said() {
    let (server, folder) = (hot_server(), tempfile::tempdir().unwrap());
    let run = |arguments: &[&str]| umbo(&server, folder.path(), 0, arguments);
    let table = run(&["hot", "ls"]);
    let line = |line: &str| {
        let cells = line.split("  ").map(str::trim);
        let cells = cells.filter(|cell| !cell.is_empty());
        cells.collect::<Vec<_>>().join("|")
    };
    let lines: Vec<String> = table.text().lines().map(line).collect();
    let expected = [
        "NAMESPACE|PK|SK|KIND|STANDING|RATE|ERROR|NOW|RU/S|FOR|READS|HITS|CALLERS|BY|UNTIL|REASON|ID",
        "shop|listing:17|-|row|hot|1234|2.5|1300|130|1m30s|5000|99.8%|crawler 90%|-|-|-|AQA",
        "shop|0xff|-|range|blocked|0|0|0|0|-|0|0.0%|-|ops|1970-01-01T00:00:01.500Z|a test|AQE",
    ];
    assert_eq!(lines, expected);
    assert!(
        table.err.contains(
            "2000 reads/s, hot from 200/s; of all reads 99.8% from the cache, 0.0% with another one"
        ),
        "{}",
        table.err
    );
    let listed = run(&["hot", "ls", "--listed", "-o", "ndjson"]);
    assert_eq!(listed.json()["id"], "AQE");
    let json = run(&["hot", "ls", "-o", "json"]).json();
    let said: serde_json::Value = serde_json::from_str(REPORT).unwrap();
    assert_eq!(json["keys"][1]["blocked"], said["keys"][1]["blocked"]);
    assert_eq!(json["pod"]["hits"], 4_990);
    let changed = run(&["hot", "pin", "shop", "listing:17"]);
    assert!(changed.err.contains("it was pinned already"));
    assert!(changed.err.contains("also blocked"));
}

#[test]
fn busy_shards_are_listed_with_their_sources() {
    let server = stub(|_: &Seen| answer(200, BUSY));
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| umbo(&server, folder.path(), 0, arguments);
    let table = run(&["hot", "busy"]);
    let lines: Vec<Vec<&str>> = (table.text().lines())
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(
        lines[1],
        ["3", "82%", "91%", "crawler", "range", "shop", "listing:17"]
    );
    assert_eq!(lines[2], ["3", "82%", "5%", "-", "scan", "-", "-"]);
    assert!(
        table.err.contains("2 s from 1970-01-01T00:00:05"),
        "{}",
        table.err
    );
    let json = run(&["hot", "busy", "--shard", "3", "-o", "json"]).json();
    let said: serde_json::Value = serde_json::from_str(BUSY).unwrap();
    assert_eq!(json, said);
    let ndjson = run(&["hot", "busy", "-o", "ndjson"]);
    assert_eq!(ndjson.text().lines().count(), 2);
    run(&["hot", "busy", "--ago", "10m"]);
    let asked = server.lines();
    assert_eq!(
        asked[..2],
        ["GET /admin/v1/hot/busy?", "GET /admin/v1/hot/busy?shard=3"]
    );
    let at = asked[3].strip_prefix("GET /admin/v1/hot/busy?at=").unwrap();
    assert_eq!(at.len(), "1790000000000".len());
}

#[test]
fn a_frame_is_the_interval_that_has_ended() {
    let (server, folder) = (hot_server(), tempfile::tempdir().unwrap());
    let arguments = ["top", "--once", "--interval", "1900ms"];
    let json = [&arguments[..], &["-o", "json"]].concat();
    let frame = umbo(&server, folder.path(), 0, &json).json();
    let expected = [
        (&frame["seconds"], 2.0),
        (&frame["pod"]["requests_rate"], 1_527.0),
        (&frame["pod"]["refused_rate"], 2.0),
        (&frame["pod"]["failed_rate"], 0.0),
        (&frame["pod"]["shed_rate"], 25.0),
        (&frame["pod"]["p50_ms"], 0.5),
        (&frame["pod"]["p99_ms"], 2.5),
        (&frame["pod"]["connections"], 3.0),
        (&frame["callers"][0]["ru_rate"], 20.0),
        (&frame["shards"][0]["requests_rate"], 600.0),
        (&frame["shards"][0]["overload"]["pressure"], 0.5),
        (&frame["shards"][0]["overload"]["latency_ratio"], 0.4),
        (&frame["shards"][0]["overload"]["oldest_ms"], 7.5),
    ];
    for (at, (found, expected)) in expected.into_iter().enumerate() {
        assert_eq!(found.as_f64(), Some(expected), "{at}: {frame}");
    }
    assert_eq!(frame["pod"]["operation"], "get");
    assert_eq!(frame["shards"][0]["state"], "read-only");
    assert_eq!(frame["hot_keys"][0]["pk"], "listing:17");
    let drawn = umbo(&server, folder.path(), 0, &arguments);
    for part in [
        "listing:17",
        "blocked",
        "crawler 90%",
        "read-only",
        "connections 3",
        "get p50 0.50 ms  p99 2.50 ms",
    ] {
        assert!(drawn.text().contains(part), "{part}: {}", drawn.text());
    }
}

#[test]
fn a_block_holds_on_a_real_server() {
    let server = Server::start();
    server.run(0, &["ns", "create", "shop"]);
    server.run_with_input(0, &["kv", "put", "shop", "a"], b"v");
    let blocked = server.run(0, &["hot", "block", "shop", "a", "-o", "json"]);
    assert_eq!(blocked.json()["standing"], "blocked");
    let refused = server.run(5, &["kv", "get", "shop", "a"]);
    assert!(
        refused.err.contains("the key is blocked"),
        "{}",
        refused.err
    );
    server.run_with_input(5, &["kv", "put", "shop", "a"], b"new");
    server.run(0, &["hot", "unblock", "shop", "a"]);
    assert_eq!(server.run(0, &["kv", "get", "shop", "a"]).out, b"v");
    let frame = server.run(0, &["top", "--once", "--interval", "100ms"]);
    assert!(frame.text().contains("SHARD"), "{}", frame.text());
}
