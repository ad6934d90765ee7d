//! Rules about time: no test waits for time to pass, or measures it, but in the places that `tests/waits.txt` lists, each
//! with its reason. The list may only shrink. What is ready at the same time is taken in one order. And a process test
//! that was flaky twice is a defect, not an accident.

use std::collections::BTreeMap;

use crate::tree::{File, files, report, root};

/// Calls by which a test in Python waits for the time of the machine, or reads it.
const IN_PYTHON: [&str; 5] = [
    "sleep(",
    "time.monotonic",
    "time.time",
    "perf_counter",
    "wait_for_timeout(",
];
/// Calls by which a test in Rust waits or measures. `Instant::now` alone is often the zero of a time that a test counts.
const IN_RUST: [&str; 2] = ["sleep(", ".elapsed()"];
/// Owns the time of process tests.
const OWNER: &str = "tests/clock.py";

/// Returns the part of a Rust file that is test code: all of it, what follows its first line `#[cfg(test)]`, or nothing.
fn test_code(file: &File) -> &str {
    let (folder, name) = file.path.rsplit_once('/').unwrap();
    let is_of_tests = |part: &str| part == "tests" || part.ends_with("_tests");
    let is_test = folder.split('/').any(is_of_tests) || is_of_tests(name.trim_end_matches(".rs"));
    if is_test || folder.ends_with("umbo-store/src/suite") {
        return &file.text;
    }
    let begin = file.text.find("\n#[cfg(test)]\n");
    begin.map_or("", |at| &file.text[at..])
}

/// Returns how often calls stand in a text, comments left out.
fn count(text: &str, calls: &[&str], comment: &str) -> usize {
    let code = text.lines().map(|line| line.split(comment).next().unwrap());
    code.map(|line| {
        calls
            .iter()
            .map(|call| line.matches(call).count())
            .sum::<usize>()
    })
    .sum()
}

/// Returns the number of such calls by file.
fn found() -> BTreeMap<String, usize> {
    let python = files(&[".py"])
        .into_iter()
        .filter(|file| file.path.starts_with("tests/"));
    let python = python.map(|file| (count(&file.text, &IN_PYTHON, "#"), file.path));
    let rust = files(&[".rs"])
        .into_iter()
        .filter(|file| file.path.starts_with("crates/"));
    let rust = rust.map(|file| (count(test_code(&file), &IN_RUST, "//"), file.path));
    let all = python
        .chain(rust)
        .filter(|(number, path)| *number > 0 && path != OWNER);
    all.map(|(number, path)| (path, number)).collect()
}

fn lines_of(path: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn no_test_waits_for_time_but_where_the_list_says_why() {
    let mut found = found();
    let mut complaints = Vec::new();
    for line in lines_of("tests/waits.txt") {
        let mut parts = line.splitn(3, char::is_whitespace);
        let path = parts.next().unwrap().to_owned();
        let listed: usize = parts
            .next()
            .and_then(|text| text.parse().ok())
            .expect("a count");
        assert!(
            parts.next().is_some_and(|why| why.len() > 10),
            "{path}: no reason is given"
        );
        match found.remove(&path).unwrap_or(0) {
            number if number > listed => complaints.push(format!(
                "{path}: {number} waits, {listed} are listed: wait for an event, or move the clock (tests/clock.py)"
            )),
            number if number < listed => complaints.push(format!(
                "{path}: {number} waits are left of {listed}: lower the number in tests/waits.txt"
            )),
            _ => {}
        }
    }
    complaints.extend(found.iter().map(|(path, number)| {
        format!("{path}: {number} waits: wait for an event, or move the clock (tests/clock.py)")
    }));
    report(&complaints);
}

#[test]
fn no_process_test_was_flaky_twice() {
    let mut reports = BTreeMap::<String, usize>::new();
    for line in lines_of("tests/flaky.txt") {
        *reports
            .entry(line.split_whitespace().next_back().unwrap().to_owned())
            .or_default() += 1;
    }
    let twice = reports.iter().filter(|(_, times)| **times > 1);
    let twice = twice.map(|(name, times)| format!("{name} was flaky in {times} runs: mend it"));
    report(&twice.collect::<Vec<_>>());
}

#[test]
fn waits_are_found_in_test_code_only() {
    let file = |path: &str| File {
        path: path.to_owned(),
        text: "sleep(1); // sleep(2)\n\n#[cfg(test)]\nmod tests { sleep(3) }\n".to_owned(),
    };
    let number = |path| count(test_code(&file(path)), &IN_RUST, "//");
    assert_eq!(number("crates/umbo-x/src/work.rs"), 1);
    assert_eq!(number("crates/umbo-x/src/work_tests.rs"), 2);
    assert_eq!(number("crates/umbo-x/tests/x/work.rs"), 2);
}

/// Returns the lines of a text at which `select!` takes what is ready by chance.
fn drawn_selects(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_drawn = |at: &usize| {
        lines[*at].ends_with("select! {") && lines.get(at + 1).is_none_or(|next| *next != "biased;")
    };
    (0..lines.len()).filter(is_drawn).map(|at| at + 1).collect()
}

#[test]
fn what_is_ready_at_the_same_time_is_taken_in_the_order_of_the_code() {
    // By chance, a seed of the simulation would not give the same run again.
    let mut complaints = Vec::new();
    for file in files(&[".rs"]) {
        if file.path.starts_with("crates/") && file.path.contains("/src/") {
            let lines = drawn_selects(&file.text).into_iter();
            complaints
                .extend(lines.map(|line| format!("{}:{line}: `select!` is not biased", file.path)));
        }
    }
    report(&complaints);
}

#[test]
fn a_select_that_draws_is_seen() {
    let text = "tokio::select! {\n    biased;\n}\nselect! {\n    () = a => {}\n}";
    assert_eq!(drawn_selects(text), [4]);
}
