//! The checks of shard nodes: what it costs that shards are on nodes of their own.
//!
//! One node and one dispatcher, beside one process that is both, on the same cores and by turns.

use std::path::Path;

use super::plan::{Check, Plan};
use super::server::open;
use crate::bench::cluster::Cluster;
use crate::bench::lab::{CONNECTIONS, Lab, OTHER_UMBO, UMBO, Umbo};
use crate::bench::plan::Pairs;
use crate::dataset;
use crate::failure::Failure;
use crate::load::Report;
use crate::process::Cores;
use crate::verdict::{Bound, Verdict};

pub(super) const CHECKS: [Check; 4] = [
    Check {
        name: "get",
        about: "remote gets, of embedded ones: processor time 1.35, a second 0.85",
        run: get,
    },
    Check {
        name: "latency",
        about: "median of remote gets by one connection, the client on its own core, of embedded ones: 1.7",
        run: latency,
    },
    Check {
        name: "put",
        about: "remote durable puts a second, of embedded ones: 0.85",
        run: put,
    },
    Check {
        name: "hit",
        about: "processor time of a hit of the local cache, of a remote get: 0.7",
        run: hit,
    },
];

/// An embedded server and a remote one, with the same rows.
struct Servers {
    lab: Lab,
    embedded: Umbo,
    remote: Cluster,
}

impl Servers {
    fn start(plan: &Plan, cores: Cores) -> Result<Self, Failure> {
        let mut lab = open(plan)?;
        let data = lab.loaded()?;
        let embedded = lab.umbo(&data, cores)?;
        let own = lab.path("data");
        let remote = lab.cluster(&own, cores)?;
        lab.fill(OTHER_UMBO)?;
        lab.warm(UMBO)?;
        lab.warm(OTHER_UMBO)?;
        Ok(Self {
            lab,
            embedded,
            remote,
        })
    }

    /// Drives the remote one and the embedded one by turns.
    fn measure(&self, requests: &Path, cores: Cores, connections: usize) -> Result<Pairs, Failure> {
        let remote = (OTHER_UMBO, requests, &self.remote.ids[..]);
        let embedded = (UMBO, requests, &self.embedded.ids[..]);
        self.lab.compare(connections, cores, remote, embedded)
    }

    fn stop(self) -> Result<(), Failure> {
        self.embedded.process.stop()?;
        self.remote.stop()
    }
}

/// Processor time with all servers on one core, gets a second with all cores for all processes.
fn get(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut servers = Servers::start(plan, Cores::Server)?;
    let rows = servers.lab.rows;
    let requests = servers.lab.gets(rows)?;
    let pinned = servers.measure(&requests, Cores::Client, CONNECTIONS)?;
    servers.stop()?;
    let mut servers = Servers::start(plan, Cores::All)?;
    let requests = servers.lab.gets(rows)?;
    let free = servers.measure(&requests, Cores::All, CONNECTIONS)?;
    servers.stop()?;
    let what = "get: processor time, of an embedded one";
    Ok(vec![
        pinned.cpu(what, Bound::AtMost(1.35)),
        free.cpu("  with everybody on all cores", Bound::Nothing),
        free.rate("get: a second, of embedded ones", Bound::AtLeast(0.85)),
    ])
}

/// The median latency of one connection. The client is on a core of its own, as one on another machine
/// is: where all share all cores, chance says whether client and server come to lie on one core, and an
/// embedded get takes 20 µs or 75. What that comes to is printed, too.
fn latency(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let placements = [
        (
            Cores::Server,
            Cores::Client,
            Bound::AtMost(1.7),
            "latency: p50 of one connection, of embedded gets",
        ),
        (
            Cores::All,
            Cores::All,
            Bound::Nothing,
            "  with everybody on all cores",
        ),
    ];
    let mut verdicts = Vec::new();
    for (of_servers, of_client, bound, what) in placements {
        let mut servers = Servers::start(plan, of_servers)?;
        let rows = servers.lab.rows;
        let requests = servers.lab.gets(rows)?;
        let pairs = servers.measure(&requests, of_client, 1)?;
        servers.stop()?;
        let p50 = |report: &Report| report.p50_micros.unwrap_or(f64::NAN);
        let (remote, embedded) = pairs.medians(p50);
        let detail = format!("{remote:.0} µs and {embedded:.0} µs");
        verdicts.push(Verdict::new(what, bound, pairs.ratios(p50), detail));
    }
    Ok(verdicts)
}

/// Durable puts of rows that are there.
fn put(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut servers = Servers::start(plan, Cores::All)?;
    let rows = servers.lab.rows;
    let requests = servers.lab.prepare("put", rows, |lab, row| {
        let value = dataset::value(row);
        lab.request("PUT", &dataset::resource(row), "", value.as_bytes())
    })?;
    let pairs = servers.measure(&requests, Cores::All, CONNECTIONS)?;
    servers.stop()?;
    Ok(vec![
        pairs.rate("put: a second, of embedded ones", Bound::AtLeast(0.85)),
        pairs.cpu("  processor time", Bound::Nothing),
    ])
}

/// Hits of one hot key and gets of all keys, both on the remote one.
fn hit(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let own = lab.path("data");
    let remote = lab.cluster(&own, Cores::Server)?;
    lab.fill(OTHER_UMBO)?;
    lab.warm(OTHER_UMBO)?;
    let hot = lab.gets(1)?;
    let spread = lab.gets(lab.rows)?;
    let pairs = lab.compare(
        CONNECTIONS,
        Cores::Client,
        (OTHER_UMBO, &hot, &remote.ids),
        (OTHER_UMBO, &spread, &remote.ids),
    )?;
    remote.stop()?;
    let what = "hit: processor time, of a remote get";
    Ok(vec![pairs.cpu(what, Bound::AtMost(0.7))])
}
