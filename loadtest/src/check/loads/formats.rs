//! The cities through every format of files: what is exported afterwards is the same.

use std::collections::BTreeSet;

use super::rows;
use super::tier::Tier;
use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::process::Cores;
use crate::verdict::{Bound, Verdict};

/// Files that are exported and loaded again; their names say their formats.
const FILES: [&str; 5] = ["c.ndjson", "c.ndjson.zst", "c.csv", "c.csv.gz", "c.parquet"];

pub(super) fn formats(_: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut tier = Tier::embedded(Cores::All)?;
    let folder = tier.lab.new_folder("formats")?;
    rows::write_cities(&folder.join("cities.ndjson"))?;
    let mut expected = BTreeSet::new();
    rows::each(&folder.join("cities.ndjson"), |row| {
        expected.insert(rows::text(row));
    })?;
    load(&tier, "cities", "cities.ndjson", &folder)?;
    let mut figures = vec![differing(&expected, &mut tier, "cities")?];
    for file in FILES {
        rows::export(&tier, "cities", &folder.join(file))?;
        let namespace = format!("from-{}", file.replace('.', "-"));
        load(&tier, &namespace, file, &folder)?;
        figures.push(differing(&expected, &mut tier, &namespace)?);
    }
    tier.stop()?;
    let detail = format!("of {} in each of {} files", expected.len(), figures.len());
    let what = "formats: rows of an export that differ";
    Ok(vec![Verdict::worst(
        what,
        Bound::AtMost(0.0),
        figures,
        detail,
    )])
}

/// Loads a file into a namespace of its own.
fn load(tier: &Tier, namespace: &str, file: &str, folder: &std::path::Path) -> Result<(), Failure> {
    tier.create(namespace, "{}")?;
    tier.run(&["load", "push", namespace, file, "--wait"], folder)
        .map(drop)
}

/// Returns how many rows a namespace lacks, or has beside these.
fn differing(
    expected: &BTreeSet<String>,
    tier: &mut Tier,
    namespace: &str,
) -> Result<f64, Failure> {
    let rows = rows::of_namespace(tier, namespace)?;
    Ok(rows.symmetric_difference(expected).count() as f64)
}
