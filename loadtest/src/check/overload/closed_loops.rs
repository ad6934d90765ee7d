//! Closed loops of ever more connections: a rise in concurrency alone never sheds.
//!
//! A closed loop asks for no more than is answered, so that every request meets its deadline: 30 s, where it
//! names none. What is refused all the same was taken for an overload that there was not.

use crate::bench::lab::{Lab, Target, UMBO};
use crate::check::plan::Plan;
use crate::check::server::open;
use crate::dataset;
use crate::failure::Failure;
use crate::process::{Cores, Process};
use crate::verdict::{Bound, Verdict};

/// Connections of the loops.
const CONNECTIONS: [usize; 5] = [1, 8, 64, 512, 2_000];
/// Processes that do nothing but compute, one for each core of the machines this is measured on.
const BUSY: usize = 2;
/// Length of the values that are put, in bytes.
const VALUE_LEN: usize = 256;

pub(super) fn closed_loops(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    lab.plan.measure_ms = if plan.is_quick { 1_000 } else { 5_000 };
    let data = lab.loaded()?;
    let umbo = lab.umbo(&data, Cores::All)?;
    let rows = lab.rows;
    let gets = lab.prepare("get", rows, |lab, row| request(lab, "GET", row, b""))?;
    let puts = lab.prepare("put", rows, |lab, row| {
        request(lab, "PUT", row, &[b'v'; VALUE_LEN])
    })?;
    let mut verdicts = Vec::new();
    for is_beside in [false, true] {
        let busy = if is_beside {
            busy(&mut lab)?
        } else {
            Vec::new()
        };
        for (operation, requests) in [("get", &gets), ("put", &puts)] {
            let target = Target {
                port: UMBO,
                requests,
                servers: &umbo.ids,
                cores: Cores::All,
            };
            for (round, connections) in CONNECTIONS.into_iter().enumerate() {
                let report = lab.closed_loop(&target, connections, round)?;
                let refused = report.failed as f64 / (report.failed + report.requests) as f64;
                let beside = if is_beside { ", beside others" } else { "" };
                let what = format!("closed loops: {operation}, {connections} connections{beside}");
                let detail = format!(
                    "{} of {} refused or failed; {:.0} a second",
                    report.failed,
                    report.failed + report.requests,
                    report.rate()
                );
                verdicts.push(Verdict::one(what, Bound::AtMost(0.0), refused, detail));
            }
        }
        for process in busy {
            process.kill()?;
        }
    }
    umbo.process.stop()?;
    Ok(verdicts)
}

fn request(lab: &Lab, method: &str, row: u64, body: &[u8]) -> Vec<u8> {
    let resource = dataset::resource(row);
    lab.request(method, &resource, "", body)
}

/// Starts processes that take what processor time they get.
fn busy(lab: &mut Lab) -> Result<Vec<Process>, Failure> {
    let folder = lab.new_folder("busy")?;
    let arguments = ["-c".to_owned(), "while :; do :; done".to_owned()];
    let start = |_| Process::start("/bin/sh".as_ref(), &arguments, Cores::All, &folder);
    (0..BUSY).map(start).collect()
}
