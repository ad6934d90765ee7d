//! Names of types: a name that stands in several crates has to be told apart by every reader of both.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{File, files};

/// Type names that stand in more than one crate. Most are one thing at two layers: what a client or an answer shows of
/// what the store or a node has. The number may only be lowered: a new type gets a name of its own, mostly the noun
/// with the word that tells it from the other.
const SHARED_NAMES: usize = 8;

const KEYWORDS: [&str; 5] = ["struct", "enum", "trait", "type", "union"];

/// Returns the name of the type that a line defines outside of any block.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split(' ');
    let mut word = words.next()?;
    if word == "pub" || (word.starts_with("pub(") && word.ends_with(')')) {
        word = words.next()?;
    }
    let name = KEYWORDS.contains(&word).then(|| words.next())??;
    let end = name.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    Some(&name[..end.unwrap_or(name.len())])
}

/// Returns the crate that a file is of, unless it is none or the file is of its tests.
fn crate_of(path: &str) -> Option<&str> {
    let (name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    let is_of_tests = rest.split('/').any(|folder| folder == "tests");
    (!is_of_tests && !path.ends_with("tests.rs")).then_some(name)
}

#[test]
fn few_type_names_stand_in_more_than_one_crate() {
    let files = files(&[".rs"]);
    let mut crates = BTreeMap::<&str, BTreeSet<&str>>::new();
    for File { path, text } in &files {
        let Some(owner) = crate_of(path) else {
            continue;
        };
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
        for name in lines.filter_map(defined) {
            crates.entry(name).or_default().insert(owner);
        }
    }
    assert!(crates.len() >= 1_000, "{} types are found", crates.len());
    crates.retain(|_, owners| owners.len() > 1);
    let shared = crates.len();
    assert!(
        shared <= SHARED_NAMES,
        "{shared} type names stand in more than one crate, {SHARED_NAMES} may: {crates:#?}"
    );
    assert_eq!(
        shared, SHARED_NAMES,
        "SHARED_NAMES has to be lowered to {shared}"
    );
}

#[test]
fn definitions_are_found() {
    assert_eq!(defined("pub(crate) struct Row<'a> {"), Some("Row"));
    assert_eq!(defined("type Rows = Vec<Row>;"), Some("Rows"));
    assert_eq!(defined("pub trait Store: Send {"), Some("Store"));
    assert_eq!(defined("    enum Look;"), None);
    assert_eq!(defined("// struct Row"), None);
    assert_eq!(defined("pub fn open() {"), None);
    assert_eq!(crate_of("crates/umbo-edge/src/lib.rs"), Some("umbo-edge"));
    assert_eq!(crate_of("crates/umbo-edge/tests/edge/support.rs"), None);
    assert_eq!(crate_of("crates/umbo-edge/src/drive_tests.rs"), None);
    assert_eq!(crate_of("loadtest/src/main.rs"), None);
}
