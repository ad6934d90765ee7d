//! What the commands do when a server refuses, sheds or breaks off: a small server that answers by
//! script, because a healthy one will not.

#![allow(
    clippy::format_collect,
    clippy::format_push_string,
    reason = "tests are read, not timed"
)]

use std::sync::{Arc, Mutex};

use crate::server::run;
use crate::stub::{answer, serve, stub};
use axum::body::Body;
use axum::http::Response;
use umbo_api::{ErrorCode, Outcome, Problem};

fn refusal(code: ErrorCode) -> Response<Body> {
    let mut problem = Problem::new(code, "for a test");
    problem.outcome = Some(Outcome::NotApplied);
    problem.retry.after_ms = (code.status() == 503).then_some(1);
    answer(code.status(), serde_json::to_vec(&problem).unwrap())
}

/// The answer to a batch in which the lines that hold a text are shed.
fn shed(body: &[u8], text: &str) -> Response<Body> {
    let lines = std::str::from_utf8(body).unwrap().lines();
    let failed: Vec<usize> = (0..)
        .zip(lines.clone())
        .filter_map(|(at, line)| line.contains(text).then_some(at))
        .collect();
    let mut out: String = failed
        .iter()
        .map(|at| format!(
            "{{\"i\":{at},\"status\":503,\"error\":{{\"type\":\"/v1/errors/write-queue-full\",\
             \"detail\":\"d\",\"outcome\":\"not-applied\",\"retry\":{{\"safe\":true,\"after_ms\":1}}}}}}\n"
        ))
        .collect();
    let (rows, failed) = (lines.count(), failed.len());
    out.push_str(&format!(
        "{{\"end\":{{\"rows\":{rows},\"failed\":{failed}}}}}\n"
    ));
    answer(if failed == 0 { 200 } else { 207 }, out)
}

#[test]
fn refusals_have_the_exit_code_of_their_kind() {
    let folder = tempfile::tempdir().unwrap();
    for (status, code) in [
        (401, 8),
        (403, 8),
        (412, 4),
        (419, 5),
        (429, 5),
        (503, 6),
        (504, 6),
        (507, 6),
        (500, 1),
    ] {
        let url = serve(move |_, _| {
            let mut problem = Problem::new(ErrorCode::Internal, "for a test");
            problem.status = status;
            problem.retry.after_ms = Some(1);
            answer(status, serde_json::to_vec(&problem).unwrap())
        });
        run(&url, folder.path(), code, &["kv", "get", "n", "k"], b"");
    }
}

#[test]
fn an_export_that_is_cut_off_leaves_no_file() {
    let url = serve(|_, _| answer(200, "{\"pk\":\"a\",\"sk\":\"\",\"v\":\"1\"}\n"));
    let folder = tempfile::tempdir().unwrap();
    let ran = run(
        &url,
        folder.path(),
        6,
        &["kv", "export", "n", "-f", "out", "--patience", "0s"],
        b"",
    );
    assert!(ran.err.contains("cut off"), "{}", ran.err);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let ran = run(&url, folder.path(), 6, &["kv", "range", "n", "a"], b"");
    assert!(ran.err.contains("cut off"), "{}", ran.err);
}

#[test]
fn shed_rows_are_sent_again_before_the_later_lines_of_their_key() {
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&bodies);
    let url = serve(move |_, body| {
        let mut seen = seen.lock().unwrap();
        seen.push(String::from_utf8(body.to_vec()).unwrap());
        shed(body, if seen.len() < 3 { "first" } else { "none" })
    });
    let folder = tempfile::tempdir().unwrap();
    let lines = "{\"pk\":\"b\",\"v\":\"x\"}\n{\"pk\":\"a\",\"v\":\"first\"}\n{\"pk\":\"a\",\"v\":\"second\"}\n";
    run(
        &url,
        folder.path(),
        0,
        &["kv", "import", "n", "-"],
        lines.as_bytes(),
    );
    let (first, later) = lines.split_at(lines.rfind('{').unwrap());
    let again = &first[first.rfind('{').unwrap()..];
    assert_eq!(*bodies.lock().unwrap(), [first, again, again, later]);
}

#[test]
fn a_batch_that_fails_for_good_fails_with_all_its_rows() {
    let mut answered = 0;
    let url = serve(move |_, body| {
        answered += 1;
        if answered == 1 {
            return shed(body, "none");
        }
        refusal(ErrorCode::StorageFailed)
    });
    let folder = tempfile::tempdir().unwrap();
    // Each batch ends where a key comes again.
    let lines: String = [0, 1, 2, 0, 1, 2, 3]
        .map(|at| format!("{{\"pk\":\"{at}\",\"v\":\"\"}}\n"))
        .concat();
    let arguments = ["kv", "import", "n", "-", "--patience", "0s", "-o", "json"];
    let ran = run(&url, folder.path(), 7, &arguments, lines.as_bytes());
    assert_eq!(
        (ran.json()["rows"].as_u64(), ran.json()["failed"].as_u64()),
        (Some(3), Some(4))
    );
    let failed = std::fs::read_to_string(folder.path().join("stdin.failed.ndjson")).unwrap();
    assert_eq!(failed.lines().count(), 4);
    assert!(
        failed
            .lines()
            .all(|line| line.contains("\"status\":503") && line.contains("\"row\":{"))
    );
}

#[test]
fn an_import_that_is_not_allowed_stops_at_once() {
    let url = serve(|_, _| refusal(ErrorCode::Forbidden));
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..99)
        .map(|at| format!("{{\"pk\":\"{at}\",\"v\":\"\"}}\n"))
        .collect();
    let ran = run(
        &url,
        folder.path(),
        8,
        &["kv", "import", "n", "-"],
        lines.as_bytes(),
    );
    assert!(ran.err.contains("0 rows written"), "{}", ran.err);
}

#[test]
fn tokens_are_printed_once_and_nothing_else() {
    let url = serve(|line, _| {
        assert_eq!(line, "POST /admin/v1/tokens");
        answer(
            201,
            "{\"token\":\"umbo_i_s\",\"id\":\"i\",\"name\":\"x\",\"grants\":[\"read:*\"],\
            \"criticality_max\":\"sheddable\",\"created_at\":1,\"source\":\"store\"}",
        )
    });
    let folder = tempfile::tempdir().unwrap();
    let create = ["token", "create", "--name", "x", "--grant", "read:*"];
    assert_eq!(
        run(&url, folder.path(), 0, &create, b"").text(),
        "umbo_i_s\n"
    );
    let wrong = ["token", "create", "--name", "x", "--grant", "fly:*"];
    run(&url, folder.path(), 2, &wrong, b"");
}

#[test]
fn a_lock_whose_answer_was_cut_off_is_not_said_to_be_another_ones() {
    let mut first_key = None;
    let server = stub(move |seen| {
        let key = seen.header("idempotency-key").map(str::to_owned);
        let is_again = first_key.is_some() && first_key == key;
        first_key = key;
        if !is_again {
            // The row is written, and its answer is lost.
            return answer(502, "cut off by a proxy");
        }
        let mut replayed = answer(201, "");
        let headers = replayed.headers_mut();
        headers.insert("etag", "\"7\"".parse().unwrap());
        headers.insert("umbo-replayed", "?1".parse().unwrap());
        replayed
    });
    let folder = tempfile::tempdir().unwrap();
    let put = ["kv", "put", "n", "lock", "--value", "mine", "--if-absent"];
    run(&server.url, folder.path(), 0, &put, b"");
    assert_eq!(server.seen().len(), 2);
}
