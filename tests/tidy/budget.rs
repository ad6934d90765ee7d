//! Rules about size and prose: `tests/budget.toml` holds the lines of product code of each crate, the functions that are
//! too long, and the clauses that have to be read twice. Counts may fall; a commit that raises one says what for.
//!
//! Counting is textual. Product code is a line of a crate that is neither blank nor a comment nor of a test, of the
//! suites behind the feature `testing`, or of the simulation.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::tree::{File, files, report, root};

const RECORD: &str = "tests/budget.toml";
/// Lines of code that a function may have.
const FUNCTION_LINES_MAX: usize = 70;
/// A count that has fallen by more than this must be lowered in the record too, so that later changes cannot use it up unseen. Less
/// may stay, so that not every change touches the record: lines of product code, and clauses.
const SLACK: [usize; 2] = [100, 10];
/// The entry of the page's scripts among the crates.
const PAGE: &str = "page";

/// Beginnings of clauses that a reader has to read twice, because a pronoun stands where a noun could: each is a
/// sequence of words, with the alternatives of a word separated by `|`.
const READ_TWICE: [&str; 9] = [
    "of|for|to|by|in|from which",
    "none where|of|is|if|has",
    "is|are none",
    "that|those of",
    "those|one that",
    "what it|they|is|are|was|has|of|one",
    "as many|far|long|much as",
    "where it|there|they|that|one|none",
    "of its|their own",
];
/// Words that house rules replace wherever they stand: `with` or `next to`, `whether`, `without`.
const OLD_WORDS: [&str; 3] = ["beside", "be it", "for want of"];

/// Returns the product code of all crates: the lines of each file before its tests.
fn product(files: &[File]) -> Vec<(&str, &str, Vec<&str>)> {
    let mut others = BTreeSet::new();
    let mut found = Vec::new();
    for File { path, text } in files {
        let Some((owner, rest)) = path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        let (lines, declared) = before_tests(text);
        let stem = path.trim_end_matches(".rs");
        let folder = match stem.rsplit_once('/') {
            Some((folder, "lib" | "main")) => folder,
            _ => stem,
        };
        others.extend(declared.iter().map(|module| format!("{folder}/{module}")));
        let of_tests =
            |part: &str| part == "tests" || part == "benches" || part.ends_with("tests.rs");
        if owner != "umbo-simulation" && !rest.split('/').any(of_tests) {
            found.push((owner, path.as_str(), lines));
        }
    }
    let is_other = |path: &str| {
        let stem = path.trim_end_matches(".rs");
        others.iter().any(|other| {
            let rest = stem.strip_prefix(other.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    found.retain(|(_, path, _)| !is_other(path));
    found
}

/// Returns the lines of a file before its module of tests, and the modules in files of their own that are compiled for
/// tests and suites only.
fn before_tests(text: &str) -> (Vec<&str>, Vec<&str>) {
    let (mut lines, mut declared) = (Vec::new(), Vec::new());
    let mut begin = None;
    for line in text.lines() {
        let is_of_tests = line.starts_with("#[cfg(")
            && !line.contains("not(")
            && (line.contains("test)") || line.contains("test,") || line.contains("\"testing\""));
        if is_of_tests {
            begin = Some(lines.len());
        } else if let Some(at) = begin
            && !line.starts_with("#[")
            && !line.starts_with("//")
        {
            begin = None;
            let module = line
                .trim_start_matches("pub ")
                .trim_start_matches("pub(crate) ");
            if let Some(module) = module.strip_prefix("mod ") {
                let Some(module) = module.strip_suffix(';') else {
                    lines.truncate(at);
                    return (lines, declared);
                };
                declared.push(module);
            }
        }
        lines.push(line);
    }
    (lines, declared)
}

fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    !line.is_empty() && !line.starts_with("//")
}

fn code(lines: &[&str]) -> usize {
    lines.iter().filter(|line| is_code(line)).count()
}

/// Returns the functions of a file with their lines of code.
fn functions<'a>(lines: &[&'a str]) -> Vec<(&'a str, usize)> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let declaration = line.trim_start();
        let Some((before, rest)) = declaration.split_once("fn ") else {
            continue;
        };
        let qualifiers = ["const", "async", "unsafe", "default", "pub"];
        let mut words = before.split_whitespace();
        if !words.all(|word| word.starts_with("pub(") || qualifiers.contains(&word)) {
            continue;
        }
        let name = rest
            .split(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .next();
        let indent = &line[..line.len() - declaration.len()];
        let is_end = |line: &&str| {
            line.strip_prefix(indent)
                .is_some_and(|line| line.starts_with('}'))
        };
        // A declaration without a body ends in a semicolon, and a function of one line in a brace.
        let is_short =
            lines[at..]
                .iter()
                .find_map(|line| match line.trim_end().chars().next_back() {
                    Some('{') => Some(false),
                    Some(';' | '}') => Some(true),
                    _ => None,
                });
        if is_short == Some(false)
            && let Some(end) = lines[at..].iter().position(is_end)
        {
            found.push((name.unwrap_or_default(), code(&lines[at..=at + end])));
        }
    }
    found
}

/// Returns the number of clauses that have to be read twice in the comments of a file.
fn read_twice(lines: &[&str]) -> usize {
    let comments = lines
        .iter()
        .filter_map(|line| line.trim_start().strip_prefix("//"));
    let text: Vec<_> = comments
        .map(|line| line.trim_start_matches(['/', '!']))
        .collect();
    let text = text.join(" ").to_lowercase();
    let words: Vec<_> = text.split_whitespace().collect();
    let is_mark = |letter: char| !letter.is_alphanumeric();
    let phrases = READ_TWICE.iter().chain(&OLD_WORDS);
    let phrases: Vec<Vec<_>> = phrases.map(|phrase| phrase.split(' ').collect()).collect();
    let begins = |at: usize, phrase: &[&str]| {
        let words = words.get(at..at + phrase.len());
        words.is_some_and(|words| {
            (words.iter().zip(phrase).enumerate()).all(|(place, (word, choice))| {
                let is_last = place + 1 == phrase.len();
                let word = if place == 0 {
                    word.trim_start_matches(is_mark)
                } else {
                    *word
                };
                let word = if is_last {
                    word.trim_end_matches(is_mark)
                } else {
                    word
                };
                choice.split('|').any(|choice| choice == word)
            })
        })
    };
    let found = (0..words.len()).filter(|&at| phrases.iter().any(|phrase| begins(at, phrase)));
    found.count()
}

type Counts = BTreeMap<String, usize>;

/// Counts the tree: lines, long functions and clauses.
fn counted() -> [Counts; 3] {
    let sources = files(&[".rs"]);
    let [mut lines, mut long, mut clauses] = [(); 3].map(|()| Counts::new());
    for (owner, path, text) in product(&sources) {
        *lines.entry(owner.to_owned()).or_default() += code(&text);
        *clauses.entry(owner.to_owned()).or_default() += read_twice(&text);
        let functions = functions(&text).into_iter();
        let functions = functions.filter(|(_, lines)| *lines > FUNCTION_LINES_MAX);
        long.extend(functions.map(|(name, lines)| (format!("{path} {name}"), lines)));
    }
    let scripts = files(&[".js"]).into_iter();
    let scripts = scripts.filter(|file| file.path.starts_with("crates/"));
    let of_page = scripts.map(|file| code(&file.text.lines().collect::<Vec<_>>()));
    lines.insert(PAGE.to_owned(), of_page.sum());
    [lines, long, clauses]
}

fn recorded(record: &Table, section: &str) -> Counts {
    let entries = record
        .get(section)
        .and_then(Value::as_table)
        .into_iter()
        .flatten();
    let count = |value: &Value| {
        value
            .as_integer()
            .and_then(|count| usize::try_from(count).ok())
    };
    entries
        .map(|(name, value)| (name.clone(), count(value).expect("a count")))
        .collect()
}

/// Compares one kind of count with its record; `slack` is how far it may have fallen without being lowered there.
fn compare(section: &str, counted: &Counts, recorded: &Counts, slack: usize) -> Vec<String> {
    let mut complaints = Vec::new();
    let names: BTreeSet<_> = counted.keys().chain(recorded.keys()).collect();
    for name in names {
        let now = counted.get(name).copied().unwrap_or(0);
        let before = recorded.get(name).copied().unwrap_or(0);
        if now > before {
            complaints.push(format!(
                "{section}, {name}: {now}, and {before} are recorded: write less, or raise it in {RECORD} and say in the commit what for"
            ));
        } else if now + slack < before {
            complaints.push(format!(
                "{section}, {name}: {now}, and {before} are recorded: lower it in {RECORD}"
            ));
        }
    }
    complaints
}

#[test]
fn size_and_prose_stay_within_the_budget() {
    let record = std::fs::read_to_string(root().join(RECORD)).unwrap();
    let record: Table = record.parse().unwrap();
    let [lines, long, clauses] = counted();
    let kinds = [
        ("lines", lines, SLACK[0]),
        ("long_functions", long, 0),
        ("clauses", clauses, SLACK[1]),
    ];
    let complaints = kinds.iter().flat_map(|(section, counted, slack)| {
        compare(section, counted, &recorded(&record, section), *slack)
    });
    report(&complaints.collect::<Vec<_>>());
}

#[test]
fn product_code_ends_where_tests_begin() {
    let text = "#[cfg(test)]\nmod given;\nmod kept;\n#[cfg(feature = \"testing\")]\npub mod suite;\nfn a() {}\n\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n";
    let (lines, declared) = before_tests(text);
    assert_eq!(declared, ["given", "suite"]);
    assert_eq!(lines.iter().filter(|line| line.contains("fn ")).count(), 1);
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let tree = [
        file("crates/umbo-a/src/lib.rs", text),
        file("crates/umbo-a/src/given.rs", ""),
        file("crates/umbo-a/src/suite/deep.rs", ""),
        file("crates/umbo-a/src/kept.rs", ""),
        file("crates/umbo-a/tests/a.rs", ""),
    ];
    let paths: Vec<_> = product(&tree)
        .into_iter()
        .map(|(_, path, _)| path)
        .collect();
    assert_eq!(
        paths,
        ["crates/umbo-a/src/lib.rs", "crates/umbo-a/src/kept.rs"]
    );
}

#[test]
fn functions_are_counted_without_blanks_and_comments() {
    let text = "impl A {\n    pub(crate) async fn long(\n        &self,\n    ) {\n        // Why.\n\n        work();\n    }\n    fn bare();\n    fn short() {}\n}\n";
    assert_eq!(functions(&text.lines().collect::<Vec<_>>()), [("long", 5)]);
}

#[test]
fn clauses_are_found_over_the_ends_of_lines() {
    let text = "/// The rows of\n/// which it is (none is one) made, by which.\nlet of = which; // none\n//! As long as `that of` one.";
    assert_eq!(read_twice(&text.lines().collect::<Vec<_>>()), 5);
}

#[test]
fn a_count_may_fall_and_not_rise() {
    let counts = |pairs: &[(&str, usize)]| -> Counts {
        pairs
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    };
    let record = counts(&[("a", 100)]);
    for (now, complaints) in [(100, 0), (101, 1), (91, 0), (89, 1)] {
        assert_eq!(
            compare("lines", &counts(&[("a", now)]), &record, 10).len(),
            complaints,
            "{now}"
        );
    }
    assert_eq!(
        compare("lines", &counts(&[("a", 100), ("new", 1)]), &record, 10).len(),
        1
    );
    assert_eq!(compare("lines", &counts(&[]), &record, 10).len(), 1);
}
