//! The benchmark of ranges.

use super::lab::{CONNECTIONS, Lab, UMBO};
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
    let pairs = lab.compare(
        CONNECTIONS,
        Cores::Client,
        (UMBO, &requests, &umbo.ids),
        (AXUM, &requests, &[axum.id()]),
    )?;
    umbo.process.stop()?;
    let bytes = |report: &Report| report.bytes as f64 / report.requests as f64;
    let (own, other) = pairs.medians(bytes);
    let detail = format!("{own:.0} and {other:.0} bytes");
    Ok(vec![
        pairs.rate("range: requests a second of bare axum", Bound::AtLeast(0.9)),
        pairs.cpu("  CPU of bare axum", Bound::Nothing),
        Verdict::new(
            "  bytes of an answer",
            Bound::Nothing,
            pairs.ratios(bytes),
            detail,
        ),
    ])
}
