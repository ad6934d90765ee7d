//! How far a subject is spread: the files and crates of the product that name it. The numbers may only fall.

use std::collections::BTreeSet;

use crate::tree::files;

/// Files and crates that name loads. What only names them stays small if one crate, `umbo-bulk`, has what they do.
const LOADS: (usize, usize) = (60, 7);

/// Returns whether a line names loads: their crates, a module of that name, or a type whose name begins so.
fn names_loads(line: &str) -> bool {
    let names =
        line.split(|letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':');
    let mut words = names.flat_map(|name| name.split_inclusive("::"));
    let is_type = |word: &str| {
        let rest = word.strip_prefix("Load");
        rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_uppercase()))
    };
    words.any(|word| is_type(word) || ["loads::", "umbo_loads::", "umbo_bulk::"].contains(&word))
}

#[test]
fn loads_are_named_in_few_files_of_few_crates() {
    let (mut count, mut crates) = (0, BTreeSet::new());
    let files = files(&[".rs"]);
    for file in &files {
        let Some((name, path)) = file
            .path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        if name == "umbo-simulation" || path.contains("tests") {
            continue;
        }
        let mut product = file
            .text
            .lines()
            .take_while(|line| *line != "#[cfg(test)]")
            .filter(|line| !line.trim_start().starts_with("//"));
        if product.any(names_loads) {
            count += 1;
            crates.insert(name);
        }
    }
    println!(
        "loads are named in {count} files of {} crates: {crates:?}",
        crates.len()
    );
    assert_eq!(
        (count, crates.len()),
        LOADS,
        "{crates:?}: the numbers may only fall"
    );
}

#[test]
fn a_line_that_names_loads_is_told() {
    assert!(names_loads("use umbo_bulk::Bulk;") && names_loads("let a: LoadSpec = b;"));
    assert!(names_loads("use umbo_api::loads::Part;"));
    assert!(!names_loads("let loads = LoadedSettings::read(Load);"));
    assert!(!names_loads(
        "use crate::uploads::Uploads; // of the metric \"umbo_loads\""
    ));
}
