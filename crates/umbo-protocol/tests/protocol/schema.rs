//! `shard.proto` says the same as the messages of this crate: every field of each, with its number,
//! type and label.

use std::collections::{BTreeMap, BTreeSet};

/// Lines like `Request.ask uint64 cancel = 17`.
type Fields = BTreeSet<String>;

fn field(message: &str, group: &str, label: &str, kind: &str, name: &str, number: &str) -> String {
    let group = if group.is_empty() {
        String::new()
    } else {
        format!(".{group}")
    };
    format!("{message}{group} {label} {kind} {name} = {number}").replace("  ", " ")
}

fn of_proto(text: &str) -> Fields {
    let (mut message, mut group) = (String::new(), String::new());
    let mut fields = Fields::new();
    for line in text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("//"))
    {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            ["message", name, "{"] => name.clone_into(&mut message),
            ["message", name, "{}"] => {
                fields.insert(format!("{name} has no fields"));
            }
            ["oneof", name, "{"] => name.clone_into(&mut group),
            ["}"] => group.clear(),
            [kind, name, "=", number] if !message.is_empty() => {
                let number = number.trim_end_matches(';');
                fields.insert(field(&message, &group, "", kind, name, number));
            }
            [label, kind, name, "=", number] => {
                let number = number.trim_end_matches(';');
                fields.insert(field(&message, &group, label, kind, name, number));
            }
            _ => {}
        }
    }
    fields
}

/// A field or variant of the source: what its attribute says, its name and its type.
struct Member {
    attribute: String,
    name: String,
    kind: String,
}

/// Returns the members of each struct and enum of the source.
fn members(text: &str) -> BTreeMap<String, Vec<Member>> {
    let mut all: BTreeMap<String, Vec<Member>> = BTreeMap::new();
    let (mut current, mut attribute) = (String::new(), String::new());
    for line in text.lines().map(str::trim) {
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        let begins = line
            .strip_prefix("struct ")
            .or_else(|| line.strip_prefix("enum "));
        if let Some(begins) = begins {
            let name = begins.split_whitespace().next().expect("a name");
            name.clone_into(&mut current);
            all.entry(current.clone()).or_default();
        } else if let Some(said) = line.strip_prefix("#[prost(") {
            said.trim_end_matches(")]").clone_into(&mut attribute);
        } else if let Some(member) = line.strip_suffix(',').filter(|_| !attribute.is_empty()) {
            let (name, kind) = member.split_once(": ").unwrap_or_else(|| {
                let variant = member.strip_suffix(')').expect("a variant");
                variant.split_once('(').expect("a variant")
            });
            all.entry(current.clone()).or_default().push(Member {
                attribute: std::mem::take(&mut attribute),
                name: name.to_owned(),
                kind: kind.to_owned(),
            });
        }
    }
    all
}

/// Returns what stands in quotes after a word.
fn quoted<'a>(attribute: &'a str, word: &str) -> Option<&'a str> {
    let (_, after) = attribute.split_once(word)?;
    after.split('"').nth(1)
}

fn snake(variant: &str) -> String {
    let mut name = String::new();
    for letter in variant.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

fn of_source(text: &str) -> Fields {
    let all = members(text);
    let groups: BTreeSet<_> = all
        .values()
        .flatten()
        .filter_map(|member| quoted(&member.attribute, "oneof"))
        .collect();
    let mut fields = Fields::new();
    let mut add = |message: &str, group: &str, member: &Member| {
        let attribute = &member.attribute;
        let words: Vec<_> = attribute.split(", ").collect();
        let number = quoted(attribute, "tag").expect("a number");
        let kind = match words[0] {
            "message" => {
                let kind = member.kind.split('<').next_back().expect("a type");
                kind.trim_end_matches('>')
            }
            kind => kind.split(' ').next().expect("a type"),
        };
        let label = match words[..] {
            [_, "repeated", _] => "repeated",
            // A message is there or not without being called optional.
            [kind, "optional", _] if kind != "message" => "optional",
            _ => "",
        };
        fields.insert(field(
            message,
            group,
            label,
            kind,
            &snake(&member.name),
            number,
        ));
    };
    let mut empty = Vec::new();
    for (message, own) in &all {
        if groups.contains(message.as_str()) {
            continue;
        }
        if own.is_empty() {
            empty.push(format!("{message} has no fields"));
        }
        for member in own {
            match quoted(&member.attribute, "oneof") {
                None => add(message, "", member),
                Some(group) => {
                    for variant in &all[group] {
                        add(message, &member.name, variant);
                    }
                }
            }
        }
    }
    fields.extend(empty);
    fields
}

#[test]
fn the_schema_says_the_same_as_the_code() {
    let proto = of_proto(include_str!("../../shard.proto"));
    let source = of_source(include_str!("../../src/message.rs"));
    assert!(source.len() > 100, "{} fields", source.len());
    let missing: Vec<_> = source.difference(&proto).collect();
    let invented: Vec<_> = proto.difference(&source).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "missing {missing:#?}, invented {invented:#?}"
    );
}

#[test]
fn the_service_has_the_name_and_path_that_are_served() {
    let proto = include_str!("../../shard.proto");
    let word_after = |word: &str| {
        let (_, after) = proto.split_once(word).expect("it is there");
        after
            .split([' ', ';', '('])
            .find(|word| !word.is_empty())
            .expect("a word")
    };
    let service = format!("{}.{}", word_after("package "), word_after("service "));
    assert_eq!(service, umbo_protocol::SERVICE_NAME);
    let path = format!("/{service}/{}", word_after("rpc "));
    assert_eq!(path, umbo_protocol::EXCHANGE_PATH);
}
