//! `umbo quota …`: what it sends, what it prints, and that nobody's change is undone; and what comes
//! of it on a real server.

#![allow(clippy::format_collect, reason = "tests are read, not timed")]

use std::path::Path;

use crate::server::{Ran, Server, run};
use crate::stub::{Seen, Stub, answer, stub};
use umbo_api::{ErrorCode, Problem};

type Response = axum::http::Response<axum::body::Body>;

const STORED: &str = r#"{"policy":{"name":"reads","match":{"caller":"a*"},"per":["caller"],"unit":"ru",
    "rate":1000,"burst":1000,"refill":"50ms","scope":"pod","mode":"enforce","status":429,
    "overrides":[{"match":{"caller":"ab"},"rate":5,"burst":5}]},"source":"stored","version":7,
    "counters":{"admitted":9,"rejected":3,"shadow_rejected":0,"buckets":2,"utilisation":0.5}}"#;

fn refusal(code: ErrorCode) -> Response {
    let problem = Problem::new(code, "for a test");
    answer(code.status(), serde_json::to_vec(&problem).unwrap())
}

/// Answers as a server that has one policy, `reads`, at version 7.
fn quotas(seen: &Seen) -> Response {
    let (method, target) = seen.line.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let name = path.trim_start_matches("/admin/v1/quotas/");
    let dry_run = query == "dry_run=true";
    match method {
        "GET" if name == "reads" => answer(200, STORED),
        "GET" => refusal(ErrorCode::QuotaNotFound),
        _ if name == "bad" => refusal(ErrorCode::QuotaInvalid),
        "PUT" => {
            let after = seen.text();
            let version = if dry_run { "" } else { ",\"version\":8" };
            answer(
                200,
                format!("{{\"name\":\"{name}\",\"after\":{after},\"dry_run\":{dry_run}{version}}}"),
            )
        }
        "DELETE" => answer(
            200,
            format!("{{\"name\":\"{name}\",\"dry_run\":{dry_run}}}"),
        ),
        _ => refusal(ErrorCode::MethodNotAllowed),
    }
}

fn umbo(stub: &Stub, folder: &Path, code: i32, arguments: &[&str]) -> Ran {
    run(
        &stub.url,
        folder,
        code,
        &[&["quota"], arguments].concat(),
        b"",
    )
}

#[test]
fn a_policy_is_made_where_there_is_none_and_changed_where_it_was_seen() {
    let (server, folder) = (stub(quotas), tempfile::tempdir().unwrap());
    let new = [
        "set",
        "new",
        "--unit",
        "ru",
        "--rate",
        "0.5",
        "--per",
        "caller",
        "--match",
        "namespace=n*",
        "--mode",
        "shadow",
        "-o",
        "json",
    ];
    let ran = umbo(&server, folder.path(), 0, &new);
    assert_eq!(ran.json()["version"], 8);
    let put = &server.seen()[1];
    assert_eq!(put.line, "PUT /admin/v1/quotas/new");
    assert_eq!(
        (put.header("if-none-match"), put.header("if-match")),
        (Some("*"), None)
    );
    let expected = serde_json::json!({
        "name": "new", "match": {"namespace": "n*"}, "per": ["caller"], "unit": "ru", "rate": 0.5,
        "mode": "shadow",
    });
    assert_eq!(put.json(), expected);

    let change = ["set", "reads", "--rate", "2000", "--override", "caller=ab"];
    let ran = umbo(&server, folder.path(), 0, &change);
    let lines: Vec<_> = ran.text().lines().collect();
    assert!(
        lines[0].starts_with("STATE") && lines[1].starts_with("before"),
        "{lines:?}"
    );
    assert!(
        lines[2].starts_with("now") && lines[2].ends_with('8'),
        "{lines:?}"
    );
    let put = &server.seen()[3];
    assert_eq!(
        (put.header("if-match"), put.header("if-none-match")),
        (Some("\"7\""), None)
    );
    let sent = put.json();
    assert_eq!(
        (&sent["rate"], &sent["burst"]),
        (&2000.into(), &serde_json::Value::Null)
    );
    assert_eq!(
        (&sent["match"]["caller"], &sent["overrides"]),
        (&"a*".into(), &serde_json::Value::Null)
    );
}

#[test]
fn a_small_rate_is_shown_as_it_is() {
    let (server, folder) = (stub(quotas), tempfile::tempdir().unwrap());
    let set = ["set", "reads", "--rate", "0.000001", "--burst", "1.000001"];
    let ran = umbo(&server, folder.path(), 0, &set);
    let now = ran.text().lines().nth(2).unwrap().split_whitespace();
    let shown: Vec<_> = now.skip(3).take(2).collect();
    assert_eq!(shown, ["0.000001", "1.000001"], "{}", ran.text());
}

#[test]
fn a_dry_run_changes_nothing() {
    let (server, folder) = (stub(quotas), tempfile::tempdir().unwrap());
    let ran = umbo(
        &server,
        folder.path(),
        0,
        &["set", "reads", "--rate", "1", "--dry-run"],
    );
    assert!(ran.text().contains("would-be"), "{}", ran.text());
    umbo(&server, folder.path(), 0, &["rm", "reads", "--dry-run"]);
    umbo(
        &server,
        folder.path(),
        0,
        &["rm", "reads", "--if-match", "7"],
    );
    assert_eq!(
        server.lines(),
        [
            "GET /admin/v1/quotas/reads",
            "PUT /admin/v1/quotas/reads?dry_run=true",
            "DELETE /admin/v1/quotas/reads?dry_run=true",
            "DELETE /admin/v1/quotas/reads",
        ]
    );
    assert_eq!(server.seen()[3].header("if-match"), Some("\"7\""));
}

#[test]
fn of_a_file_all_policies_are_tried_before_the_first_is_stored() {
    let (server, folder) = (stub(quotas), tempfile::tempdir().unwrap());
    let write = |second: &str| {
        let text = format!(
            "[[policy]]\nname = \"reads\"\nunit = \"ru\"\nrate = 5\n\n\
             [[policy]]\nname = \"{second}\"\nunit = \"bytes\"\nrate = \"1MiB\"\n"
        );
        std::fs::write(folder.path().join("policies.toml"), text).unwrap();
    };
    write("bad");
    let ran = umbo(
        &server,
        folder.path(),
        1,
        &["set", "--file", "policies.toml"],
    );
    assert!(ran.err.contains("Invalid policy"), "{}", ran.err);
    let is_change = |line: &String| line.starts_with("PUT") && !line.contains("dry_run");
    assert_eq!(
        server.lines().iter().filter(|line| is_change(line)).count(),
        0
    );
    write("other");
    let ran = umbo(
        &server,
        folder.path(),
        0,
        &["set", "--file", "policies.toml", "-o", "ndjson"],
    );
    assert_eq!(ran.text().lines().count(), 2);
    let seen = server.seen();
    let [reads, other] = &seen[seen.len() - 2..] else {
        panic!()
    };
    assert_eq!(
        (reads.header("if-match"), other.header("if-none-match")),
        (Some("\"7\""), Some("*"))
    );
    assert_eq!(reads.json()["overrides"], serde_json::Value::Null);
    assert_eq!(other.json()["rate"], 1_048_576);

    write("reads");
    let ran = umbo(
        &server,
        folder.path(),
        2,
        &["set", "--file", "policies.toml"],
    );
    assert!(
        ran.err.contains("line 6") && ran.err.contains("'reads'"),
        "{}",
        ran.err
    );
}

#[test]
fn a_policy_comes_out_as_the_file_it_goes_in_as() {
    let (server, folder) = (stub(quotas), tempfile::tempdir().unwrap());
    let ran = umbo(&server, folder.path(), 0, &["get", "reads", "--toml"]);
    std::fs::write(folder.path().join("p.toml"), ran.text()).unwrap();
    umbo(&server, folder.path(), 0, &["set", "--file", "p.toml"]);
    let stored: serde_json::Value = serde_json::from_str(STORED).unwrap();
    assert_eq!(server.seen()[2].json(), stored["policy"]);
    let table = umbo(&server, folder.path(), 0, &["get", "reads"]);
    assert!(table.text().contains("caller=a*"), "{}", table.text());
}

#[test]
fn what_somebody_else_has_changed_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let server = stub(|seen| {
        if seen.line.starts_with("GET") {
            return answer(200, STORED);
        }
        refusal(ErrorCode::PreconditionFailed)
    });
    umbo(&server, folder.path(), 4, &["set", "reads", "--rate", "1"]);
    umbo(
        &server,
        folder.path(),
        4,
        &["rm", "reads", "--if-match", "6"],
    );
}

#[test]
fn arguments_that_say_nothing_are_refused_here() {
    let (server, folder) = (stub(quotas), tempfile::tempdir().unwrap());
    for arguments in [
        &["set"][..],
        &["set", "new", "--rate", "5"],
        &["set", "new", "--match", "moon=x"],
        &["set", "--file", "p.toml", "--rate", "5"],
        &["set", "reads", "--file", "p.toml"],
        &["simulate"],
        &["simulate", "reads", "--last", "10ms"],
        &["get", "reads", "--toml", "-o", "json"],
        &["explain", "n", "get", "a", "b", "c"],
    ] {
        let ran = umbo(&server, folder.path(), 2, arguments);
        assert!(ran.out.is_empty(), "{ran:?}");
    }
    assert!(server.lines().iter().all(|line| line.starts_with("GET")));
    umbo(&server, folder.path(), 3, &["get", "new"]);
}

#[test]
fn what_is_asked_is_printed_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let server = stub(|seen| match seen.line.as_str() {
        "GET /admin/v1/quotas" => answer(200, format!("{{\"policies\":[{STORED}]}}")),
        "GET /admin/v1/quotas/reads" => answer(200, STORED),
        "GET /admin/v1/quotas/reads/users?limit=1" => answer(
            200,
            r#"{"policy":"reads","total":2,"users":[{"label":"caller=ab","limit":{"rate":5,"burst":5,
                "unit":"ru"},"balance":-2.5,"observed":7.25,"rejected":3}]}"#,
        ),
        "POST /admin/v1/quotas/simulate" => {
            assert_eq!(seen.json()["policy"]["rate"], 10);
            assert_eq!(seen.json()["last_seconds"], 600);
            answer(
                200,
                r#"{"policy":{"name":"reads","unit":"ru","rate":10},"seconds":60.5,"requests":9,
                    "rejected":4,"rows":[{"label":"caller=ab","requests":9,"rejected":4,"ru":20.5,
                    "rejected_amount":8}]}"#,
            )
        }
        "POST /v1/ns/n/explain" => {
            assert_eq!(seen.text(), r#"{"operation":"range","pk":"US","limit":5}"#);
            answer(
                200,
                r#"{"estimate_ru":3.25,"breakdown":{"base":1,"rows":0.25,"read_bytes":2,"write_bytes":0,
                    "latency":0},"samples":12,"shards":[{"shard":3,"share":1}],"policies":[{"name":"reads",
                    "mode":"enforce","scope":"pod","unit":"ru","label":"caller=ab","rate":5,"burst":5,
                    "balance":-1,"price":3.25,"admits":false,"wait_ms":250}]}"#,
            )
        }
        "GET /v1/ns/n/usage" => answer(
            200,
            r#"{"namespace":"n","ru":2.5,"rows":[{"caller":"ab","operation":"get","requests":2,
                "rejected":1,"ru":2.5,"rows":2,"read_bytes":99,"write_bytes":0}],
                "shards":[{"shard":3,"requests":2,"ru":2.5}]}"#,
        ),
        other => panic!("{other}"),
    });
    for (arguments, cells, member) in [
        (
            &["ls"][..],
            &["reads", "stored", "7", "1000", "caller=a*", "50%"][..],
            "/0/source",
        ),
        (
            &["get", "reads"],
            &["reads", "enforce", "429"],
            "/policy/rate",
        ),
        (
            &["users", "reads", "--limit", "1"],
            &["caller=ab", "-2.5", "7.25"],
            "/0/label",
        ),
        (
            &["simulate", "reads", "--rate", "10", "--last", "10m"],
            &["caller=ab", "20.5", "8"],
            "/rows/0/ru",
        ),
        (
            &["explain", "n", "range", "US", "--limit", "5"],
            &["estimate", "3.25", "250", "no"],
            "/policies/0/wait_ms",
        ),
        (&["usage", "n"], &["ab", "get", "99"], "/shards/0/shard"),
    ] {
        let table = umbo(&server, folder.path(), 0, arguments);
        for cell in cells {
            assert!(
                table.text().split_whitespace().any(|word| word == *cell),
                "{cell}: {table:?}"
            );
        }
        let json = umbo(
            &server,
            folder.path(),
            0,
            &[arguments, &["-o", "json"]].concat(),
        );
        assert!(json.json().pointer(member).is_some(), "{json:?}");
    }
}

#[test]
fn quotas_are_set_obeyed_and_reported() {
    let server = Server::start();
    server.run(0, &["ns", "create", "n"]);
    let set = [
        "quota",
        "set",
        "bulk",
        "--unit",
        "writes",
        "--rate",
        "2000",
        "--burst",
        "500",
        "--per",
        "caller",
        "--match",
        "namespace=n",
        "-o",
        "json",
    ];
    let change = server.run(0, &set).json();
    let version = change["version"].to_string();
    let rows: String = (0..3_000)
        .map(|at| format!("{{\"pk\":\"p{at}\",\"v\":\"1\"}}\n"))
        .collect();
    let file = server.file("rows", rows);
    let import = ["kv", "import", "n", &file, "-o", "json"];
    let summary = server.run(0, &import).json();
    assert_eq!(
        (&summary["rows"], &summary["failed"]),
        (&3_000.into(), &0.into())
    );
    assert!(summary["ru"].as_f64() > Some(30.0 * 6.0), "{summary}");
    assert_eq!(server.run(0, &["kv", "count", "n"]).text(), "3000\n");
    let users = server
        .run(0, &["quota", "users", "bulk", "-o", "json"])
        .json();
    assert!(users[0]["rejected"].as_u64() <= Some(5), "{users}");

    let explain = ["quota", "explain", "n", "get", "p1", "-o", "json"];
    let explained = server.run(0, &explain).json();
    assert_eq!(explained["shards"].as_array().unwrap().len(), 1);
    let usage = server.run(0, &["quota", "usage", "n", "-o", "json"]).json();
    let written = usage["rows"].as_array().unwrap().iter();
    let written = written.filter(|row| row["operation"] == "batch-write");
    assert_eq!(
        written
            .map(|row| row["rows"].as_u64().unwrap())
            .sum::<u64>(),
        3_000
    );
    let simulate = [
        "quota", "simulate", "bulk", "--rate", "10", "--burst", "10", "-o", "json",
    ];
    // What is remembered is there after some seconds.
    let rejects = || server.run(0, &simulate).json()["rejected"].as_u64() > Some(0);
    assert!((0..2_000).any(|_| rejects()), "nothing is remembered");

    let slower = ["quota", "set", "bulk", "--rate", "1000"];
    server.run(0, &[&slower[..], &["--if-match", &version]].concat());
    server.run(4, &[&slower[..], &["--if-match", &version]].concat());
    server.run(1, &["quota", "set", "bulk", "--rate", "0"]);
    let toml = server.run(0, &["quota", "get", "bulk", "--toml"]);
    server.run(0, &["quota", "rm", "bulk"]);
    server.run(3, &["quota", "get", "bulk"]);
    server.run(
        0,
        &["quota", "set", "--file", &server.file("p.toml", &toml.out)],
    );
    assert_eq!(
        server.run(0, &["quota", "get", "bulk", "--toml"]).out,
        toml.out
    );
}

#[test]
fn a_spent_quota_has_its_exit_code_and_is_explained() {
    let server = Server::start();
    server.run(0, &["ns", "create", "n"]);
    for (name, status) in [("a", "429"), ("b", "419")] {
        let set = [
            "quota",
            "set",
            name,
            "--unit",
            "requests",
            "--rate",
            "0.000001",
            "--burst",
            "1",
            "--match",
            "operations=get",
            "--status",
            status,
        ];
        server.run(0, &set);
        // A bucket admits while it holds anything: a second one too, if it comes after the first refill. The third is
        // refused for a minute.
        let get = ["kv", "get", "n", "k", "--timeout", "500ms"];
        let ran = (0..3)
            .map(|_| server.run_any(&get))
            .find(|(code, _)| *code != Some(3));
        let Some((Some(5), ran)) = ran else {
            panic!("{ran:?}");
        };
        assert!(
            ran.err.contains(&format!("'{name}'")) && ran.err.contains(status),
            "{}",
            ran.err
        );
        assert!(ran.err.contains("Try again in "), "{}", ran.err);
        server.run(0, &["quota", "rm", name]);
    }
}
