//! The source of the document: one table an operation in `crates/umbo-api/openapi`, a file a subject; `shared.toml` has
//! what several subjects name.
//!
//! A head like `"GET /v1/ns/{ns}/kv/{pk}[/{sk}]"` stands for two operations, without and with the part in brackets; its
//! `id` has such a part too. `like` takes the fields that a table lacks from another one of its file. A word in upper
//! case is a set, and a schema that says `$NAME` means the constant of that name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use toml::Table;

use crate::constants;

/// Files of the subjects. A problem that several operations answer is named after the first of them.
const SUBJECTS: [&str; 16] = [
    "rows",
    "many",
    "cost",
    "namespaces",
    "loads",
    "versions",
    "tokens",
    "service",
    "cluster",
    "callers",
    "usage",
    "quotas",
    "hot",
    "shed",
    "requests",
    "history",
];

/// What several subjects name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shared {
    /// What operations are sorted by, with a description.
    pub(crate) tags: Table,
    /// Names of words together, separated by spaces: error codes, parameters or header fields.
    sets: BTreeMap<String, String>,
    /// What operations have in common whose paths begin so.
    planes: BTreeMap<String, Plane>,
    /// Header fields that problems have: `any` of them, those of a status, and rejections.
    pub(crate) problems: BTreeMap<String, String>,
    /// Header fields of answers, with a description.
    pub(crate) headers: BTreeMap<String, String>,
    parameters: BTreeMap<String, Table>,
}

/// What operations have in common whose paths begin alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plane {
    #[serde(default)]
    parameters: String,
    /// Header fields of every answer.
    #[serde(default)]
    headers: String,
    /// Header fields of an answer with a body.
    #[serde(default)]
    bodies: String,
    errors: String,
}

/// A table of an operation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    summary: String,
    #[serde(default)]
    about: String,
    /// Beyond those of its path and its plane.
    #[serde(default)]
    parameters: String,
    /// Content; it may be absent if it ends in a question mark.
    body: Option<String>,
    answers: BTreeMap<String, Answer>,
    /// Beyond those of its plane.
    #[serde(default)]
    errors: String,
    /// Of every answer, in place of those of its plane.
    headers: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    pub(crate) about: String,
    pub(crate) content: Option<String>,
    #[serde(default)]
    pub(crate) headers: String,
}

/// A parameter.
#[derive(Debug, Clone)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) place: String,
    pub(crate) is_required: bool,
    pub(crate) about: String,
    pub(crate) schema: Value,
}

/// An operation, with all that it has from elsewhere.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) tag: String,
    pub(crate) id: String,
    pub(crate) summary: String,
    pub(crate) about: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) body: Option<String>,
    pub(crate) answers: BTreeMap<String, Answer>,
    pub(crate) errors: Vec<String>,
    /// Header fields of every answer.
    pub(crate) headers: Vec<String>,
    /// Header fields of an answer with a body, beyond those of every one.
    pub(crate) bodies: String,
}

/// The source as a whole.
pub(crate) struct Source {
    pub(crate) shared: Shared,
    pub(crate) operations: Vec<Operation>,
}

/// Returns the folder of the crate that has the document.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/umbo-api")
}

fn table(name: &str) -> Table {
    let path = folder().join(format!("openapi/{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let table = text.parse();
    table.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads the source.
pub(crate) fn read() -> Source {
    let shared: Shared = table("shared").try_into().unwrap();
    let operations = SUBJECTS.into_iter().flat_map(|name| subject(name, &shared));
    Source {
        operations: operations.collect(),
        shared,
    }
}

/// Returns a text as one line.
fn line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Shared {
    /// Returns the words of texts, in their order, with those of each set in place of its name.
    pub(crate) fn words(&self, texts: &[&str]) -> Vec<String> {
        let words = texts.iter().flat_map(|text| text.split_whitespace());
        let expanded = words.flat_map(|word| {
            if word.contains(|letter: char| letter.is_lowercase()) {
                return vec![word.to_owned()];
            }
            let set = self.sets.get(word);
            self.words(&[set.unwrap_or_else(|| panic!("no set {word}"))])
        });
        expanded.collect()
    }
}

/// Makes a parameter of a table.
fn parameter(key: &str, table: &Table) -> Parameter {
    let text = |field| table.get(field).map(|value| value.as_str().unwrap());
    let known = ["name", "in", "about", "required", "schema"];
    let unknown = table.keys().find(|field| !known.contains(&field.as_str()));
    assert_eq!(unknown, None, "parameter {key}");
    let place = text("in").unwrap();
    let is_required = table
        .get("required")
        .is_some_and(|it| it.as_bool().unwrap());
    let schema = table.get("schema").map(serde_json::to_value);
    let mut schema = schema.map_or_else(|| json!({"type": "string"}), Result::unwrap);
    constants::substitute(&mut schema);
    Parameter {
        name: text("name").unwrap_or(key).to_owned(),
        place: place.to_owned(),
        is_required: is_required || place == "path",
        about: line(text("about").unwrap()),
        schema,
    }
}

/// Returns the operations of a file.
fn subject(name: &str, shared: &Shared) -> Vec<Operation> {
    let mut file = table(name);
    let tag = file.remove("tag").unwrap();
    let own = file.remove("parameters").unwrap_or(Table::new().into());
    let own: BTreeMap<String, Table> = own.try_into().unwrap();
    let used = RefCell::new(BTreeSet::new());
    let find = |key: &str| {
        let found = own.get(key).or(shared.parameters.get(key));
        used.borrow_mut().insert(key.to_owned());
        let table = found.unwrap_or_else(|| panic!("{name}.toml: no parameter {key}"));
        parameter(key, table)
    };
    let mut operations = Vec::new();
    for (head, entry) in &file {
        let mut entry = entry.as_table().unwrap().clone();
        if let Some(like) = entry.remove("like") {
            for (key, value) in file[like.as_str().unwrap()].as_table().unwrap() {
                entry.entry(key).or_insert_with(|| value.clone());
            }
        }
        let entry = entry.try_into::<Entry>();
        let entry = entry.unwrap_or_else(|error| panic!("{name}.toml, {head}: {error}"));
        let has_longer = head.contains('[');
        for is_longer in [false, true].into_iter().take(1 + usize::from(has_longer)) {
            let mut operation = operation(head, &entry, shared, &find, is_longer);
            operation.tag = tag.as_str().unwrap().to_owned();
            operations.push(operation);
        }
    }
    let used = used.into_inner();
    let idle: Vec<_> = own.keys().filter(|key| !used.contains(*key)).collect();
    assert!(idle.is_empty(), "{name}.toml: nothing takes {idle:?}");
    operations
}

/// Makes an operation of a table: with the parts in brackets, or without.
fn operation(
    head: &str,
    entry: &Entry,
    shared: &Shared,
    find: &dyn Fn(&str) -> Parameter,
    is_longer: bool,
) -> Operation {
    let text = |text: &str| match text.split_once('[') {
        None => text.to_owned(),
        Some((before, rest)) => {
            let (part, after) = rest.split_once(']').unwrap();
            format!("{before}{}{after}", if is_longer { part } else { "" })
        }
    };
    let whole = text(head);
    let (method, path) = whole.split_once(' ').unwrap();
    let of_plane = shared.planes.iter().filter(|(of, _)| path.starts_with(*of));
    let (_, plane) = of_plane.max_by_key(|(of, _)| of.len()).unwrap();
    let of_path = path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());
    let named = shared.words(&[&entry.parameters, &plane.parameters]);
    Operation {
        method: method.to_lowercase(),
        path: path.to_owned(),
        tag: String::new(),
        id: text(&entry.id),
        summary: line(&entry.summary),
        about: line(&entry.about),
        parameters: of_path
            .chain(named.iter().map(String::as_str))
            .map(find)
            .collect(),
        body: entry.body.clone(),
        answers: entry.answers.clone(),
        errors: shared.words(&[&plane.errors, &entry.errors]),
        bodies: plane.bodies.clone(),
        headers: shared.words(&[entry.headers.as_ref().unwrap_or(&plane.headers)]),
    }
}

#[test]
fn sets_and_parameters_of_all_subjects_are_used() {
    let shared: Shared = table("shared").try_into().unwrap();
    let path = folder().join("openapi");
    let names = SUBJECTS.into_iter().chain(["shared"]);
    let texts = names.map(|name| std::fs::read_to_string(path.join(format!("{name}.toml"))));
    let texts: Vec<String> = texts.map(Result::unwrap).collect();
    let is_of_word = |letter: char| letter.is_alphanumeric() || "-_".contains(letter);
    let words = texts
        .iter()
        .flat_map(|text| text.split(|letter| !is_of_word(letter)));
    let mut counts = BTreeMap::<&str, usize>::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    // Each stands once where it is declared.
    let declared = shared.sets.keys().chain(shared.parameters.keys());
    let idle: Vec<_> = declared.filter(|name| counts[name.as_str()] < 2).collect();
    assert!(idle.is_empty(), "nothing names {idle:?}");
}
