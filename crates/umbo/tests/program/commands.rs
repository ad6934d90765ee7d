//! The client commands against a real server: what they print, and their exit codes.

#![allow(
    clippy::format_collect,
    clippy::format_push_string,
    reason = "tests are read, not timed"
)]

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::server::{Server, checked, command, interrupt};

/// Rows of every kind: text, any bytes, an expiry, a content type, an empty value.
fn rows() -> String {
    let far = 4_000_000_000_000_u64;
    let mut rows = format!(
        "{{\"pk\":\"a/b\",\"sk\":\"..\",\"v\":\"x\",\"expires_at\":{far},\"content_type\":\"text/x\"}}\n\
         {{\"pk64\":\"AP8\",\"sk64\":\"_wA\",\"v64\":\"_w\"}}\n{{\"pk\":\"empty\",\"v\":\"\"}}\n"
    );
    for at in 0..500 {
        rows.push_str(&format!(
            "{{\"pk\":\"p{}\",\"sk\":\"s{at}\",\"v\":\"v{at}\"}}\n",
            at % 7
        ));
    }
    rows
}

/// What rows say, without the versions that differ between one import and the next.
fn content(lines: &str) -> BTreeSet<String> {
    let line = |line: &str| {
        let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
        let row = row.as_object_mut().unwrap();
        row.remove("version");
        row.entry("sk").or_insert_with(|| "".into());
        serde_json::to_string(row).unwrap()
    };
    let is_row = |line: &&str| !line.starts_with("{\"end\"");
    lines.lines().filter(is_row).map(line).collect()
}

#[test]
fn rows_and_their_exit_codes() {
    let server = Server::start();
    server.run(3, &["kv", "get", "n", "k"]);
    server.run(0, &["ns", "create", "n", "--default-ttl", "1h"]);
    assert!(
        server
            .run(4, &["ns", "create", "n"])
            .err
            .contains("--update")
    );
    server.run(0, &["ns", "create", "n", "--update"]);
    server.run_without_input(0, &["kv", "put", "n", "k", "v", "--content-type", "a/b"]);
    assert_eq!(server.run(0, &["kv", "get", "n", "k"]).out, b"v");
    let row = server.run(0, &["kv", "get", "n", "k", "-o", "json"]).json();
    assert_eq!(row["content_type"], "a/b");
    let missing = server.run(3, &["kv", "get", "n", "nope"]);
    assert!(missing.out.is_empty() && missing.err.starts_with("umbo: "));
    server.run(4, &["kv", "put", "n", "k", "--value", "w", "--if-absent"]);
    let refused = server.run(
        4,
        &["kv", "put", "n", "k", "--value", "w", "--if-match", "7"],
    );
    assert!(refused.err.contains("Request id: ") && refused.err.contains("Current version: "));
    let version = row["version"].to_string();
    server.run(
        0,
        &[
            "kv",
            "put",
            "n",
            "k",
            "--value",
            "w",
            "--if-match",
            &version,
        ],
    );
    server.run(4, &["kv", "rm", "n", "k", "--if-match", &version]);
    server.run(0, &["kv", "rm", "n", "k"]);
    server.run(0, &["kv", "rm", "n", "k"]);
    server.run(2, &["kv", "get", "N", "k"]);
    server.run(2, &["kv", "get", "n", "0x0"]);
    server.run(2, &["kv", "put", "n", "k", "--value", "w", "--ttl", "soon"]);
    server.run(
        6,
        &["kv", "get", "n", "k", "--server", "http://127.0.0.1:1"],
    );
    server.run(2, &["kv", "get", "n", "k", "--server", "localhost"]);
}

#[test]
fn a_value_is_put_as_people_type_it() {
    let server = Server::start();
    server.run(0, &["ns", "create", "n"]);
    let put = |words: &[&str], input: &[u8]| {
        let command = [&["kv", "put", "n", "k"], words].concat();
        server.run_with_input(0, &command, input).err
    };
    let got = |sort: &str| server.run(0, &["kv", "get", "n", "k", sort]).out;
    for (words, sort, value) in [
        (&["name", "Ada"][..], "name", "Ada"),
        (&["--sk", "mail", "a@b"], "mail", "a@b"),
        (&["-"], "", "of stdin"),
        (&["0xff", "-"], "0xff", "of stdin"),
        (&[], "", "of stdin"),
        // The spelling of earlier versions.
        (&["old", "--value", "-x"], "old", "-x"),
    ] {
        put(words, b"of stdin");
        assert_eq!(got(sort), value.as_bytes(), "{words:?}");
    }
    for word in ["Ada", "-5"] {
        // It may be a sort key of the spelling of earlier versions: nothing is overwritten by a guess.
        let command = ["kv", "put", "n", "k", word];
        let refused = server.run_with_input(2, &command, b"of stdin").err;
        assert!(refused.contains(&format!("--value {word}")), "{refused}");
        assert_eq!(got(""), b"of stdin");
    }
    for word in ["Ada", "-5"] {
        server.run_without_input(0, &["kv", "put", "n", "k", word]);
        assert_eq!(got(""), word.as_bytes());
    }
    for words in [
        &["a", "b", "c"][..],
        &["a", "b", "--value", "c"],
        &["a", "b", "--sk", "c"],
        &["a", "--sk", "c", "--value", "d"],
        &["0x0", "a"],
    ] {
        server.run(2, &[&["kv", "put", "n", "k"], words].concat());
    }
}

#[test]
fn any_bytes_go_in_and_come_out() {
    let server = Server::start();
    server.run(0, &["ns", "create", "n"]);
    let value: Vec<u8> = (0..=255).cycle().take(10_000).collect();
    server.run_with_input(0, &["kv", "put", "n", "0x00ff", "b64:_w", "-"], &value);
    assert_eq!(
        server.run(0, &["kv", "get", "n", "0x00ff", "0xff"]).out,
        value
    );
    let file = server.file("value", &value);
    server.run(0, &["kv", "put", "n", "..", "a/b", "--file", &file]);
    assert_eq!(server.run(0, &["kv", "get", "n", "..", "a/b"]).out, value);
    let table = server.run(0, &["kv", "scan", "n", "-o", "table", "--keys-only"]);
    assert!(
        table
            .text()
            .lines()
            .any(|line| line.starts_with("0x00ff  0xff "))
    );
    let large: Vec<u8> = value.repeat(110);
    let file = server.file("large", &large);
    server.run(0, &["kv", "put", "n", "k", "--file", &file]);
    assert_eq!(server.run(0, &["kv", "get", "n", "k"]).out, large);
    let file = server.file("too-large", vec![0; (64 << 20) + 1]);
    server.run(1, &["kv", "put", "n", "k", "--file", &file]);
    assert_eq!(server.run(0, &["kv", "get", "n", "k"]).out, large);
}

#[test]
fn ranges_batches_and_counts() {
    let server = Server::start();
    server.import(rows());
    let range = server.run(
        0,
        &["kv", "range", "n", "p0", "--prefix", "s4", "--limit", "3"],
    );
    let keys: Vec<_> = range
        .text()
        .lines()
        .map(|line| line.split('"').nth(7).unwrap())
        .collect();
    assert_eq!(keys, ["s406", "s413", "s42"]);
    let all = server
        .run(0, &["kv", "range", "n", "p0", "-o", "json", "--reverse"])
        .json();
    assert_eq!(all.as_array().unwrap().len(), 72);
    assert_eq!(all[71]["sk"], "s0");
    assert_eq!(server.run(0, &["kv", "count", "n", "p0"]).text(), "72\n");
    assert_eq!(
        server.run(0, &["kv", "count", "n", "-o", "json"]).json()["rows"],
        503
    );
    let table = server.run(0, &["kv", "mget", "n", "empty", "zzz", "-o", "table"]);
    let statuses: Vec<_> = table
        .text()
        .lines()
        .map(|line| line.split_whitespace().nth(2).unwrap().to_owned())
        .collect();
    assert_eq!(statuses, ["STATUS", "200", "404"]);
    server.run(2, &["kv", "rm", "n", "p0", "--range"]);
    let dry = server.run(
        0,
        &[
            "kv",
            "rm",
            "n",
            "p0",
            "--prefix",
            "s4",
            "--dry-run",
            "-o",
            "json",
        ],
    );
    assert_eq!(dry.json()["dry_run"], true);
    let removed = server.run(0, &["kv", "rm", "n", "p0", "--prefix", "s4", "-o", "json"]);
    assert_eq!(removed.json()["rows"], dry.json()["rows"]);
    server.run(0, &["kv", "rm", "n", "p0", "--all"]);
    assert_eq!(
        server
            .run(0, &["kv", "range", "n", "p0", "-o", "json"])
            .text(),
        "[]\n"
    );
    let batch = b"{\"op\":\"del\",\"pk\":\"empty\"}\n{\"pk\":\"new\",\"v\":\"1\"}\n{\"pk\":1}\n";
    let ran = server.run_with_input(7, &["kv", "batch", "n", "-"], batch);
    assert_eq!(ran.text().lines().count(), 3);
    server.run(3, &["kv", "get", "n", "empty"]);
    assert_eq!(server.run(0, &["kv", "get", "n", "new"]).out, b"1");
}

#[test]
fn arguments_that_no_server_takes_are_refused_here() {
    let server = Server::start();
    server.run(0, &["ns", "create", "n"]);
    for arguments in [
        &["kv", "put", "n", "k", "--value", "v", "--ttl", "0s"][..],
        &["kv", "put", "n", "k", "--value", "v", "--ttl", "11y"],
        &["ns", "create", "m", "--default-ttl", "0s"],
        &["kv", "get", "n", ""],
        &["kv", "put", "n", "0x", "--value", "v"],
        &["kv", "rm", "n", "", "--all"],
        &["kv", "count", "n", ""],
        &["kv", "mget", "n", "k", ""],
        &["kv", "mget", "n", "k", "--partition", ""],
        &["kv", "range", "n", "k", "--limit", "0"],
        &["kv", "range", "n", ""],
        &["kv", "scan", "n", "--limit", "0"],
        &[
            "token", "create", "--name", "a", "--grant", "*:*", "--ttl", "0s",
        ],
        &["token", "create", "--name", "a b", "--grant", "*:*"],
    ] {
        let ran = server.run(2, arguments);
        assert!(
            ran.out.is_empty() && !ran.err.contains("Request id"),
            "{ran:?}"
        );
    }
}

#[test]
fn a_token_file_that_takes_no_token_is_named_without_a_start() {
    let server = Server::start();
    let create = |code, file: &str, name: &str, grant: &str| {
        let ran = server.run(
            code,
            &[
                "token", "create", "--file", file, "--name", name, "--grant", grant,
            ],
        );
        assert!(!ran.err.contains("cannot start"), "{}", ran.err);
        ran
    };
    let name = create(2, "tokens.toml", "a b", "*:*");
    assert!(name.err.contains("name: "), "{}", name.err);
    create(1, "tokens.toml", "a", "read:*");
    let folder = create(1, "no such folder/tokens.toml", "a", "*:*");
    assert!(
        folder.err.contains("cannot read or write no such folder/"),
        "{}",
        folder.err
    );
    assert!(
        create(0, "tokens.toml", "a", "*:*")
            .text()
            .starts_with("umbo_")
    );
}

#[test]
fn what_says_nothing_by_itself_answers_programs_that_ask() {
    let server = Server::start();
    server.import("{\"pk\":\"k\",\"v\":\"1\"}");
    let export = ["kv", "export", "n", "-o", "ndjson"];
    let ran = server.run(0, &[&export[..], &["-f", "out"]].concat());
    assert_eq!(ran.json()["rows"], 1);
    assert_eq!(ran.err, "");
    let ran = server.run(0, &export);
    let (row, end) = ran.text().split_once('\n').unwrap();
    assert!(row.contains("\"pk\":\"k\"") && end.starts_with("{\"end\":{\"more\":false"));
    let summary: serde_json::Value = serde_json::from_str(&ran.err).unwrap();
    assert_eq!(summary["rows"], 1);
    assert!(
        server
            .run(0, &["kv", "export", "n"])
            .err
            .starts_with("1 row read, ")
    );
    let removed = server.run(0, &["kv", "rm", "n", "k", "-o", "json"]);
    assert_eq!(removed.text(), "{\"done\":\"removed\"}\n");
    assert_eq!(server.run(0, &["kv", "rm", "n", "k"]).text(), "");
    let grant = [
        "token", "create", "--name", "a", "--grant", "*:*", "-o", "json",
    ];
    let created = server.run(0, &grant).json();
    let (token, id) = (
        created["token"].as_str().unwrap(),
        created["id"].as_str().unwrap(),
    );
    let revoked = server.run(0, &["token", "revoke", id, "--token", token, "-o", "json"]);
    assert_eq!(revoked.json(), serde_json::json!({"id": id}));
}

#[test]
fn namespaces_are_removed_only_when_meant() {
    let server = Server::start();
    server.import(rows());
    server.run(2, &["ns", "rm", "n"]);
    let dry = server
        .run(0, &["ns", "rm", "n", "--dry-run", "-o", "json"])
        .json();
    assert_eq!(dry["rows"], 503);
    assert!(server.run(0, &["ns", "ls"]).text().contains("\nn "));
    server.run(0, &["ns", "rm", "n", "--yes"]);
    server.run(3, &["ns", "describe", "n"]);
    server.run(3, &["ns", "rm", "n", "--yes"]);
}

#[test]
fn what_export_writes_import_takes_in_every_form() {
    let server = Server::start();
    let ran = server.import(rows());
    assert!(ran.err.contains("created namespace 'n'") && ran.err.contains("503 rows written"));
    let plain = server.run(0, &["kv", "export", "n", "--segments", "3"]);
    assert_eq!(content(plain.text()), content(&rows()));
    for (name, arguments) in [
        ("x.zst", &["-f", "x.zst"][..]),
        ("x.gz", &["-f", "x.gz"]),
        ("odd", &["-f", "odd", "--compress", "zstd"]),
        ("x.ndjson", &["-f", "x.ndjson", "--segments", "1"]),
    ] {
        server.run(0, &[&["kv", "export", "n"], arguments].concat());
        server.run(0, &["ns", "create", "m"]);
        server.run(0, &["kv", "import", "m", name]);
        let again = server.run(0, &["kv", "export", "m"]);
        assert_eq!(content(again.text()), content(&rows()), "{name}");
        server.run(0, &["ns", "rm", "m", "--yes"]);
    }
    let through_a_pipe = std::fs::read(server.path("x.gz")).unwrap();
    server.run_with_input(0, &["kv", "import", "--create", "m", "-"], &through_a_pipe);
    assert_eq!(server.run(0, &["kv", "count", "m"]).text(), "503\n");
}

#[test]
fn of_lines_with_one_key_the_last_wins_whatever_the_batches() {
    let server = Server::start();
    let mut lines = String::new();
    for round in 0..40 {
        for key in 0..25 {
            lines.push_str(&format!(
                "{{\"pk\":\"p\",\"sk\":\"{key}\",\"v\":\"{round}\"}}\n"
            ));
        }
    }
    let file = server.file("rows", lines);
    server.run(0, &["ns", "create", "n"]);
    server.run(0, &["kv", "import", "n", &file]);
    let rows = server
        .run(0, &["kv", "range", "n", "p", "-o", "json"])
        .json();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 25);
    assert!(rows.iter().all(|row| row["v"] == "39"), "{rows:?}");
}

#[test]
fn an_import_keeps_to_the_rate_that_it_is_given() {
    let server = Server::start();
    let rows = (0..300).map(|row| format!("{{\"pk\":\"p\",\"sk\":\"{row}\",\"v\":\"v\"}}\n"));
    let file = server.file("rows", rows.collect::<String>());
    let begun = Instant::now();
    let import = [
        "kv", "import", "--create", "n", &file, "--rate", "100", "-o", "json",
    ];
    let summary = server.run(0, &import).json();
    assert_eq!(summary["rows"], 300);
    // Three batches of 100 each, and a bucket of ten rows.
    assert!(
        begun.elapsed() >= Duration::from_millis(1_800),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn failed_rows_are_kept_and_come_back_when_repaired() {
    let server = Server::start();
    let lines = "{\"pk\":\"a\",\"v\":\"1\"}\n\n{\"pk\":\"cut\n{\"sk\":\"no pk\"}\n\
                 {\"pk\":\"b\",\"v\":\"2\",\"odd\":1}\n{\"pk\":\"c\",\"v\":\"3\"}";
    let file = server.file("rows", lines);
    let ran = server.run(7, &["kv", "import", "--create", "n", &file, "-o", "json"]);
    assert_eq!(
        (ran.json()["rows"].as_u64(), ran.json()["failed"].as_u64()),
        (Some(2), Some(3))
    );
    let failed = std::fs::read_to_string(server.path("rows.failed.ndjson")).unwrap();
    let mut numbers: Vec<u64> = Vec::new();
    for line in failed.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["failed"]["status"], 400);
        assert_eq!(line["failed"]["reason"], "malformed", "{line}");
        numbers.push(line["failed"]["line"].as_u64().unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [3, 4, 5]);
    let repaired = failed
        .replace(",\"odd\":1", "")
        .replace("{\"sk\":\"no pk\"}", "{\"pk\":\"d\",\"v\":\"4\"}")
        .replace(
            "\"text\":\"{\\\"pk\\\":\\\"cut\"",
            "\"row\":{\"pk\":\"e\",\"v\":\"5\"}",
        );
    let file = server.file("repaired", repaired);
    server.run(0, &["kv", "import", "n", &file]);
    assert!(!server.path("repaired.failed.ndjson").exists());
    assert_eq!(server.run(0, &["kv", "count", "n"]).text(), "5\n");
    server.run(7, &["kv", "import", "n", "rows", "--failed", "here"]);
    assert!(server.path("here").exists());
    server.run(2, &["kv", "import", "n", "rows", "--failed", "rows"]);
    server.run(1, &["kv", "import", "n", "no such file"]);
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    let server = Server::start();
    let rows: String = (0..20_000)
        .map(|at| {
            format!("{{\"pk\":\"p\",\"sk\":\"{at}\",\"v\":\"some bytes to fill the pipe\"}}\n")
        })
        .collect();
    server.import(rows);
    for arguments in [
        ["kv", "range", "n", "p"],
        ["kv", "export", "n", "--segments=2"],
    ] {
        let mut child = command(&server.url, server.folder.path(), &arguments)
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let ran = checked(0, &arguments, child.wait_with_output().unwrap());
        assert!(!ran.err.contains("Broken"), "{}", ran.err);
    }
}

#[test]
fn an_interrupted_import_sums_up_and_says_so() {
    let server = Server::start();
    server.run(0, &["ns", "create", "n"]);
    let arguments = ["kv", "import", "n", "-"];
    let mut child = command(&server.url, server.folder.path(), &arguments)
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"{\"pk\":\"a\",\"v\":\"1\"}\n").unwrap();
    // The row is in the store soon after it was written; the input stays open.
    while server.run(0, &["kv", "count", "n"]).text() == "0\n" {
        assert!(child.try_wait().unwrap().is_none(), "the import has ended");
    }
    interrupt(&child);
    let ran = checked(130, &arguments, child.wait_with_output().unwrap());
    assert!(ran.err.contains("1 row written"), "{}", ran.err);
    drop(stdin);
}
