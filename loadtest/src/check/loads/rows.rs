//! Rows of files and of exports, in a form in which equal rows are equal texts.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde_json::{Map, Value};

use super::tier::Tier;
use crate::failure::Failure;

/// Names a file of all cities.
const CITIES_VARIABLE: &str = "UMBO_TESTS_CITIES";
/// The cities that the tests load without it.
const CITIES: &[u8] = include_bytes!("../../../../tests/data/cities-sample.ndjson");

/// The fields of a row.
pub(super) type Row = Map<String, Value>;

/// How many rows there are and a digest of them, the same for the same rows in any order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Digest {
    pub(super) rows: u64,
    sum: u64,
}

impl Digest {
    fn add(&mut self, row: Row) {
        let mut hasher = DefaultHasher::new();
        text(row).hash(&mut hasher);
        self.rows += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }

    /// Digests the rows of a file.
    pub(super) fn of_file(path: &Path) -> Result<Self, Failure> {
        let mut digest = Self::default();
        each(path, |row| digest.add(row))?;
        Ok(digest)
    }

    /// Digests the rows of a namespace.
    pub(super) fn of_namespace(tier: &mut Tier, namespace: &str) -> Result<Self, Failure> {
        let file = tier.lab.path("export.ndjson");
        export(tier, namespace, &file)?;
        let digest = Self::of_file(&file);
        remove(&file)?;
        digest
    }
}

/// Exports a namespace to a file, in the format of its name.
pub(super) fn export(tier: &Tier, namespace: &str, file: &Path) -> Result<(), Failure> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let path = file.display().to_string();
    let export = ["kv", "export", namespace, "-f", &path, "--overwrite"];
    tier.run(&export, folder).map(drop)
}

/// Returns whether no file of all cities is named.
pub(super) fn are_cities_a_sample() -> bool {
    std::env::var_os(CITIES_VARIABLE).is_none()
}

/// Writes the cities to a file.
pub(super) fn write_cities(path: &Path) -> Result<(), Failure> {
    let text = match std::env::var_os(CITIES_VARIABLE) {
        Some(path) => std::fs::read(&path).map_err(Failure::io(CITIES_VARIABLE))?,
        None => CITIES.to_vec(),
    };
    std::fs::write(path, text).map_err(Failure::io(path.display().to_string()))
}

/// Returns a row as a text: without its version, its fields in the order of their names.
pub(super) fn text(mut row: Row) -> String {
    row.remove("version");
    Value::Object(row).to_string()
}

/// Calls `take` with each row of a file of NDJSON.
pub(super) fn each(path: &Path, mut take: impl FnMut(Row)) -> Result<(), Failure> {
    let file = File::open(path).map_err(Failure::io(path.display().to_string()))?;
    for line in BufReader::with_capacity(1 << 20, file).lines() {
        let line = line.map_err(Failure::io(path.display().to_string()))?;
        let row: Row = serde_json::from_str(&line)?;
        if !row.contains_key("end") {
            take(row);
        }
    }
    Ok(())
}

pub(super) fn remove(path: &Path) -> Result<(), Failure> {
    std::fs::remove_file(path).map_err(Failure::io(path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_rows_have_one_digest_in_any_order_and_others_another() {
        let folder = tempfile::tempdir().unwrap();
        let digest = |text: &str| {
            let path = folder.path().join("rows");
            std::fs::write(&path, text).unwrap();
            Digest::of_file(&path).unwrap()
        };
        let first = digest("{\"pk\":\"a\",\"v\":\"1\"}\n{\"pk\":\"b\",\"v\":\"2\"}\n");
        let export = "{\"v\":\"2\",\"pk\":\"b\",\"version\":7}\n{\"pk\":\"a\",\"version\":8,\"v\":\"1\"}\n\
                      {\"end\":{\"rows\":2}}\n";
        assert_eq!((first, first.rows), (digest(export), 2));
        assert_ne!(
            first,
            digest("{\"pk\":\"a\",\"v\":\"2\"}\n{\"pk\":\"b\",\"v\":\"1\"}\n")
        );
        let twice = "{\"pk\":\"a\"}\n{\"pk\":\"a\"}\n";
        assert_ne!(digest(twice), digest("{\"pk\":\"a\"}\n"));
    }
}
