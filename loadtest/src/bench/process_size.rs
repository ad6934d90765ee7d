//! Benchmarks of the process itself: its memory when idle, and how soon it is back.

use std::time::Instant;

use super::lab::{Lab, UMBO};
use crate::dataset;
use crate::failure::Failure;
use crate::process::{self, Cores};
use crate::verdict::{Bound, Verdict};

const MIB: f64 = 1_048_576.0;

/// Resident memory of an idle server with an empty store.
pub(super) fn idle(lab: &mut Lab) -> Result<Vec<Verdict>, Failure> {
    let mut figures = Vec::new();
    for _ in 0..3 {
        let data = lab.path("data");
        let umbo = lab.umbo(&data, Cores::All)?;
        std::thread::sleep(std::time::Duration::from_secs(2));
        figures.push(umbo.process.resident_bytes()? as f64 / MIB);
        umbo.process.stop()?;
    }
    let what = "idle: resident memory, MiB";
    Ok(vec![Verdict::new(what, Bound::AtMost(30.0), figures, "")])
}

/// Time from the start of the process to the first row read, after a kill in the middle of writes.
pub(super) fn restart(lab: &mut Lab) -> Result<Vec<Verdict>, Failure> {
    let data = lab.loaded()?;
    let mut figures = Vec::new();
    for round in 0..lab.plan.rounds {
        let umbo = lab.umbo(&data, Cores::All)?;
        let puts: Vec<_> = (0..1_000)
            .map(|index| {
                let row = (round as u64 * 104_729 + index * 613) % lab.rows;
                let resource = dataset::resource(row);
                lab.request("PUT", &resource, "", dataset::value(row).as_bytes())
            })
            .collect();
        lab.send_once(UMBO, puts.into_iter())?;
        umbo.process.kill()?;
        process::check_free(&[UMBO])?;
        let begun = Instant::now();
        let umbo = lab.umbo(&data, Cores::All)?;
        let get = lab.request("GET", "kv/p000042/s042", "", b"");
        lab.send_once(UMBO, std::iter::once(get))?;
        figures.push(begun.elapsed().as_secs_f64());
        umbo.process.stop()?;
    }
    let detail = format!("{} rows, the client's own start included", lab.rows);
    let what = "restart: seconds from kill -9 to the first get";
    Ok(vec![Verdict::new(
        what,
        Bound::AtMost(1.0),
        figures,
        detail,
    )])
}
