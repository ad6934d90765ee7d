//! The files of the project: everything in the work tree but what is built, fetched or hidden.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours.
const FOREIGN: [&str; 4] = ["target", "data", "__pycache__", "node_modules"];

/// Returns the top folder of the project.
pub(crate) fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

/// One file with its text.
pub(crate) struct File {
    /// Path from the top folder, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Returns all files whose name ends in one of `endings`, sorted by path.
pub(crate) fn files(endings: &[&str]) -> Vec<File> {
    let root = root();
    let mut folders = vec![root.clone()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !FOREIGN.contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                let relative = path.strip_prefix(&root).unwrap();
                found.push(File {
                    path: relative.to_str().unwrap().to_owned(),
                    text: fs::read_to_string(&path).unwrap(),
                });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(!found.is_empty(), "no file ends in {endings:?}");
    found
}

/// Fails with all complaints at once.
pub(crate) fn report(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}
