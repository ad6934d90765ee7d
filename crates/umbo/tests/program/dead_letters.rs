//! Imports that are rejected and shed, and what becomes of the rows they give up.

#![allow(
    clippy::format_collect,
    clippy::format_push_string,
    reason = "tests are read, not timed"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::server::{self, run};
use crate::stub::{Seen, answer, stub};
use umbo_api::{ErrorCode, Outcome, Problem};

type Response = axum::http::Response<axum::body::Body>;

fn rejection(status: u16, after_ms: u64) -> Response {
    let code = if status == 503 {
        ErrorCode::WriteQueueFull
    } else {
        ErrorCode::QuotaExceeded
    };
    let mut problem = Problem::new(code, "for a test");
    (problem.status, problem.outcome) = (status, Some(Outcome::NotApplied));
    problem.retry.after_ms = Some(after_ms);
    answer(status, serde_json::to_vec(&problem).unwrap())
}

/// The answer to a batch, with the lines refused that hold a text.
fn written(seen: &Seen, refused: Option<(&str, u16)>) -> Response {
    let (mut out, mut failed) = (String::new(), 0);
    for (at, line) in seen.text().lines().enumerate() {
        let Some((_, status)) = refused.filter(|(text, _)| line.contains(text)) else {
            continue;
        };
        failed += 1;
        let (code, safe) = match status {
            400 => ("invalid-body", false),
            _ => ("quota-exceeded", true),
        };
        out.push_str(&format!(
            "{{\"i\":{at},\"status\":{status},\"error\":{{\"type\":\"/v1/errors/{code}\",\"detail\":\"d\",\
             \"outcome\":\"not-applied\",\"retry\":{{\"safe\":{safe},\"after_ms\":30}}}}}}\n"
        ));
    }
    let rows = seen.text().lines().count();
    out.push_str(&format!(
        "{{\"end\":{{\"rows\":{rows},\"failed\":{failed}}}}}\n"
    ));
    answer(if failed == 0 { 200 } else { 207 }, out)
}

/// The answer to a multi-get of rows that are not there.
fn absent(seen: &Seen) -> Response {
    let keys = seen.json()["keys"].as_array().unwrap().len();
    let mut out: String = (0..keys)
        .map(|at| format!("{{\"i\":{at},\"status\":404}}\n"))
        .collect();
    out.push_str(&format!("{{\"end\":{{\"rows\":{keys},\"failed\":0}}}}\n"));
    answer(200, out)
}

fn is_get(seen: &Seen) -> bool {
    seen.line.ends_with("/batch/get")
}

fn rows(range: std::ops::Range<usize>) -> String {
    range
        .map(|at| format!("{{\"pk\":\"row-{at:04}\",\"v\":\"x\"}}\n"))
        .collect()
}

fn entries(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn batches_and_rows_that_are_rejected_come_again_when_told_under_their_id() {
    let mut answered = 0;
    let server = stub(move |seen| {
        answered += 1;
        match answered {
            1 => rejection(429, 60),
            2 => rejection(419, 40),
            3 => rejection(503, 20),
            4..=9 => written(seen, Some(("row-0001", 429))),
            _ => written(seen, None),
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["kv", "import", "n", "-", "--connections", "1"];
    let ran = run(
        &server.url,
        folder.path(),
        0,
        &arguments,
        rows(0..5).as_bytes(),
    );
    assert!(ran.err.contains("5 rows written, 0 failed"), "{}", ran.err);
    let seen = server.seen();
    assert_eq!(seen.len(), 10);
    for (at, told_ms) in [(1, 60), (2, 40), (3, 20), (4, 30), (9, 30)] {
        let waited = seen[at].at - seen[at - 1].at;
        assert!(waited >= Duration::from_millis(told_ms), "{at}: {waited:?}");
    }
    for (number, request) in (1..).zip(&seen) {
        assert_eq!(
            request.header("umbo-request-id"),
            seen[0].header("umbo-request-id")
        );
        let attempt = (number > 1).then(|| number.to_string());
        assert_eq!(request.header("umbo-attempt"), attempt.as_deref());
        assert_eq!(request.header("umbo-criticality"), Some("sheddable"));
    }
    assert_eq!(seen[4].text(), rows(1..2));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_is_given_up_becomes_a_dead_letter_with_its_reason() {
    let server = stub(|_| rejection(429, 1));
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "kv",
        "import",
        "n",
        "-",
        "--connections",
        "1",
        "--batch-rows",
        "2",
        "--patience",
        "0s",
    ];
    run(
        &server.url,
        folder.path(),
        7,
        &arguments,
        rows(0..4).as_bytes(),
    );
    let entries = entries(&folder.path().join("stdin.failed.ndjson"));
    assert_eq!(entries.len(), 4);
    for entry in &entries {
        let failed = &entry["failed"];
        assert_eq!(
            (&failed["namespace"], &failed["status"]),
            (&"n".into(), &429.into())
        );
        assert_eq!(failed["type"], "/v1/errors/quota-exceeded");
        assert!(failed["attempts"].as_u64() >= Some(3), "{failed}");
        assert!(entry["row"]["pk"].as_str().unwrap().starts_with("row-"));
    }
    let ran = run(
        &server.url,
        folder.path(),
        0,
        &["dlq", "ls", "stdin.failed.ndjson"],
        b"",
    );
    let mut rows = 0;
    for line in ran.text().lines().skip(1) {
        let words: Vec<_> = line.split_whitespace().take(5).collect();
        assert!(["refused", "given-up"].contains(&words[1]), "{line}");
        assert_eq!(
            (words[0], &words[2..4]),
            ("n", &["429", "quota-exceeded"][..])
        );
        rows += words[4].parse::<u32>().unwrap();
    }
    assert_eq!(rows, 4);
}

/// A server with a bucket of rows, which admits while it is positive and says so.
fn counting(rate: f64, burst: f64) -> impl FnMut(&Seen) -> Response + Send + 'static {
    let (mut balance, mut at) = (burst, Instant::now());
    move |seen| {
        balance = f64::min(burst, balance + (seen.at - at).as_secs_f64() * rate);
        at = seen.at;
        let mut response = if balance > 0.0 {
            balance -= f64::from(u32::try_from(seen.text().lines().count()).unwrap());
            written(seen, None)
        } else {
            let wait = Duration::from_secs_f64(-balance / rate + 0.05);
            rejection(429, u64::try_from(wait.as_millis()).unwrap())
        };
        let state = format!("bulk;unit=writes;rate={rate};burst={burst};balance={balance};ms=50");
        let state = state.parse().unwrap();
        response.headers_mut().insert("umbo-quota-state", state);
        response
    }
}

#[test]
fn an_import_keeps_to_its_quota_and_loses_nothing() {
    let server = stub(counting(2_000.0, 500.0));
    let folder = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let arguments = [
        "kv",
        "import",
        "n",
        "-",
        "--batch-rows",
        "100",
        "-o",
        "json",
    ];
    let ran = run(
        &server.url,
        folder.path(),
        0,
        &arguments,
        rows(0..4_000).as_bytes(),
    );
    let summary = ran.json();
    assert_eq!(
        (&summary["rows"], &summary["failed"]),
        (&4_000.into(), &0.into())
    );
    assert_eq!(summary["quota"], "bulk");
    // 500 rows at once and 3,400 more before the last batch, at 2,000 a second.
    assert!(started.elapsed() >= Duration::from_millis(1_600));
    let requests = server.seen().len();
    assert!(
        (40..=44).contains(&requests),
        "{} rejections",
        requests - 40
    );
}

#[test]
fn a_redrive_sends_each_row_to_its_namespace_and_keeps_what_fails_again() {
    let server = stub(|seen| match seen.line.as_str() {
        _ if is_get(seen) => absent(seen),
        "POST /v1/ns/a/batch/write" => written(seen, Some(("row-0001", 400))),
        "POST /v1/ns/b/batch/write" => written(seen, None),
        other => panic!("{other}"),
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.failed.ndjson");
    let entry = |namespace: &str, code: &str, rest: &str| {
        format!(
            "{{\"failed\":{{\"namespace\":\"{namespace}\",\"line\":1,\"status\":429,\
             \"type\":\"/v1/errors/{code}\",\"detail\":\"d\"}},{rest}}}\n"
        )
    };
    let row = |at: usize| format!("\"row\":{}", rows(at..at + 1).trim_end());
    let text = [
        entry("a", "quota-exceeded", &row(0)),
        entry("b", "quota-exceeded", &row(2)),
        entry("a", "quota-exceeded", &row(1)),
        entry("a", "key-too-large", &row(3)),
        entry("b", "quota-exceeded", "\"text\":\"{\\\"pk\\\":\""),
    ]
    .concat();
    std::fs::write(&file, &text).unwrap();
    let arguments = [
        "dlq",
        "redrive",
        "x.failed.ndjson",
        "--type",
        "quota-exceeded",
        "-o",
        "json",
    ];
    let ran = run(&server.url, folder.path(), 7, &arguments, b"");
    let summary = ran.json();
    let counts = [&summary["rows"], &summary["failed"], &summary["kept"]];
    assert_eq!(counts, [&2, &2, &1]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    assert!(!folder.path().join("x.failed.ndjson.progress").exists());
    let mut again = entries(&folder.path().join("x.failed-2.ndjson"));
    again.sort_by_key(|entry| {
        entry["failed"]["type"].to_string() + &entry["failed"]["line"].to_string()
    });
    assert_eq!(again.len(), 3);
    assert_eq!(
        (&again[0]["failed"]["line"], &again[0]["row"]["pk"]),
        (&3.into(), &"row-0001".into())
    );
    assert_eq!(
        (&again[1]["failed"]["line"], &again[1]["text"]),
        (&5.into(), &"{\"pk\":".into())
    );
    assert_eq!(again[2]["row"]["pk"], "row-0003");
    assert_eq!(again[2]["failed"]["status"], 429);
    // What is there is not overwritten.
    let ran = run(&server.url, folder.path(), 2, &arguments, b"");
    assert!(ran.err.contains("--failed"), "{}", ran.err);
}

/// Adds up where the rows of a file of failed rows end, over runs that break off.
#[test]
fn a_redrive_that_breaks_off_is_continued_and_loses_no_line() {
    const ROWS: usize = 20_000;
    let stored: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let (sink, mut requests) = (Arc::clone(&stored), 0);
    let server = stub(move |seen| {
        if is_get(seen) {
            return absent(seen);
        }
        requests += 1;
        // Every 7th request ends the run.
        if requests % 7 == 0 {
            let problem = Problem::new(ErrorCode::Forbidden, "for a test");
            return answer(403, serde_json::to_vec(&problem).unwrap());
        }
        let mut stored = sink.lock().unwrap();
        for line in seen
            .text()
            .lines()
            .filter(|line| !line.contains("7\",\"v\""))
        {
            *stored.entry(line.to_owned()).or_default() += 1;
        }
        written(seen, Some(("7\",\"v\"", 400)))
    });
    let folder = tempfile::tempdir().unwrap();
    let text: String = (0..ROWS)
        .map(|at| {
            format!(
                "{{\"failed\":{{\"namespace\":\"n\",\"line\":{at},\"status\":429}},\
                 \"row\":{{\"pk\":\"{at}\",\"v\":\"\"}}}}\n"
            )
        })
        .collect();
    std::fs::write(folder.path().join("x.failed.ndjson"), text).unwrap();
    let mut runs = 0;
    loop {
        runs += 1;
        assert!(runs < 50, "it gets nowhere");
        let arguments = [
            "dlq",
            "redrive",
            "x.failed.ndjson",
            "--connections",
            "2",
            "--batch-rows",
            "500",
        ];
        let mut command = server::command(&server.url, folder.path(), &arguments);
        let status = command
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap()
            .status;
        match status.code() {
            Some(7) => break,
            Some(8) => assert!(folder.path().join("x.failed.ndjson.progress").exists()),
            code => panic!("{code:?}"),
        }
    }
    assert!(runs > 1);
    let again = entries(&folder.path().join("x.failed-2.ndjson"));
    let stored = stored.lock().unwrap();
    assert_eq!(again.len(), ROWS / 10);
    assert_eq!(stored.len() + again.len(), ROWS);
    let mut lines: Vec<_> = again
        .iter()
        .map(|entry| entry["failed"]["line"].as_u64())
        .collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), ROWS / 10, "a line stands twice");
}

#[test]
fn rows_without_a_namespace_need_one_named() {
    let server = stub(|seen| {
        if is_get(seen) {
            absent(seen)
        } else {
            written(seen, None)
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let text = "{\"failed\":{\"line\":3,\"status\":0},\"row\":{\"pk\":\"a\"}}\n{\"pk\":\"b\"}\n";
    std::fs::write(folder.path().join("x"), text).unwrap();
    let ran = run(&server.url, folder.path(), 2, &["dlq", "redrive", "x"], b"");
    assert!(
        ran.err.contains("line 1") && server.seen().is_empty(),
        "{}",
        ran.err
    );
    run(
        &server.url,
        folder.path(),
        2,
        &["dlq", "redrive", "-", "--namespace", "n"],
        b"",
    );
    run(
        &server.url,
        folder.path(),
        1,
        &["dlq", "redrive", "absent"],
        b"",
    );
    run(
        &server.url,
        folder.path(),
        0,
        &["dlq", "redrive", "x", "--namespace", "n"],
        b"",
    );
    assert_eq!(
        server.lines(),
        ["POST /v1/ns/n/batch/get", "POST /v1/ns/n/batch/write"]
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let ran = run(
        &server.url,
        folder.path(),
        0,
        &["dlq", "ls", "x", "-o", "json"],
        b"",
    );
    assert_eq!(ran.json().as_array().unwrap().len(), 2);
}
