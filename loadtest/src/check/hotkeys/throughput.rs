//! What the layer costs and saves on a real server: reads of all keys alike with it and without, and a
//! hit of the local cache beside a handler that does nothing.

use crate::bench::lab::{AXUM, Lab, OTHER_UMBO, Target, UMBO, UMBO_ADMIN};
use crate::bench::plan::Pairs;
use crate::check::plan::Plan;
use crate::check::server::open;
use crate::dataset;
use crate::ddos::{LAYER_OFF, STORE_GETS};
use crate::failure::Failure;
use crate::load::Report;
use crate::load::scrape::scrape;
use crate::process::Cores;
use crate::verdict::{Bound, Verdict};

/// Gets a second of uniformly spread keys with the layer and without it.
pub(super) fn spread(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let data = lab.loaded()?;
    // Two servers of the same rows, by turns: one process cannot be both.
    let copy = lab.copy_of(&data)?;
    let on = lab.umbo(&data, Cores::Server)?;
    let off = lab.other_umbo(&copy, Cores::Server, LAYER_OFF)?;
    lab.warm(UMBO)?;
    lab.warm(OTHER_UMBO)?;
    let requests = lab.prepare("get", lab.rows, get)?;
    let target = |port, servers| Target {
        port,
        requests: &requests,
        servers,
        cores: Cores::Client,
    };
    let pairs = Pairs::measure(
        lab.plan.rounds,
        |round| lab.turn(&target(UMBO, &on.ids), round),
        |round| lab.turn(&target(OTHER_UMBO, &off.ids), round),
    )?;
    on.process.stop()?;
    off.process.stop()?;
    let what = "server: gets a second of spread keys, of without";
    Ok(verdicts(what, 0.98, &pairs, ""))
}

/// Gets a second of one hot key, of a bare handler that answers as many bytes.
pub(super) fn hit(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let data = lab.loaded()?;
    let umbo = lab.umbo(&data, Cores::Server)?;
    let axum = lab.own_peer(AXUM, &["axum-static".to_owned()])?;
    let ids = [axum.id()];
    let requests = lab.prepare("hit", 1, get)?;
    let target = |port, servers| Target {
        port,
        requests: &requests,
        servers,
        cores: Cores::Client,
    };
    let before = scrape(UMBO_ADMIN, &lab.fields(), STORE_GETS)?;
    let pairs = Pairs::measure(
        lab.plan.rounds,
        |round| lab.turn(&target(UMBO, &umbo.ids), round),
        |round| lab.turn(&target(AXUM, &ids), round),
    )?;
    let reads = scrape(UMBO_ADMIN, &lab.fields(), STORE_GETS)? - before;
    umbo.process.stop()?;
    let what = "server: hits a second, of a bare handler";
    let detail = format!(", {reads} reads of the store");
    Ok(verdicts(what, 0.9, &pairs, &detail))
}

fn get(lab: &Lab, row: u64) -> Vec<u8> {
    let resource = format!("kv/{}/{}", dataset::partition(row), dataset::sort(row));
    lab.request("GET", &resource, "", b"")
}

fn verdicts(what: &str, at_least: f64, pairs: &Pairs, detail: &str) -> Vec<Verdict> {
    let (one, other) = pairs.medians(Report::rate);
    let (one_cpu, other_cpu) = pairs.medians(Report::cpu_micros);
    vec![
        Verdict::new(
            what,
            Bound::AtLeast(at_least),
            pairs.ratios(Report::rate),
            format!("{one:.0} and {other:.0} a second{detail}"),
        ),
        Verdict::new(
            "  processor time of a get",
            Bound::Nothing,
            pairs.ratios(Report::cpu_micros),
            format!("{one_cpu:.2} µs and {other_cpu:.2} µs"),
        ),
    ]
}
