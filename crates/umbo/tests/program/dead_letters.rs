//! Imports that are rejected and shed, and what becomes of the rows they give up.

#![allow(
    clippy::format_collect,
    clippy::format_push_string,
    reason = "tests are read, not timed"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use crate::server::run;
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
    let arguments = ["kv", "import", "n", "-"];
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
        let lines = server.lines();
        assert!(
            waited >= Duration::from_millis(told_ms),
            "{at}: {waited:?}, {lines:?}"
        );
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
    let arguments = ["kv", "import", "n", "-", "--patience", "0s"];
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
    let arguments = ["kv", "import", "n", "-", "-o", "json"];
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
    // 500 rows at once and 1,500 more before the last batch of at most 2,000, at 2,000 a second.
    assert!(started.elapsed() >= Duration::from_millis(700));
    let requests = server.seen().len();
    assert!((2..=9).contains(&requests), "{requests} requests");
}

#[test]
fn a_file_of_failed_rows_is_imported_but_for_rows_of_other_namespaces() {
    let server = stub(|seen| written(seen, Some(("row-0001", 400))));
    let folder = tempfile::tempdir().unwrap();
    let entry = |namespace: &str, rest: &str| {
        format!(
            "{{\"failed\":{{\"namespace\":\"{namespace}\",\"line\":1,\"status\":429,\"detail\":\"d\"}},{rest}}}\n"
        )
    };
    let row = |at: usize| format!("\"row\":{}", rows(at..at + 1).trim_end());
    let text = [
        entry("a", &row(0)),
        entry("b", &row(2)),
        entry("a", &row(1)),
        entry("a", "\"text\":\"{\\\"pk\\\":\""),
    ]
    .concat();
    std::fs::write(folder.path().join("x.failed.ndjson"), text).unwrap();
    let arguments = ["kv", "import", "a", "x.failed.ndjson", "-o", "json"];
    let ran = run(&server.url, folder.path(), 7, &arguments, b"");
    let summary = ran.json();
    assert_eq!([&summary["rows"], &summary["failed"]], [&1, &2]);
    assert!(ran.err.contains("1 row left out"), "{}", ran.err);
    let again = entries(&folder.path().join("x.failed.ndjson.failed.ndjson"));
    let told = again.iter().map(|entry| {
        let line = entry["failed"]["line"].as_u64().unwrap();
        (line, entry["row"]["pk"].as_str(), entry["text"].as_str())
    });
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    let expected = [(3, Some("row-0001"), None), (4, None, Some("{\"pk\":"))];
    assert_eq!(told, expected);
}
