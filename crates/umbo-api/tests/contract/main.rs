//! The tables of the contract for services, against the code: error codes and header fields.
//!
//! A code or a field that is added, removed or changed in the code has to change its row too.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;

use serde_json::Value;
use umbo_api::{CONTRACT, ErrorCode, header};

/// The names of header fields, as source text: constants cannot be listed.
const HEADER_SOURCE: &str = include_str!("../../src/header.rs");
/// The `OpenAPI` document.
const OPENAPI: &str = include_str!("../../openapi.json");

/// Returns the cells of each row of the table whose first column has this head.
fn table(head: &str) -> Vec<Vec<&'static str>> {
    let head = format!("| {head} |");
    let lines = CONTRACT.lines().skip_while(|line| !line.starts_with(&head));
    // The head, and the line under it.
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> = rows.map(cells).collect();
    assert!(!rows.is_empty(), "the contract has no table '{head}'");
    rows
}

fn cells(row: &'static str) -> Vec<&'static str> {
    row.trim_matches('|').split('|').map(str::trim).collect()
}

/// Returns the field names of a table, in lower case; each stands in it once, with a meaning.
fn fields(head: &str) -> BTreeSet<String> {
    let rows = table(head);
    let mut names = BTreeSet::new();
    for row in rows {
        let [name, place, meaning] = row[..] else {
            panic!("{row:?} does not have three cells")
        };
        assert!(!place.is_empty() && !meaning.is_empty(), "{row:?}");
        let is_new = names.insert(name.trim_matches('`').to_lowercase());
        assert!(is_new, "{name} stands twice in '{head}'");
    }
    names
}

fn answer_fields() -> BTreeSet<String> {
    fields("field of an answer")
}

fn request_fields() -> BTreeSet<String> {
    fields("field of a request")
}

/// Returns the names that `header.rs` declares.
fn declared() -> BTreeSet<String> {
    let constants = HEADER_SOURCE
        .lines()
        .filter(|line| line.starts_with("pub const "));
    let names = constants.filter_map(|line| line.split('"').nth(1));
    let names: BTreeSet<String> = names
        .filter(|name| *name != header::PREFIX)
        .map(str::to_owned)
        .collect();
    assert!(names.contains(header::REQUEST_ID), "{names:?}");
    names
}

/// Adds the names of all parameters of the document that are header fields.
fn add_parameters(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            let is_header = members.get("in").and_then(Value::as_str) == Some("header");
            if let Some(name) = members.get("name").and_then(Value::as_str)
                && is_header
            {
                names.insert(name.to_lowercase());
            }
            for member in members.values() {
                add_parameters(member, names);
            }
        }
        Value::Array(elements) => {
            for element in elements {
                add_parameters(element, names);
            }
        }
        _ => {}
    }
}

#[test]
fn the_table_of_error_codes_is_the_list_of_the_code() {
    let mut told = Vec::new();
    for row in table("code") {
        let [code, status, retry, advice] = row[..] else {
            panic!("{row:?} does not have four cells")
        };
        assert!(!advice.is_empty(), "{code} has no advice");
        told.push(format!("{code} {status} {retry}"));
    }
    let row = |code: &ErrorCode| {
        let retry = if code.is_retryable() { "yes" } else { "no" };
        format!("`{code}` {} {retry}", code.status())
    };
    let known: Vec<String> = ErrorCode::ALL.iter().map(row).collect();
    let missing: Vec<_> = known.iter().filter(|row| !told.contains(*row)).collect();
    let unknown: Vec<_> = told.iter().filter(|row| !known.contains(*row)).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "the contract lacks {missing:?} and has {unknown:?}"
    );
    assert_eq!(told, known, "rows are in the order of the codes");
}

#[test]
fn every_header_field_of_umbo_stands_in_a_table() {
    let (declared, told) = (declared(), &answer_fields() | &request_fields());
    let missing: Vec<_> = declared.difference(&told).collect();
    assert!(missing.is_empty(), "the contract lacks {missing:?}");
    let unknown: Vec<_> = told
        .difference(&declared)
        .filter(|name| name.starts_with(header::PREFIX))
        .collect();
    assert!(unknown.is_empty(), "no header field is called {unknown:?}");
}

#[test]
fn every_header_field_of_the_document_stands_in_its_table() {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let described = document["components"]["headers"].as_object().unwrap();
    let described: BTreeSet<String> = described.keys().map(|name| name.to_lowercase()).collect();
    let told = answer_fields();
    let missing: Vec<_> = described.difference(&told).collect();
    assert!(missing.is_empty(), "answers also have {missing:?}");

    let mut taken = BTreeSet::new();
    add_parameters(&document, &mut taken);
    assert!(taken.contains(header::TTL), "{taken:?}");
    let told = request_fields();
    let missing: Vec<_> = taken.difference(&told).collect();
    assert!(missing.is_empty(), "requests also have {missing:?}");
}
