//! Rule about the areas of process tests: `tests/areas.toml` names every crate and only areas that are there, and each
//! area is named by a crate.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::tree::{files, root};

/// Returns the packages of the workspace by their manifests.
fn packages() -> BTreeSet<String> {
    let manifests = files(&["Cargo.toml"]).into_iter();
    let manifests = manifests.map(|file| file.text.parse::<Table>().unwrap());
    let named = manifests.filter_map(|manifest| manifest.get("package").cloned());
    named
        .map(|package| package["name"].as_str().unwrap().to_owned())
        .collect()
}

/// Returns the folders of `tests` that hold tests in Python.
fn areas() -> BTreeSet<String> {
    let tests = files(&[".py"])
        .into_iter()
        .filter(|file| file.path.contains("/test_"));
    let folders = tests.map(|file| file.path.split('/').nth(1).unwrap().to_owned());
    folders.collect()
}

#[test]
fn every_crate_names_the_areas_that_it_may_break() {
    let text = std::fs::read_to_string(root().join("tests/areas.toml")).unwrap();
    let listed: Table = text.parse().unwrap();
    assert_eq!(listed.keys().cloned().collect::<BTreeSet<_>>(), packages());
    let names = listed.values().flat_map(|names| names.as_array().unwrap());
    let names: BTreeSet<_> = names.filter_map(Value::as_str).map(str::to_owned).collect();
    assert_eq!(names, areas());
}
