//! The pages about mechanisms beside their crates: each is linked from the map of the crates, and the files and tests that
//! a page names are there.

use crate::tree::{report, root};

/// Crates with a page about their mechanism.
const CRATES: [&str; 10] = [
    "umbo-admin",
    "umbo-bulk",
    "umbo-control",
    "umbo-dispatcher",
    "umbo-hotkey",
    "umbo-overload",
    "umbo-protocol",
    "umbo-quota",
    "umbo-store",
    "umbo-store-redb",
];
/// Headings of each page, in this order.
const HEADINGS: [&str; 5] = [
    "What it is not",
    "The picture",
    "What always holds",
    "Numbers",
    "Tried and dropped",
];

/// Returns what stands between backticks, without fenced blocks.
fn named(page: &str) -> Vec<&str> {
    let fences = page.split("```").step_by(2);
    fences
        .flat_map(|text| text.split('`').skip(1).step_by(2))
        .collect()
}

fn is_path(name: &str) -> bool {
    [".rs", ".py", ".toml", ".md"]
        .iter()
        .any(|end| name.ends_with(end))
        && name.contains('/')
        && !name.contains('*')
}

/// Returns what a page names that is not there: files, and tests of the file that is named before them.
fn missing(page: &str, text_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut missing = Vec::new();
    let mut file: Option<(&str, String)> = None;
    for name in named(page) {
        if is_path(name) {
            file = text_of(name).map(|text| (name, text));
            if file.is_none() {
                missing.push(name.to_owned());
            }
        } else if let Some((path, text)) = &file
            && is_test(name)
            && ["(", "<", ":"]
                .iter()
                .all(|after| !text.contains(&format!(" {name}{after}")))
        {
            missing.push(format!("{name} of {path}"));
        }
    }
    missing
}

/// Returns whether a name is long enough to be a sentence, as names of tests are.
fn is_test(name: &str) -> bool {
    let is_of_name =
        |letter: char| letter.is_ascii_lowercase() || letter == '_' || letter.is_ascii_digit();
    name.matches('_').count() >= 3 && name.chars().all(is_of_name)
}

#[test]
fn each_page_is_linked_and_what_it_names_is_there() {
    let map = std::fs::read_to_string(root().join("crates/README.md")).unwrap();
    let mut complaints = Vec::new();
    for name in CRATES {
        let path = format!("crates/{name}/README.md");
        let Ok(page) = std::fs::read_to_string(root().join(&path)) else {
            complaints.push(format!("{path} is missing"));
            continue;
        };
        if !map.contains(&format!("]({name}/README.md)")) {
            complaints.push(format!("crates/README.md does not link {path}"));
        }
        let headings = page.lines().filter_map(|line| line.strip_prefix("## "));
        if !headings.eq(HEADINGS) {
            complaints.push(format!("{path}: its headings are not {HEADINGS:?}"));
        }
        let text_of = |path: &str| std::fs::read_to_string(root().join(path)).ok();
        let missing = missing(&page, text_of).into_iter();
        complaints.extend(missing.map(|name| format!("{path} names {name}, which is not there")));
    }
    report(&complaints);
}

#[test]
fn a_page_that_names_what_is_not_there_is_told() {
    let page = "`a/b.rs` `it_holds_at_all_times`, ```\n`c/d.rs`\n``` `a/b.rs` `it_is_not_there_now` `gone/e.py` `some`";
    let text_of =
        |path: &str| (path == "a/b.rs").then(|| "fn it_holds_at_all_times() {}".to_owned());
    assert_eq!(
        missing(page, text_of),
        ["it_is_not_there_now of a/b.rs", "gone/e.py"]
    );
}
