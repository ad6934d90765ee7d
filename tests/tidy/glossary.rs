//! The glossary of `crates/README.md`: each term once, and no type is called by a word that it replaces.
//!
//! The glossary is a table under the heading `## Glossary` with a line `| term | meaning | not |` for each term;
//! the words of the last column are separated by commas.

use std::collections::BTreeSet;

use crate::tree::{File, files, report};

struct Term {
    name: String,
    replaced: Vec<String>,
}

fn terms() -> Vec<Term> {
    let documents = files(&["README.md"]).into_iter();
    let document = documents
        .filter(|file| file.path == "crates/README.md")
        .map(|file| file.text)
        .next()
        .expect("crates/README.md exists");
    let (_, rest) = document
        .split_once("## Glossary\n")
        .expect("crates/README.md has a glossary");
    let rows = rest.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, _, replaced] = cells[..] else {
            panic!("'{row}' has {} columns, not 3", cells.len())
        };
        Term {
            name: name.to_owned(),
            replaced: replaced
                .split(',')
                .map(|word| word.trim().trim_matches('`').to_owned())
                .filter(|word| !word.is_empty())
                .collect(),
        }
    })
    .collect()
}

/// Returns the name of the type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let words: Vec<_> = line.split_whitespace().collect();
    let at = words
        .iter()
        .position(|word| ["struct", "enum", "trait"].contains(word))?;
    let is_definition = words[..at].iter().all(|word| word.starts_with("pub"));
    let name = words.get(at + 1)?;
    let end = name
        .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .unwrap_or(name.len());
    is_definition.then(|| &name[..end])
}

#[test]
fn each_term_stands_once() {
    let terms = terms();
    assert!(terms.len() >= 30, "the glossary has {} terms", terms.len());
    let names: BTreeSet<_> = terms.iter().map(|term| term.name.to_lowercase()).collect();
    assert_eq!(names.len(), terms.len());
}

#[test]
fn no_type_is_called_by_a_word_that_the_glossary_replaces() {
    let terms = terms();
    let mut complaints = Vec::new();
    for File { path, text } in files(&[".rs"]) {
        for (at, line) in text.lines().enumerate() {
            let Some(name) = defined(line) else { continue };
            let instead = terms
                .iter()
                .find(|term| term.replaced.iter().any(|word| word == name));
            if let Some(term) = instead {
                complaints.push(format!("{path}:{}: '{name}': say {}", at + 1, term.name));
            }
        }
    }
    report(&complaints);
}

#[test]
fn definitions_are_found() {
    assert_eq!(
        defined("pub(crate) struct Exchange<'a> {"),
        Some("Exchange")
    );
    assert_eq!(defined("    enum Look;"), Some("Look"));
    assert_eq!(defined("// the struct Exchange"), None);
}
