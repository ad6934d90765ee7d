//! `umbo cluster status` and `umbo shard …`: what they print of what a dispatcher says.

use crate::server::{Ran, run};
use crate::stub::{Seen, Stub, answer, stub};
use umbo_api::{ErrorCode, Problem};

const NODES: &str = r#"{"nodes":[
    {"name":"a","address":"shard-a:7411","reachable":true,"map_version":3,"shards":[0,2],"in_flight":4,
     "clock_ahead_ms":3,"program_version":"0.1.0"},
    {"name":"b","address":"shard-b:7411","reachable":false,"reason":"connection refused",
     "map_version":2,"shards":[1],"in_flight":0}]}"#;

const SHARDS: &str = r#"{"shards":[
    {"shard":0,"node":"a","state":"available","slots":2000,"rows":7,"file_bytes":4096,"queued":1},
    {"shard":1,"node":"b","state":"unavailable","reason":"connection refused","slots":2096,"rows":0,
     "file_bytes":0,"queued":0}]}"#;

fn umbo(stub: &Stub, code: i32, arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    run(&stub.url, folder.path(), code, arguments, b"")
}

fn dispatcher() -> Stub {
    stub(|seen: &Seen| match &*seen.line {
        "GET /admin/v1/cluster" => answer(200, NODES),
        "GET /admin/v1/shards" => answer(200, SHARDS),
        other => panic!("{other}"),
    })
}

/// Lines of a table, with one space between fields.
fn lines(text: &str) -> Vec<String> {
    let fields = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(fields).collect()
}

#[test]
fn the_status_says_who_is_not_reached_and_who_lags() {
    let ran = umbo(&dispatcher(), 0, &["cluster", "status"]);
    assert_eq!(
        lines(ran.text()),
        [
            "NODE ADDRESS STATE MAP-VERSION SHARDS IN-FLIGHT CLOCK-MS PROGRAM-VERSION REASON",
            "a shard-a:7411 reachable 3 0,2 4 +3 0.1.0 -",
            "b shard-b:7411 unreachable 2 1 0 - - connection refused",
        ]
    );
    for part in ["1 of 2 nodes reachable", "different versions of the map"] {
        assert!(ran.err.contains(part), "{}", ran.err);
    }
    let json = umbo(&dispatcher(), 0, &["cluster", "status", "-o", "json"]);
    let told: serde_json::Value = serde_json::from_str(json.text()).unwrap();
    assert_eq!(
        told,
        serde_json::from_str::<serde_json::Value>(NODES).unwrap()
    );
    let lines = umbo(&dispatcher(), 0, &["cluster", "status", "-o", "ndjson"]);
    assert_eq!(lines.text().lines().count(), 2);
}

#[test]
fn shards_are_listed_with_their_nodes() {
    let ran = umbo(&dispatcher(), 0, &["shard", "ls"]);
    assert_eq!(
        lines(ran.text()),
        [
            "SHARD NODE STATE SLOTS ROWS FILE-BYTES QUEUED P50-MS P99-MS REASON",
            "0 a available 2000 7 4096 1 - - -",
            "1 b unavailable 2096 0 0 0 - - connection refused",
        ]
    );
    assert!(ran.err.contains("1 of 2 shards available"), "{}", ran.err);
    let one = umbo(&dispatcher(), 0, &["shard", "describe", "1", "-o", "json"]);
    assert!(one.text().contains("connection refused") && !one.text().contains("\"a\""));
    let none = umbo(&dispatcher(), 3, &["shard", "describe", "2"]);
    assert!(none.err.contains("there is no shard 2"), "{}", none.err);
}

#[test]
fn refusals_have_the_exit_code_of_their_kind() {
    for (code, exit) in [
        (ErrorCode::Forbidden, 8),
        (ErrorCode::Unauthenticated, 8),
        (ErrorCode::RouteNotFound, 3),
    ] {
        let problem = serde_json::to_string(&Problem::new(code, "no")).unwrap();
        let refusing = stub(move |_: &Seen| answer(code.status(), problem.clone()));
        for command in [&["cluster", "status"][..], &["shard", "ls"]] {
            umbo(&refusing, exit, command);
        }
    }
}
