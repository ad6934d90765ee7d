//! What is said of loads and versions while they change: a small server answers by script.

use serde_json::json;

use crate::server::{checked, command, interrupt, run};
use crate::stub::{answer, serve, stub};

/// The versions of a namespace: the first with no row, the others with a digest each.
fn versions() -> String {
    let version = |number: u32, rows: u64| {
        json!({
            "number": number, "state": "kept", "load": format!("load-{number}"), "rows": rows, "bytes": 8 * rows,
            "shards": [{"shard": 0, "rows": rows, "bytes": 8 * rows, "digest": format!("digest-{number}")}],
        })
    };
    json!({"activations": 2, "versions": [version(1, 0), version(2, 7), version(3, 9)]}).to_string()
}

/// Runs the program beside a server where version `live` comes to be the live one instead of version 3.
fn said(live: u32, arguments: &[&str]) -> [String; 2] {
    let url = serve(move |line, _| match line {
        "GET /v1/ns/n/versions" => answer(200, versions()),
        _ => answer(200, json!({"before": 3, "live": live}).to_string()),
    });
    let folder = tempfile::tempdir().unwrap();
    let ran = run(&url, folder.path(), 0, arguments, b"");
    [ran.text().to_owned(), ran.err]
}

const PART: &str =
    r#"{"number":0,"bytes":21,"content_type":"application/x-ndjson","complete":true}"#;
const LOAD: &str = r#"{"id":"l","namespace":"n","mode":"merge","state":"created","as_of":1,"created_at":1,
    "created_by":"c","max_reject_ratio":0,"paused":false}"#;

#[test]
fn each_column_of_two_versions_says_what_and_of_which_it_is() {
    let [table, _] = said(3, &["version", "diff", "n", "1", "2"]);
    let mut lines = table.lines();
    let headings: Vec<_> = lines.next().unwrap().split("  ").map(str::trim).collect();
    let headings: Vec<_> = headings.into_iter().filter(|one| !one.is_empty()).collect();
    assert_eq!(
        headings,
        [
            "SHARD",
            "ROWS OF 1",
            "ROWS OF 2",
            "BYTES OF 1",
            "BYTES OF 2",
            "DIGEST OF 1",
            "DIGEST OF 2",
            "EQUAL"
        ]
    );
    let cells: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        cells,
        ["0", "0", "7", "0", "56", "digest-1", "digest-2", "no"]
    );
}

#[test]
fn a_version_without_rows_that_is_live_now_is_warned_of() {
    let warning =
        "version 1 has no rows: reads find nothing while it is live, and version 3 has 9 rows";
    for change in [
        &["version", "rollback", "n"][..],
        &["version", "activate", "n", "1"],
    ] {
        let [text, notes] = said(1, change);
        assert_eq!(text, "version 1 is live instead of 3\n");
        assert!(notes.contains(warning), "{notes}");
        let [text, notes] = said(2, change);
        assert_eq!((&*text, &*notes), ("version 2 is live instead of 3\n", ""));
    }
}

#[test]
fn a_load_that_is_watched_says_how_many_of_all_rows_are_applied() {
    let mut looks = 0;
    let url = serve(move |_, _| {
        looks += 1;
        let (state, rows) = if looks == 1 {
            ("building", 10)
        } else {
            ("live", 25)
        };
        let part = |number: u16, rows: u64| json!({"number": number, "bytes": 1, "content_type": "text/csv", "complete": true, "rows": rows});
        let load = json!({
            "id": "l", "namespace": "n", "mode": "merge", "state": state, "as_of": 1, "created_at": 1, "created_by": "c",
            "parts": [part(0, 20), part(1, 5)], "rows_applied": rows, "max_reject_ratio": 0.0, "paused": false,
        });
        answer(200, load.to_string())
    });
    let folder = tempfile::tempdir().unwrap();
    let notes = run(&url, folder.path(), 0, &["load", "watch", "n", "l"], b"").err;
    let lines: Vec<_> = notes.lines().collect();
    assert_eq!(lines.len(), 2, "{notes}");
    assert!(
        lines[0].ends_with("load l: building, 10 rows applied of 25"),
        "{notes}"
    );
    assert!(
        lines[1].ends_with("load l: live, 25 rows applied"),
        "{notes}"
    );
}

#[test]
fn a_load_that_is_watched_tells_its_rate_and_the_time_left_once_there_is_a_rate() {
    let mut looks = 0;
    let url = serve(move |_, _| {
        looks += 1;
        let (state, rows) = if looks < 12 {
            ("building", looks)
        } else {
            ("live", 1_000_000)
        };
        let load = json!({
            "id": "l", "namespace": "n", "mode": "merge", "state": state, "as_of": 1, "created_at": 1, "created_by": "c",
            "rows_total": 1_000_000, "rows_applied": rows * 1_000, "max_reject_ratio": 0.0, "paused": false,
        });
        answer(200, load.to_string())
    });
    let folder = tempfile::tempdir().unwrap();
    let notes = run(&url, folder.path(), 0, &["load", "watch", "n", "l"], b"").err;
    let lines: Vec<_> = notes.lines().collect();
    assert!(
        lines[0].ends_with("1000 rows applied of 1000000"),
        "{notes}"
    );
    let paced: Vec<_> = lines
        .iter()
        .filter(|line| line.contains(" rows/s, "))
        .collect();
    assert!(
        !paced.is_empty() && paced.iter().all(|line| line.ends_with(" left")),
        "{notes}"
    );
}

#[test]
fn a_push_is_interrupted_while_its_load_is_sealed() {
    let (say, sealing) = std::sync::mpsc::channel();
    let server = stub(
        move |seen| match seen.line.split_once("/loads").unwrap().1 {
            "/l/seal" => {
                say.send(()).unwrap_or_default();
                answer(503, "")
            }
            "/l/parts/0" => answer(201, PART),
            _ => answer(200, LOAD),
        },
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("rows.ndjson"),
        "{\"pk\":\"a\",\"v\":\"1\"}\n",
    )
    .unwrap();
    let arguments = ["load", "push", "n", "rows.ndjson", "--patience", "10m"];
    let child = command(&server.url, folder.path(), &arguments)
        .spawn()
        .unwrap();
    sealing
        .recv_timeout(std::time::Duration::from_mins(1))
        .unwrap();
    interrupt(&child);
    let ran = checked(130, &arguments, child.wait_with_output().unwrap());
    assert!(
        ran.err.contains("run the same command again"),
        "{}",
        ran.err
    );
}
