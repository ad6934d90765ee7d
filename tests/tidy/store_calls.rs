//! Rule about the dispatcher: one file calls the store, so that each call has a permit of its shard and is timed.

use crate::tree::{File, files, report};

/// The file that calls the store.
const CALLER: &str = "crates/umbo-dispatcher/src/phase/fetch.rs";
/// Methods of the contract that nothing else has.
const OWN: [&str; 4] = ["multi_get", "range_into", "scan_into", "delete_range"];
/// Methods of the contract whose names others have too: these are called on something named so.
const SHARED: [&str; 6] = ["get", "range", "scan", "chunk", "backup", "write"];

/// Returns the methods of the contract that a text calls. The functions of the file are no methods.
fn calls(text: &str) -> Vec<&'static str> {
    let code: String = text.split_whitespace().collect();
    let own = OWN
        .into_iter()
        .filter(|name| code.contains(&format!(".{name}(")));
    let shared = SHARED
        .into_iter()
        .filter(|name| code.contains(&format!("store.{name}(")));
    own.chain(shared).collect()
}

#[test]
fn one_file_of_the_dispatcher_calls_the_store() {
    let files = files(&[".rs"]);
    let is_product = |file: &&File| file.path.starts_with("crates/umbo-dispatcher/src/");
    let mut complaints = Vec::new();
    let mut found = 0;
    for File { path, text } in files.iter().filter(is_product) {
        let calls = calls(text);
        if path == CALLER {
            found = calls.len();
        } else if !calls.is_empty() {
            complaints.push(format!("{path} calls the store ({calls:?}): {CALLER} does"));
        }
    }
    report(&complaints);
    assert!(found >= 8, "{CALLER} calls the store");
}

#[test]
fn calls_are_seen_and_what_has_their_name_is_not() {
    let text = "let rows = self\n    .store\n    .multi_get(call, shard);\nstore.get(&call)";
    assert_eq!(calls(text), ["multi_get", "get"]);
    assert!(calls("fetch::range_into(at); map.get(1); own.range(at)").is_empty());
}
