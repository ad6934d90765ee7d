//! Rules about words: one word for one thing, nothing left open, nothing of one machine.

use crate::tree::{File, files, report};

const TEXTS: [&str; 6] = [".rs", ".toml", ".md", ".py", ".sh", ".yml"];

/// Words that the dictionary replaces, in parts so that this file does not hold them.
const FOREIGN_WORDS: [(&str, &str, &str); 5] = [
    ("ten", "ant", "caller or namespace"),
    ("ten", "ants", "callers or namespaces"),
    ("thro", "ttled", "rejected (quota) or shed (overload)"),
    ("thro", "ttling", "rejecting (quota) or shedding (overload)"),
    ("cre", "dits", "request units"),
];

const OPEN_ENDS: [(&str, &str); 5] = [
    ("TO", "DO"),
    ("FIX", "ME"),
    ("X", "XX"),
    ("todo", "!("),
    ("unimplemented", "!("),
];

/// Folders of the machine on which somebody happened to work.
const MACHINE_PATHS: [(&str, &str); 3] = [("/wo", "rk/"), ("/tmp", "/wt-"), ("/ro", "ot/")];

/// Complains of each line for which `find` has something to say.
fn complain(find: impl Fn(&str) -> Option<String>) {
    let mut complaints = Vec::new();
    for File { path, text } in files(&TEXTS) {
        for (at, line) in text.lines().enumerate() {
            if let Some(complaint) = find(line) {
                complaints.push(format!("{path}:{}: {complaint}", at + 1));
            }
        }
    }
    report(&complaints);
}

fn has_word(line: &str, word: &str) -> bool {
    let is_part = |neighbour: Option<char>| neighbour.is_some_and(char::is_alphanumeric);
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !is_part(before) && !is_part(after)
    })
}

#[test]
fn the_dictionary_is_kept() {
    complain(|line| {
        let lower = line.to_lowercase();
        FOREIGN_WORDS.iter().find_map(|(head, tail, instead)| {
            let word = format!("{head}{tail}");
            has_word(&lower, &word).then(|| format!("'{word}': say {instead}"))
        })
    });
}

#[test]
fn nothing_is_left_open() {
    complain(|line| {
        OPEN_ENDS.iter().find_map(|(head, tail)| {
            let mark = format!("{head}{tail}");
            let is_there = if mark.ends_with('(') {
                line.contains(&mark)
            } else {
                has_word(line, &mark)
            };
            is_there.then(|| format!("'{mark}' is left open"))
        })
    });
}

#[test]
fn no_path_of_one_machine_is_written_down() {
    complain(|line| {
        MACHINE_PATHS.iter().find_map(|(head, tail)| {
            let path = format!("{head}{tail}");
            line.contains(&path)
                .then(|| format!("'{path}' exists on one machine only"))
        })
    });
}

#[test]
fn words_are_found_whole() {
    assert!(has_word("a word, here", "word"));
    assert!(has_word("word", "word"));
    assert!(has_word("umbo_word_x", "word"));
    assert!(!has_word("swords words", "word"));
}
