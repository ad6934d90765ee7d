//! Rule about modules: within a crate they do not refer to each other in circles.
//!
//! A module is a source file. It refers to another one where its code, tests left out, names a path that
//! begins with `crate`, `self`, `super` or the name of a child, whether in a `use` or elsewhere; the file is
//! the longest part of the path that is a module. A file that hands on the items of its own children
//! (`pub use`) does not refer to them. Calls of methods name no file and are not seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{File, files, report};

/// Name of a module: the parts of its path below `src`, none for the root of a crate.
type Module = Vec<String>;
type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// Returns the code of a file without comments, texts and the tests at its end.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod ").unwrap_or(text.len());
    let mut code = String::new();
    // The quote as a character opens no text.
    for line in text[..end].replace("'\"'", "").lines() {
        let mut is_quoted = false;
        let mut characters = line.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '\\' if is_quoted => drop(characters.next()),
                '"' => is_quoted = !is_quoted,
                '/' if !is_quoted && characters.peek() == Some(&'/') => break,
                _ if is_quoted => {}
                _ => code.push(character),
            }
        }
        code.push(' ');
    }
    code
}

/// Returns the paths of a tree of `use`.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.replace(' ', "")];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut part, mut paths) = (0, String::new(), Vec::new());
    for character in inner.chars().chain([',']) {
        match character {
            ',' if depth == 0 => {
                let branches = expand(part.trim()).into_iter();
                paths.extend(branches.map(|branch| format!("{}{branch}", head.trim())));
                part.clear();
                continue;
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        part.push(character);
    }
    paths
}

/// Returns the paths that code names: of each, whether it hands something on.
fn paths(code: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let (mut rest, mut outside) = (code, String::new());
    while let Some(at) = rest.find("use ") {
        let is_word = rest[..at].ends_with([' ', ')']) || at == 0;
        let end = rest[at..].find(';').map_or(rest.len(), |end| at + end);
        if is_word {
            let before = rest[..at].trim_end();
            let is_handed_on = before.ends_with("pub") || before.ends_with(')');
            let tree = &rest[at + "use ".len()..end];
            let paths = expand(tree).into_iter();
            found.extend(paths.map(|path| (path, is_handed_on)));
            outside.push_str(&rest[..at]);
        } else {
            outside.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    outside.push_str(rest);
    let is_path = |character: char| character.is_alphanumeric() || "_:".contains(character);
    let words = outside.split(|character| !is_path(character));
    let words = words.filter(|word| word.contains("::"));
    found.extend(words.map(|word| (word.to_owned(), false)));
    found
}

/// Returns the module that a path in `from` names; none where it is not of this crate.
fn resolve(from: &Module, path: &str, modules: &BTreeSet<Module>) -> Option<Module> {
    let mut parts: Vec<&str> = path.split("::").collect();
    let mut at = from.clone();
    match parts[0] {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            while parts.get(1) == Some(&"super") {
                at.pop()?;
                parts.remove(0);
            }
            at.pop()?;
        }
        child => {
            at.push(child.to_owned());
            modules.get(&at)?;
        }
    }
    for part in &parts[1..] {
        at.push((*part).to_owned());
        if !modules.contains(&at) {
            at.pop();
            break;
        }
    }
    (at != *from && modules.contains(&at)).then_some(at)
}

/// Returns which modules of a crate refer to which.
fn graph(sources: &[(Module, String)]) -> Graph {
    let modules: BTreeSet<Module> = sources.iter().map(|(module, _)| module.clone()).collect();
    let refers = |(module, text): &(Module, String)| {
        let named = paths(&code(text)).into_iter();
        let named = named.filter_map(|(path, is_handed_on)| {
            let named = resolve(module, &path, &modules)?;
            let is_own_child = named.starts_with(module);
            (!(is_handed_on && is_own_child)).then_some(named)
        });
        (module.clone(), named.collect())
    };
    sources.iter().map(refers).collect()
}

/// Returns the modules that can be reached from one.
fn reach(graph: &Graph, from: &Module) -> BTreeSet<Module> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for next in &graph[module] {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}

/// Returns the circles of a graph: modules that reach each other.
fn circles(graph: &Graph) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<_, _> = graph
        .keys()
        .map(|from| (from, reach(graph, from)))
        .collect();
    let of = |module: &Module| -> Vec<String> {
        let both = reached[module].iter();
        let both = both.filter(|other| reached[other].contains(module));
        both.map(|one| one.join("::")).collect()
    };
    let circles = graph
        .keys()
        .filter(|module| reached[*module].contains(*module));
    circles.map(of).collect()
}

/// Returns the sources of all crates, by the folder of the crate.
fn sources() -> BTreeMap<String, Vec<(Module, String)>> {
    let mut sources: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for File { path, text } in files(&[".rs"]) {
        let Some((folder, file)) = path.split_once("/src/") else {
            continue;
        };
        let parts = file.trim_end_matches(".rs").split('/').map(str::to_owned);
        let mut module: Module = parts.collect();
        if module == ["lib"] || module == ["main"] {
            module.clear();
        }
        if module.last().is_none_or(|last| last != "tests") {
            sources
                .entry(folder.to_owned())
                .or_default()
                .push((module, text));
        }
    }
    sources
}

#[test]
fn modules_do_not_refer_to_each_other_in_circles() {
    let mut complaints = Vec::new();
    for (folder, sources) in sources() {
        for circle in circles(&graph(&sources)) {
            complaints.push(format!("{folder}: {} go in a circle", circle.join(", ")));
        }
    }
    report(&complaints);
}

#[test]
fn circles_are_found_and_what_is_handed_on_is_none() {
    let module = |name: &str| -> Module { name.split("::").map(str::to_owned).collect() };
    let source = |(name, text): (&str, &str)| (module(name), text.to_owned());
    let found = |texts: &[(&str, &str)]| {
        let sources: Vec<_> = texts.iter().copied().map(source).collect();
        circles(&graph(&sources))
    };
    let circle =
        |names: &[&str]| BTreeSet::from([names.iter().map(|name| (*name).to_owned()).collect()]);
    let two = [
        ("a", "use crate::b::{C, d::{E}};"),
        ("b", "fn f() { super::a::g() }"),
    ];
    assert_eq!(found(&two), circle(&["a", "b"]));
    let parent = [("a", "mod b;\nuse self::b::C;"), ("a::b", "use super::D;")];
    assert_eq!(found(&parent), circle(&["a", "a::b"]));
    let handed_on = [
        ("a", "mod b;\npub use self::b::C;"),
        ("a::b", "use super::D;"),
    ];
    assert!(found(&handed_on).is_empty());
    let silent = [
        ("a", "use crate::b::C;"),
        (
            "b",
            "// crate::a\n#[cfg(test)]\nmod tests { use crate::a; }",
        ),
    ];
    assert!(found(&silent).is_empty());
}
