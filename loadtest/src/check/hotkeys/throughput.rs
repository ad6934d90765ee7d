//! What the layer costs and saves on a real server: reads of all keys alike with it and without, and a
//! hit of the local cache beside a handler that does nothing.

use crate::bench::lab::{AXUM, CONNECTIONS, OTHER_UMBO, UMBO, UMBO_ADMIN};
use crate::check::plan::Plan;
use crate::check::server::open;
use crate::ddos::{LAYER_OFF, STORE_GETS};
use crate::failure::Failure;
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
    let requests = lab.gets(lab.rows)?;
    let pairs = lab.compare(
        CONNECTIONS,
        Cores::Client,
        (UMBO, &requests, &on.ids),
        (OTHER_UMBO, &requests, &off.ids),
    )?;
    on.process.stop()?;
    off.process.stop()?;
    let what = "server: gets a second of spread keys, of without";
    Ok(vec![
        pairs.rate(what, Bound::AtLeast(0.98)),
        pairs.cpu("  processor time of a get", Bound::Nothing),
    ])
}

/// Gets a second of one hot key, of a bare handler that answers as many bytes.
pub(super) fn hit(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let data = lab.loaded()?;
    let umbo = lab.umbo(&data, Cores::Server)?;
    let axum = lab.own_peer(AXUM, &["axum-static".to_owned()])?;
    let ids = [axum.id()];
    let requests = lab.gets(1)?;
    let before = scrape(UMBO_ADMIN, &lab.fields(), STORE_GETS)?;
    let pairs = lab.compare(
        CONNECTIONS,
        Cores::Client,
        (UMBO, &requests, &umbo.ids),
        (AXUM, &requests, &ids),
    )?;
    let reads = scrape(UMBO_ADMIN, &lab.fields(), STORE_GETS)? - before;
    umbo.process.stop()?;
    let what = "server: hits a second, of a bare handler";
    let reads = Verdict::one("  reads of the store", Bound::Nothing, reads, "");
    Ok(vec![
        pairs.rate(what, Bound::AtLeast(0.9)),
        pairs.cpu("  processor time of a get", Bound::Nothing),
        reads,
    ])
}
