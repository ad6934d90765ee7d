//! Rules about crates: the arrows between them are those of the architecture document, they point
//! down, and every crate inherits versions and lints.
//!
//! The document is `crates/README.md`. It holds one fenced block named `arrows` with a line
//! `crate -> crate, crate` for each crate; one that uses none ends after the arrow. What a crate
//! uses in its tests only is not an arrow.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::tree::{File, files, report};

type Arrows = BTreeMap<String, BTreeSet<String>>;

fn parse(document: &str) -> Arrows {
    let block = document
        .split_once("```arrows\n")
        .and_then(|(_, rest)| rest.split_once("```"))
        .map(|(block, _)| block)
        .expect("crates/README.md has a block ```arrows");
    let mut arrows = Arrows::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (from, to) = line
            .split_once("->")
            .unwrap_or_else(|| panic!("no arrow in '{line}'"));
        let to = to.split(',').map(str::trim).filter(|name| !name.is_empty());
        let is_new = arrows
            .insert(from.trim().to_owned(), to.map(str::to_owned).collect())
            .is_none();
        assert!(is_new, "{} stands twice", from.trim());
    }
    arrows
}

fn document() -> Arrows {
    let document = files(&["README.md"])
        .into_iter()
        .find(|file| file.path == "crates/README.md");
    parse(&document.expect("crates/README.md exists").text)
}

/// Manifests of the crates under `crates/`, by name.
fn manifests() -> BTreeMap<String, Table> {
    let crates = files(&["Cargo.toml"]).into_iter();
    let crates = crates.filter(|file| file.path.starts_with("crates/"));
    crates
        .map(|File { path, text }| {
            let manifest: Table = text.parse().unwrap();
            let name = manifest["package"]["name"].as_str().unwrap().to_owned();
            assert_eq!(path, format!("crates/{name}/Cargo.toml"));
            (name, manifest)
        })
        .collect()
}

fn keys<'a>(manifest: &'a Table, section: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let table = manifest.get(section).and_then(Value::as_table);
    table.into_iter().flatten()
}

#[test]
fn the_arrows_of_the_document_are_those_of_the_manifests() {
    let manifests = manifests();
    let actual: Arrows = manifests
        .iter()
        .map(|(name, manifest)| {
            let used = keys(manifest, "dependencies").map(|(used, _)| used.clone());
            let ours = used.filter(|used| manifests.contains_key(used));
            (name.clone(), ours.collect())
        })
        .collect();
    let documented = document();
    let mut complaints = Vec::new();
    let none = BTreeSet::new();
    let names: BTreeSet<_> = actual.keys().chain(documented.keys()).collect();
    for name in names {
        if !actual.contains_key(name) {
            complaints.push(format!("{name} is documented and does not exist"));
        } else if !documented.contains_key(name) {
            complaints.push(format!("{name} is not documented"));
        }
        let is = actual.get(name).unwrap_or(&none);
        let may = documented.get(name).unwrap_or(&none);
        for extra in is.difference(may) {
            complaints.push(format!("{name} -> {extra} is in the manifest alone"));
        }
        for missing in may.difference(is) {
            complaints.push(format!("{name} -> {missing} is in crates/README.md alone"));
        }
    }
    report(&complaints);
}

/// Floors of the house, arrows, and the most arrows of a crate but the binary. The numbers may only fall; a second engine
/// has five arrows more.
const FLOORS: usize = 10;
const ARROWS: usize = 124;
const FAN_OUT: usize = 13;

/// Returns the floor of a crate: one above the highest that it uses.
fn floor(name: &str, arrows: &Arrows) -> usize {
    let used = arrows.get(name).into_iter().flatten();
    1 + used.map(|used| floor(used, arrows)).max().unwrap_or(0)
}

#[test]
fn the_house_grows_no_floor_and_no_arrow() {
    let arrows = document();
    let floors = arrows.keys().map(|name| floor(name, &arrows)).max();
    let count: usize = arrows.values().map(BTreeSet::len).sum();
    let inside = arrows
        .iter()
        .filter(|(name, _)| *name != "umbo" && *name != "umbo-simulation");
    let fan_out = inside.map(|(_, used)| used.len()).max();
    let found = (floors, count, fan_out);
    assert_eq!(
        found,
        (Some(FLOORS), ARROWS, Some(FAN_OUT)),
        "the numbers may only fall"
    );
}

#[test]
fn every_manifest_inherits_from_the_workspace() {
    let mut complaints = Vec::new();
    for (name, manifest) in manifests() {
        for field in ["version", "edition", "rust-version", "license", "publish"] {
            let value = manifest["package"].get(field);
            if value.and_then(|value| value.get("workspace")) != Some(&true.into()) {
                complaints.push(format!("{name}: package.{field} is not the workspace's"));
            }
        }
        let lints = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"));
        if lints != Some(&true.into()) {
            complaints.push(format!("{name}: the workspace's lints are not inherited"));
        }
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (used, how) in keys(&manifest, section) {
                // A crate that names itself turns on a feature for its own tests.
                if *used != name && how.get("workspace") != Some(&true.into()) {
                    complaints.push(format!(
                        "{name}: the version of {used} is not the workspace's"
                    ));
                }
            }
        }
    }
    report(&complaints);
}

/// A dependency that the code does not name: it chooses how another crate is built.
const UNNAMED: [(&str, &str); 1] = [("umbo-client", "idna_adapter")];

#[test]
fn every_dependency_is_used() {
    let sources = files(&[".rs"]);
    let is_used = |of: &str, folders: &[&str], used: &str| {
        let name = used.replace('-', "_");
        sources.iter().any(|file| {
            let inside = file.path.strip_prefix(&format!("crates/{of}/"));
            let is_inside =
                inside.is_some_and(|path| folders.iter().any(|folder| path.starts_with(folder)));
            is_inside && has_word(&file.text, &name)
        })
    };
    let mut complaints = Vec::new();
    for (name, manifest) in manifests() {
        for (section, folders) in [
            ("dependencies", &["src/"][..]),
            ("dev-dependencies", &["src/", "tests/", "benches/"]),
        ] {
            for (used, _) in keys(&manifest, section) {
                let is_exempt = UNNAMED.contains(&(&name, used)) || *used == name;
                if !is_exempt && !is_used(&name, folders, used) {
                    complaints.push(format!(
                        "{name}: {section} lists {used}, which no file uses"
                    ));
                }
            }
        }
    }
    report(&complaints);
}

/// Returns whether a text has a word that is no part of a longer name.
fn has_word(text: &str, word: &str) -> bool {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

#[test]
fn a_word_is_no_part_of_a_name() {
    assert!(has_word("use serde::Serialize;", "serde"));
    assert!(!has_word("serde_json::Value; xserde", "serde"));
}

#[test]
fn a_block_of_arrows_is_read() {
    let arrows = parse("x\n```arrows\na -> b, c\n\nb ->\n```\nd -> e\n");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected: Arrows = [("a", names(&["b", "c"])), ("b", names(&[]))]
        .into_iter()
        .map(|(from, to): (_, BTreeSet<String>)| (from.to_owned(), to))
        .collect();
    assert_eq!(arrows, expected);
}
