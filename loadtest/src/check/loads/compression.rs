//! What compression at rest saves and costs, on the cities.
//!
//! Values are compressed each by itself, and a city alone is too short to pay. So the rows are also gathered: one
//! for so many cities as a service would return together, as a JSON array.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::rows;
use super::tier::Tier;
use crate::bench::lab::Target;
use crate::bench::plan::{Pairs, Plan as Rounds};
use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::load::Report;
use crate::load::requests::{Prepared, http};
use crate::process::Cores;
use crate::verdict::{Bound, Verdict};

/// Cities of a page.
const PAGE_CITIES: usize = 64;
/// Rows at least, with copies of pages under keys of their own: so that no key is read often enough to be hot.
const ROWS_MIN: usize = 320;
/// Ratio of all cities at least, and of the sample of them, whose neighbours are less alike.
const RATIO_MIN: f64 = 2.0;
const RATIO_MIN_SAMPLE: f64 = 1.6;

pub(super) fn compression(options: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut tier = Tier::embedded(Cores::Server)?;
    tier.lab.plan = Rounds {
        rounds: if options.is_quick { 3 } else { 9 },
        warm_up_ms: 300,
        measure_ms: if options.is_quick { 1_000 } else { 2_000 },
    };
    let folder = tier.lab.new_folder("compression")?;
    rows::write_cities(&folder.join("cities.ndjson"))?;
    let pages = pages_of(&folder.join("cities.ndjson"))?;
    write_pages(&pages, &folder.join("pages.ndjson"))?;
    let ratio_min = if rows::are_cities_a_sample() {
        RATIO_MIN_SAMPLE
    } else {
        RATIO_MIN
    };
    let of_cities = ratio(&tier, "cities", &folder)?;
    let of_pages = ratio(&tier, "pages", &folder)?;
    let pairs = |tier: &mut Tier, fields: &str| {
        let packed = requests(tier, "pages-packed", pages.len(), fields)?;
        let plain = requests(tier, "pages-plain", pages.len(), "")?;
        measure(tier, &packed, &plain)
    };
    let plain = pairs(&mut tier, "")?;
    let frames = pairs(&mut tier, "Accept-Encoding: zstd\r\n")?;
    tier.stop()?;
    let cpu = |pairs: &Pairs, what: &str, bound| {
        let (packed, plain) = pairs.medians(Report::cpu_micros);
        let detail = format!("{packed:.1} µs and {plain:.1} µs");
        Verdict::new(what, bound, pairs.ratios(Report::cpu_micros), detail)
    };
    Ok(vec![
        of_pages.verdict(
            "compression: cities by 64, ratio",
            Bound::AtLeast(ratio_min),
        ),
        of_cities.verdict("  a row for each city", Bound::Nothing),
        cpu(
            &plain,
            "compression: processor time of a get, of plain",
            Bound::AtMost(1.15),
        ),
        cpu(&frames, "  by a client that takes zstd", Bound::Nothing),
    ])
}

/// Bytes of the same rows without compression and with it.
struct Ratio {
    plain: u64,
    packed: u64,
}

impl Ratio {
    fn verdict(&self, what: &str, bound: Bound) -> Verdict {
        let ratio = self.plain as f64 / self.packed as f64;
        let detail = format!("{} and {} bytes", self.plain, self.packed);
        Verdict::one(what, bound, ratio, detail)
    }
}

/// Loads a file into a namespace without compression and one with it.
fn ratio(tier: &Tier, name: &str, folder: &Path) -> Result<Ratio, Failure> {
    let file = format!("{name}.ndjson");
    let load = |namespace: &str, settings: &str| -> Result<u64, Failure> {
        tier.create(namespace, settings)?;
        tier.run(&["load", "push", namespace, &file, "--wait"], folder)?;
        Ok(tier.size(namespace)?.bytes)
    };
    Ok(Ratio {
        plain: load(&format!("{name}-plain"), "{}")?,
        packed: load(&format!("{name}-packed"), r#"{"compression":"zstd"}"#)?,
    })
}

/// Returns pages of cities, each as a JSON array.
fn pages_of(cities: &Path) -> Result<Vec<String>, Failure> {
    let mut values = Vec::new();
    let text = std::fs::read_to_string(cities).map_err(Failure::io("the cities"))?;
    for line in text.lines() {
        let row: Value = serde_json::from_str(line)?;
        values.push(serde_json::from_str(row["v"].as_str().unwrap_or_default())?);
    }
    let pages = values.chunks(PAGE_CITIES);
    Ok(pages
        .map(|page| Value::Array(page.to_vec()).to_string())
        .collect())
}

/// Returns how often each page is stored.
fn copies_of(pages: usize) -> usize {
    ROWS_MIN.div_ceil(pages.max(1))
}

fn write_pages(pages: &[String], path: &Path) -> Result<(), Failure> {
    let mut text = String::new();
    for copy in 0..copies_of(pages.len()) {
        for (number, page) in pages.iter().enumerate() {
            let row = json!({"pk": format!("page-{number}"), "sk": copy.to_string(), "v": page});
            writeln!(text, "{row}").expect("a string takes every write");
        }
    }
    std::fs::write(path, text).map_err(Failure::io(path.display().to_string()))
}

/// Prepares a get of each row.
fn requests(
    tier: &mut Tier,
    namespace: &str,
    pages: usize,
    fields: &str,
) -> Result<PathBuf, Failure> {
    let path = tier.lab.path("gets");
    let gets = (0..copies_of(pages)).flat_map(|copy| {
        (0..pages).map(move |page| {
            let target = format!("/v1/ns/{namespace}/kv/page-{page}/{copy}");
            http("GET", &target, fields, b"")
        })
    });
    Prepared::write(&path, gets)?;
    Ok(path)
}

fn measure(tier: &Tier, packed: &Path, plain: &Path) -> Result<Pairs, Failure> {
    let servers = [tier.store_id()?];
    let turn = |requests: &Path, round| {
        let target = Target {
            port: tier.ports[0],
            requests,
            servers: &servers,
            cores: Cores::Client,
        };
        tier.lab.turn(&target, round)
    };
    Pairs::measure(
        tier.lab.plan.rounds,
        |round| turn(packed, round),
        |round| turn(plain, round),
    )
}
