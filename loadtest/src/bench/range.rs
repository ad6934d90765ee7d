//! The benchmark of ranges.

use super::lab::{Lab, Target, UMBO};
use super::plan::Pairs;
use crate::dataset;
use crate::failure::Failure;
use crate::load::Report;
use crate::process::Cores;
use crate::verdict::{Bound, Verdict};

/// Port of the bare axum handler.
const AXUM: u16 = 18_087;

/// Ranges of 100 rows a second against a bare axum handler that walks a redb table.
pub(super) fn range(lab: &mut Lab) -> Result<Vec<Verdict>, Failure> {
    let data = lab.loaded()?;
    let file = lab.path("peer.redb");
    let kind = [
        "axum-range".to_owned(),
        format!("--file={}", file.display()),
        format!("--rows={}", lab.rows),
    ];
    let axum = lab.own_peer(AXUM, &kind)?;
    let umbo = lab.umbo(&data, Cores::Server)?;
    lab.warm(UMBO)?;
    lab.warm(AXUM)?;
    let requests = lab.prepare("range", lab.rows, |lab, row| {
        let resource = format!("range/{}?limit=100", dataset::partition(row));
        lab.request("GET", &resource, "", b"")
    })?;
    let turn = |port, servers: &[u32], round| {
        let target = Target {
            port,
            requests: &requests,
            servers,
            cores: Cores::Client,
        };
        lab.turn(&target, round)
    };
    let pairs = Pairs::measure(
        lab.plan.rounds,
        |round| turn(UMBO, &umbo.ids, round),
        |round| turn(AXUM, &[axum.id()], round),
    )?;
    umbo.process.stop()?;
    let (own, other) = pairs.medians(Report::rate);
    let (own_bytes, other_bytes) =
        pairs.medians(|report| report.bytes as f64 / report.requests as f64);
    let detail =
        format!("{own:.0} and {other:.0} a second, {own_bytes:.0} and {other_bytes:.0} bytes each");
    let bound = Bound::AtLeast(0.9);
    let rates = Verdict::new(
        "range: requests a second of bare axum",
        bound,
        pairs.ratios(Report::rate),
        detail,
    );
    let (own, other) = pairs.medians(Report::cpu_micros);
    let detail = format!("{own:.1} µs and {other:.1} µs a request");
    let ratios = pairs.ratios(Report::cpu_micros);
    let cpu = Verdict::new("  CPU of bare axum", Bound::Nothing, ratios, detail);
    Ok(vec![rates, cpu])
}
