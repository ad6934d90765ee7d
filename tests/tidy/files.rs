//! Rules about files: each tells what it owns, none is a giant, names say what is inside.

use std::collections::BTreeMap;

use crate::tree::{File, files, report, root};

/// Lines a source file may have before its tests.
const LINES_MAX: usize = 500;
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "helpers", "common", "misc"];

fn lines_before_tests(file: &File) -> usize {
    let lines = file.text.lines();
    lines.take_while(|line| *line != "#[cfg(test)]").count()
}

#[test]
fn every_source_file_begins_by_telling_what_it_owns() {
    let silent = files(&[".rs"])
        .into_iter()
        .filter(|file| !file.text.starts_with("//! "))
        .map(|file| format!("{}: begins without a `//!` header", file.path));
    report(&silent.collect::<Vec<_>>());
}

#[test]
fn no_source_file_is_a_giant() {
    let giants = files(&[".rs"])
        .into_iter()
        .map(|file| (lines_before_tests(&file), file.path))
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| {
            format!("{path}: {lines} lines before its tests, {LINES_MAX} at most")
        });
    report(&giants.collect::<Vec<_>>());
}

#[test]
fn names_say_what_is_inside() {
    let mut complaints = Vec::new();
    for file in files(&[".rs"]) {
        let name = file.path.rsplit('/').next().unwrap();
        let stem = name.trim_end_matches(".rs");
        if stem == "mod" {
            complaints.push(format!("{}: x.rs stands beside x/ instead", file.path));
        }
        if EMPTY_NAMES.contains(&stem) {
            complaints.push(format!("{}: name it after its idea", file.path));
        }
    }
    report(&complaints);
}

/// Returns the paths that a text has in backquotes and that begin with the folder of a crate; `{a,b}` stands for two.
fn named_paths(text: &str) -> Vec<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let of_crates = quoted.filter(|path| path.starts_with("umbo") && path.contains('/'));
    let of_crates = of_crates.filter(|path| !path.contains(char::is_whitespace));
    let paths = of_crates.flat_map(|path| match path.split_once('{') {
        None => vec![path.to_owned()],
        Some((before, rest)) => {
            let (names, after) = rest.split_once('}').expect("a brace is closed");
            let each = names.split(',');
            each.map(|name| format!("{before}{name}{after}")).collect()
        }
    });
    paths.collect()
}

#[test]
fn files_that_the_map_of_the_crates_names_are_there() {
    let crates = root().join("crates");
    let map = std::fs::read_to_string(crates.join("README.md")).unwrap();
    let paths = named_paths(&map);
    assert!(paths.len() > 50, "{paths:?}");
    let missing = paths.iter().filter(|path| !crates.join(path).exists());
    let missing = missing.map(|path| format!("crates/README.md names {path}, which is not there"));
    report(&missing.collect::<Vec<_>>());
}

/// pytest imports the modules of all areas by their bare names.
#[test]
fn modules_of_process_tests_have_names_of_their_own() {
    let mut paths = BTreeMap::<String, Vec<String>>::new();
    for file in files(&[".py"]) {
        let name = file.path.rsplit('/').next().unwrap().to_owned();
        // That one pytest knows by its folder.
        if file.path.starts_with("tests/") && name != "conftest.py" {
            paths.entry(name).or_default().push(file.path);
        }
    }
    let twice = paths.values().filter(|paths| paths.len() > 1);
    report(&twice.map(|paths| paths.join(", ")).collect::<Vec<_>>());
}

/// Returns whether the documentation of a source file has an example that a compiler would be given.
fn has_example(text: &str) -> bool {
    let mut is_inside = false;
    text.lines().any(|line| {
        let line = line.trim_start();
        let documentation = line.strip_prefix("///").or(line.strip_prefix("//!"));
        let Some(kind) = documentation.and_then(|line| line.trim().strip_prefix("```")) else {
            return false;
        };
        is_inside = !is_inside;
        is_inside && (kind.is_empty() || kind.starts_with("rust"))
    })
}

#[test]
fn crates_whose_examples_are_not_run_have_none() {
    let quiet = files(&["Cargo.toml"]).into_iter();
    let quiet = quiet.filter(|file| file.text.contains("\ndoctest = false\n"));
    let folders: Vec<_> = quiet
        .map(|file| file.path.replace("Cargo.toml", "src/"))
        .collect();
    assert!(folders.len() > 10, "{folders:?}");
    let sources = files(&[".rs"]).into_iter();
    let sources = sources.filter(|file| folders.iter().any(|of| file.path.starts_with(of)));
    let examples = sources.filter(|file| has_example(&file.text));
    let examples =
        examples.map(|file| format!("{}: its example is not run: doctest = false", file.path));
    report(&examples.collect::<Vec<_>>());
    assert!(has_example("/// ```\n/// let a = 1;\n/// ```"));
    assert!(!has_example("/// ```text\n/// a\n/// ```"));
}
