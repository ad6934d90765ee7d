//! `umbo shed …`: what it prints of what a server says.

use crate::server::{Ran, Server, run};
use crate::stub::{Seen, Stub, answer, stub};
use umbo_api::{ErrorCode, Problem};

const STATUS: &str = r#"{"enabled":true,"shards":[
    {"shard":0,"overloaded":false,"classes":[{"class":"point-read","overloaded":false,"ratio":1.02,
        "p95_ms":0.1,"normal_p95_ms":0.102,"samples":400,"window_ms":1200}],"tiers":[
        {"tier":"sheddable","penalised":false,"penalty":1,"penalty_above":1,"waiting":0,"oldest_ms":0,
         "overloaded":false,"shed":{}}],
        "queue":{"limit":18,"in_flight":2,"waiting":0,"waiting_ru":0}},
    {"shard":1,"overloaded":true,"classes":[{"class":"range","overloaded":true,"pressure":0.75,"ratio":0.205,
        "p95_ms":4.25,"normal_p95_ms":0.87,"samples":1830,"window_ms":1400},
        {"class":"scan","overloaded":false,"samples":0,"window_ms":900}],"tiers":[
        {"tier":"sheddable","penalised":true,"penalty":4,"penalty_above":8,"waiting":12,"oldest_ms":7.5,
         "overloaded":true,"shed":{"queue-delay":31}},
        {"tier":"critical","penalised":false,"penalty":1,"penalty_above":1,"waiting":0,"oldest_ms":0,
         "overloaded":false,"shed":{}}],
        "queue":{"limit":18,"in_flight":18,"waiting":12,"waiting_ru":12.6},
        "busy":{"capacity_ms":840,"busy_ms":410.5,"callers":3,"share_ms":280,"heavy_write_ms":2.1}}],
    "episodes_total":2,"episodes":[
    {"number":2,"shard":1,"class":"range","input":"latency-ratio","pressure_max":0.8,"tier_max":"sheddable","ratio":0.24,"ratio_min":0.19,
     "p95_ms":3.6,"normal_p95_ms":0.87,"started_at":1500,"duration_ms":2300,"under_way":true,
     "shed":{"sheddable":1200}},
    {"number":1,"shard":0,"class":"scan","input":"queue-delay","pressure_max":0.1,"ratio":0.3,"ratio_min":0.3,"p95_ms":3,"normal_p95_ms":0.9,
     "started_at":500,"duration_ms":600,"shed":{}}],"lag_ms":0.125}"#;

fn umbo(stub: &Stub, code: i32, arguments: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    run(
        &stub.url,
        folder.path(),
        code,
        &[&["shed"], arguments].concat(),
        b"",
    )
}

fn overloaded() -> Stub {
    stub(|_: &Seen| answer(200, STATUS))
}

/// Lines of a table, with one space between fields.
fn lines(text: &str) -> Vec<String> {
    let fields = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(fields).collect()
}

#[test]
fn the_status_shows_what_is_overloaded() {
    let server = overloaded();
    let ran = umbo(&server, 0, &["status"]);
    assert_eq!(
        lines(ran.text()),
        [
            "SHARD CLASS STATE PRESSURE RATIO P95-MS NORMAL-MS SAMPLES",
            "1 range overloaded 0.75 0.205 4.25 0.87 1830",
            "1 scan ok 0 - - - 0",
            "",
            "SHARD BUSY-MS CAPACITY-MS CALLERS SHARE-MS HEAVY-READ-MS HEAVY-WRITE-MS",
            "1 410.5 840 3 280 - 2.1",
            "",
            "SHARD TIER PENALTY ABOVE-SHARE HELD-TO-MS WAITING OLDEST-MS QUEUE SHED",
            "1 sheddable x4.00 x8.00 - 12 7.5 overloaded queue-delay=31",
        ]
    );
    assert!(
        ran.err
            .contains("1 of 2 shards overloaded; 2 overloads since the start"),
        "{}",
        ran.err
    );
    assert_eq!(server.lines(), ["GET /admin/v1/shed"]);
}

#[test]
fn the_status_shows_all_where_it_is_asked_to() {
    let ran = umbo(&overloaded(), 0, &["status", "--all"]);
    let lines = lines(ran.text());
    assert_eq!(lines.len(), 1 + 3 + 2 + 2 + 2 + 3, "{lines:?}");
    assert!(lines.contains(&"0 point-read ok 0 1.02 0.1 0.102 400".to_owned()));
    assert!(lines.contains(&"1 critical - - - 0 0 ok -".to_owned()));
}

#[test]
fn the_status_as_json_is_what_the_server_said() {
    let ran = umbo(&overloaded(), 0, &["status", "-o", "json"]);
    let status: umbo_api::shed::ShedStatus = serde_json::from_slice(&ran.out).unwrap();
    assert_eq!(status, serde_json::from_str(STATUS).unwrap());
}

#[test]
fn the_log_shows_episodes_and_which_go_on() {
    let ran = umbo(&overloaded(), 0, &["log"]);
    assert_eq!(
        lines(ran.text())[1..],
        [
            "2 1970-01-01T00:00:01.500Z 2300+ 1 range latency-ratio 0.24 0.19 3.6 0.87 sheddable 1200",
            "1 1970-01-01T00:00:00.500Z 600 0 scan queue-delay 0.3 0.3 3 0.9 - 0",
        ]
    );
    let ran = umbo(&overloaded(), 0, &["log", "-o", "ndjson"]);
    assert_eq!(ran.text().lines().count(), 2);
}

#[test]
fn who_may_not_ask_is_told() {
    let server = stub(|_: &Seen| {
        let problem = Problem::new(ErrorCode::Forbidden, "for a test");
        answer(
            ErrorCode::Forbidden.status(),
            serde_json::to_vec(&problem).unwrap(),
        )
    });
    umbo(&server, 8, &["status"]);
}

#[test]
fn a_server_says_how_its_shards_are() {
    let server = Server::start();
    server.run(0, &["ns", "create", "rows"]);
    for row in 0..20 {
        server.run(0, &["kv", "put", "rows", &row.to_string(), "--value", "v"]);
    }
    let ran = server.run(0, &["shed", "status", "-o", "json"]);
    let status: umbo_api::shed::ShedStatus = serde_json::from_slice(&ran.out).unwrap();
    assert!(status.enabled && status.episodes.is_empty() && !status.shards.is_empty());
    let of_class = |name: &str| {
        let classes = status.shards.iter().flat_map(|shard| &shard.classes);
        let found = classes.filter(|class| class.class == name);
        found.map(|class| class.samples).sum::<u32>()
    };
    // The window of the first of them may have ended.
    assert!((1..=20).contains(&of_class("point-write")), "{status:?}");
    for shard in &status.shards {
        assert!(!shard.overloaded && shard.tiers.len() == 4 && shard.queue.limit > 0);
    }
    let ran = server.run(0, &["shed", "status"]);
    assert!(ran.err.contains("0 of "), "{}", ran.err);
    assert_eq!(lines(server.run(0, &["shed", "log"]).text()).len(), 1);
}
