//! What an operator asks first: how is the server, how large is what, how fast is this machine.

use crate::server::{Ran, Server, run};
use crate::stub::{answer, serve};
use serde_json::{Value, json};

/// Makes a namespace with partitions of 1, 2, … rows.
fn fill(server: &Server, partitions: usize) {
    server.run(0, &["ns", "create", "demo"]);
    let line = |(partition, row): (usize, usize)| {
        format!(r#"{{"pk":"p{partition}","sk":"{row}","v":"value"}}"#) + "\n"
    };
    let rows =
        (1..=partitions).flat_map(|partition| (0..partition).map(move |row| (partition, row)));
    let lines: String = rows.map(line).collect();
    let file = server.file("rows.ndjson", lines);
    server.run(0, &["kv", "import", "demo", &file]);
}

/// Makes the first token and one for the namespace `demo`; returns both.
fn tokens(server: &Server) -> [String; 2] {
    let token = |arguments: &[&str]| {
        let made = server.run(0, &[&["token", "create", "-o", "json"], arguments].concat());
        made.json()["token"].as_str().unwrap().to_owned()
    };
    let ops = token(&["--name", "ops", "--grant", "*:*"]);
    let demo_admin = [
        "--name",
        "demo-admin",
        "--grant",
        "admin,read:demo",
        "--token",
        &ops,
    ];
    [token(&demo_admin), ops]
}

#[test]
fn the_status_is_one_screen_of_what_counts() {
    let server = Server::start();
    fill(&server, 4);
    let ran = server.run(0, &["status"]);
    let text = ran.text();
    assert!(text.lines().count() <= 24, "{text}");
    for part in [
        &format!(
            "umbo {} at {}: ok, up ",
            env!("CARGO_PKG_VERSION"),
            server.url
        ),
        "nothing is wrong",
        "no token yet: every client that reaches the server may do everything",
        " 0 rejected (quota), 0 shed (overload), 0 refused (invalid), 0 failed",
        "4 shards, 4 available: ",
        "demo       10 ",
        "anonymous",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let json = server.run(0, &["status", "-o", "json"]).json();
    assert_eq!(json["status"], "ok");
    assert_eq!(json["namespaces"][0]["size"]["rows"], 10);
    let names = [
        "uptime_s",
        "connections",
        "requests",
        "shards",
        "nodes",
        "callers",
    ];
    assert!(names.iter().all(|name| json[name] != Value::Null), "{json}");
    assert_eq!(json["is_open"], true);
}

/// Runs a command beside a server with 1,500 callers, one of which is the sum of others, and a history of one second.
fn beside_many_callers(arguments: &[&str]) -> Ran {
    let url = serve(|line, _| {
        let limit = line.split_once("callers?limit=");
        let limit = limit.map_or(0, |(_, limit)| limit.parse().unwrap());
        let name = |at| match at {
            1 => "(all others)".to_owned(),
            _ => format!("caller-{at}"),
        };
        let caller = |at| {
            json!({"caller": name(at), "requests": 1, "rejected": 0, "ru": 2000 - at, "penalty": 0,
                "read_bytes": 0, "write_bytes": 0})
        };
        let callers: Vec<_> = (0..limit).map(caller).collect();
        // Each route reads its part.
        let all = json!({
            "name": "umbo", "version": "1", "about": "", "openapi": "", "contract": "", "page": "", "status": "ok",
            "namespaces": [], "shards": [], "nodes": [], "tokens": [], "processes": [], "callers": callers,
            "total": 1500, "enabled": true, "episodes_total": 0, "episodes": [], "lag_ms": 0, "now_ms": 1000,
            "start_ms": 0, "step_ms": 1000, "series": [], "checked_ms": 0, "findings": [],
        });
        answer(200, all.to_string())
    });
    let folder = tempfile::tempdir().unwrap();
    run(&url, folder.path(), 0, arguments, b"")
}

#[test]
fn the_status_counts_the_callers_that_it_leaves_out() {
    let ran = beside_many_callers(&["status"]);
    let lines: Vec<_> = ran.text().lines().collect();
    let callers = lines.iter().filter(|line| line.starts_with("caller-"));
    assert_eq!(callers.count(), 8, "{lines:?}");
    assert_eq!(lines.last(), Some(&"and 1491 more"));
    assert!(!ran.text().contains("(all others)"), "{lines:?}");
    let json = beside_many_callers(&["status", "-o", "json"]).json();
    assert_eq!(json["callers"].as_array().unwrap().len(), 8);
    assert_eq!(json["callers_total"], 1499);
    assert_eq!(json["requests"]["seconds"], 300);
}

#[test]
fn an_admin_of_a_namespace_sees_its_part() {
    let server = Server::start();
    fill(&server, 2);
    let [demo_admin, ops] = tokens(&server);
    let text = server.run(0, &["status", "--token", &demo_admin]);
    let text = text.text();
    assert!(
        text.contains("need the permission observe on every namespace"),
        "{text}"
    );
    assert!(text.contains("demo       3 "), "{text}");
    let all = server.run(0, &["status", "--token", &ops]);
    assert!(!all.text().contains("no token yet"), "{}", all.text());
    // `top` shows the hot keys of the namespace, and nothing of the server.
    let top = |token| {
        let arguments = [
            "top",
            "--once",
            "--interval",
            "100ms",
            "-o",
            "json",
            "--token",
            token,
        ];
        server.run(0, &arguments).json()
    };
    let [own, whole] = [top(&demo_admin), top(&ops)];
    assert_eq!(
        (
            own["shards"].as_array().unwrap().len(),
            own["callers"].as_array().unwrap().len()
        ),
        (0, 0)
    );
    assert_eq!(
        (&own["seconds"], &whole["seconds"]),
        (&Value::Null, &json!(1.0))
    );
    assert_eq!(whole["shards"].as_array().unwrap().len(), 4);
    assert!(
        own["hot_keys"].is_array() && own["hot"].is_object(),
        "{own}"
    );
    let none = server.run(
        8,
        &[
            "top",
            "--once",
            "--interval",
            "100ms",
            "--token",
            "umbo_no_one",
        ],
    );
    assert!(none.err.contains("umbo: "), "{}", none.err);
}

#[test]
fn namespaces_are_listed_with_their_sizes() {
    let server = Server::start();
    fill(&server, 5);
    let list = server.run(0, &["ns", "ls", "-o", "json"]).json();
    assert_eq!(list[0]["size"]["rows"], 15);
    // Key, value and the head of each row.
    let bytes = list[0]["size"]["bytes"].as_u64().unwrap();
    assert!((15 * 8..15 * 60).contains(&bytes), "{bytes}");
    server.run(0, &["kv", "rm", "demo", "p5", "--all"]);
    let one = server
        .run(0, &["ns", "describe", "demo", "-o", "json"])
        .json();
    assert_eq!(one["size"]["rows"], 10);
    let table = server.run(0, &["ns", "ls"]);
    let mut lines = table.text().lines().map(str::split_whitespace);
    let (mut header, mut cells) = (lines.next().unwrap(), lines.next().unwrap());
    let rows = header.position(|name| name == "ROWS").unwrap();
    assert_eq!(cells.clone().next(), Some("demo"));
    assert_eq!(cells.nth(rows), Some("10"));
}

#[test]
fn the_largest_partitions_are_counted_exactly() {
    let server = Server::start();
    fill(&server, 60);
    let run = |more: &[&str]| server.run(0, &[&["ns", "partitions", "demo"], more].concat());
    let found = run(&["--limit", "3"]);
    let lines: Vec<&str> = found.text().lines().collect();
    assert_eq!(lines, ["PK   ROWS", "p60  60", "p59  59", "p58  58"]);
    assert!(found.err.contains("of 1830 rows"), "{}", found.err);
    let all = run(&["--limit", "100", "-o", "json"]).json();
    assert_eq!(all.as_array().unwrap().len(), 60);
    let cut = run(&["--rows-max", "100"]);
    assert!(cut.err.contains("stopped after 100 rows"), "{}", cut.err);
    let whole = run(&["--rows-max", "1830"]);
    assert!(!whole.err.contains("stopped"), "{}", whole.err);
    server.run(3, &["ns", "partitions", "nowhere"]);
    server.run(2, &["ns", "partitions", "demo", "--limit", "0"]);
}
