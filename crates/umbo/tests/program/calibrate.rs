//! `umbo calibrate`: what it prints is accepted as settings, and nothing of it is left behind.

use std::path::Path;

use crate::server::{Ran, checked, command, interrupt, run};

/// Runs the program in a folder; no server is asked.
fn umbo(folder: &Path, code: i32, arguments: &[&str]) -> Ran {
    run("http://127.0.0.1:1", folder, code, arguments, b"")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

#[test]
fn the_block_is_accepted_and_nothing_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(
        at.join("own.toml"),
        "[cost]\nversion = 7\n[store]\nshards = 2\n",
    )
    .unwrap();
    std::fs::create_dir(at.join("disk")).unwrap();
    let mut command = vec!["calibrate", "--seconds", "1", "--data", "disk"];
    command.extend(["--config", "own.toml", "--write", "cost.toml"]);
    let ran = umbo(at, 0, &command);
    assert!(names(&at.join("disk")).is_empty());
    assert_eq!(names(at), ["cost.toml", "disk", "own.toml"]);
    let block = std::fs::read_to_string(at.join("cost.toml")).unwrap();
    assert!(
        block.starts_with("[cost]\nversion = 8\nread_base = "),
        "{block}"
    );
    assert!(
        ran.text().ends_with(&format!("\n\n{block}")),
        "{}",
        ran.text()
    );
    umbo(at, 0, &["config", "check", "cost.toml"]);
    for part in [
        "held-out",
        "held out, disk: ",
        "of a dispatcher for each caller: umbo quota set default-caller --rate ",
    ] {
        assert!(ran.text().contains(part), "{part}: {}", ran.text());
    }
    let put = ["put", "1", "262144", "16", "cold"];
    let is_put = |line: &str| line.split_whitespace().take(put.len()).eq(put);
    assert!(ran.text().lines().any(is_put), "{}", ran.text());
    // A file that is there is not replaced, and nothing is measured first.
    let again = umbo(at, 1, &command);
    assert!(
        again.err.contains("cannot create cost.toml: "),
        "{}",
        again.err
    );
}

#[test]
fn the_report_is_json_too() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let ran = umbo(
        folder.path(),
        0,
        &["calibrate", "--seconds", "1", "--data", data, "-o", "json"],
    );
    assert!(names(folder.path()).is_empty());
    let report = ran.json();
    let costs = report["costs"].as_array().unwrap();
    for pages in ["hot", "cold"] {
        let of: Vec<_> = costs.iter().filter(|cost| cost["pages"] == pages).collect();
        let held_out = of.iter().filter(|cost| cost["is_held_out"] == true).count();
        assert_eq!((of.len(), held_out), (59, 19), "{pages}");
    }
    for cost in costs {
        assert!(cost["calls"].as_u64().unwrap() >= 4, "{cost}");
        assert!(cost["busy_ms"].as_f64().unwrap() > 0.0, "{cost}");
        assert!(cost["ru_fitted"].as_f64().unwrap() > 0.0, "{cost}");
    }
    // How well it fits is a matter of the machine; that all of it is judged is not.
    let judged: Vec<_> = report["quality"].as_array().unwrap().iter().collect();
    let judged: u64 = judged
        .iter()
        .map(|one| one["costs"].as_u64().unwrap())
        .sum();
    assert_eq!(judged, 38);
    assert!(report["spread_fitted"].as_f64().unwrap() >= 1.0);
    let shard = report["shard_ru_per_s"].as_f64().unwrap();
    let processors = report["processors"].as_f64().unwrap();
    assert!(shard > 0.0);
    assert!((report["dispatcher_ru_per_s"].as_f64().unwrap() / shard - processors).abs() < 1e-6);
}

#[test]
fn an_interrupted_calibration_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["calibrate", "--data", "."];
    let mut child = command("http://127.0.0.1:1", folder.path(), &arguments)
        .spawn()
        .unwrap();
    while names(folder.path()).is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
    }
    interrupt(&child);
    checked(130, &arguments, child.wait_with_output().unwrap());
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let ran = umbo(folder.path(), 1, &["calibrate", "--data", "nowhere"]);
    assert!(ran.err.contains("cannot use nowhere: "), "{}", ran.err);
    std::fs::write(folder.path().join("file"), "").unwrap();
    let ran = umbo(folder.path(), 1, &["calibrate", "--data", "file"]);
    assert!(ran.err.contains("cannot use file: "), "{}", ran.err);
    umbo(folder.path(), 2, &["calibrate", "--seconds", "0"]);
    let ran = umbo(folder.path(), 2, &["calibrate", "--token", "x"]);
    assert!(ran.err.contains("calls none"), "{}", ran.err);
}
