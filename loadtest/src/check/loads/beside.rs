//! Gets while a load is built, and while it is paused: by turns, servers and clients on cores of their own.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use umbo_api::loads::LoadState;

use super::tier::{Tier, ask};
use crate::check::plan::Plan;
use crate::dataset::{self, Order};
use crate::failure::Failure;
use crate::load::client::{Client, Kind};
use crate::load::pace::Report;
use crate::load::requests::{Prepared, http};
use crate::process::Cores;
use crate::random::Random;
use crate::verdict::{Bound, Verdict, median_of};

/// Rows that are read, in the namespace that the load is of.
const LIVE_ROWS: u64 = 50_000;
/// Rows that are built in a second at most, so that the load lasts for all turns.
const ROWS_A_SECOND: u64 = 300_000;
/// Gets a second.
const RATE: u32 = 1_000;
/// Time that a load needs to stop after the row that it is at.
const SETTLED: Duration = Duration::from_millis(300);
/// Time of gets before those that are measured, in milliseconds.
const WARM_UP_MS: u64 = 200;
const NAMESPACE: &str = "beside";

pub(super) fn beside(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let (rounds, turn_ms) = if plan.is_quick {
        (3, 1_000)
    } else {
        (9, 3_000)
    };
    let built_ms = SETTLED.as_millis() as u64 + WARM_UP_MS + turn_ms;
    let rows = rounds as u64 * built_ms * ROWS_A_SECOND / 1_000;
    let mut tier = Tier::embedded(Cores::Server)?;
    let folder = tier.lab.new_folder("beside")?;
    for (name, rows) in [("live.ndjson", LIVE_ROWS), ("built.ndjson", rows)] {
        let path = folder.join(name);
        let file = std::fs::File::create(&path).map_err(Failure::io(name))?;
        dataset::write_rows(file, rows, Order::Key).map_err(Failure::io(name))?;
    }
    tier.create(NAMESPACE, "{}")?;
    tier.run(
        &["load", "push", NAMESPACE, "live.ndjson", "--wait"],
        &folder,
    )?;
    let id = paused_load(&tier, &folder)?;
    let gets = gets(&mut tier, plan.seed)?;
    let change = |step: &str| {
        let target = format!("/v1/ns/{NAMESPACE}/loads/{id}/{step}");
        ask(tier.ports[0], "POST", &target, b"").map(drop)
    };
    let (mut before, mut during, mut failed) = (Vec::new(), Vec::new(), 0);
    'rounds: for round in 0..rounds {
        let mut p99 = [0.0; 2];
        for is_built in [round % 2 == 1, round % 2 == 0] {
            let changed = change(if is_built { "resume" } else { "pause" });
            if !is_building(&tier, &id)? {
                break 'rounds;
            }
            changed?;
            sleep(SETTLED);
            let report = pace(tier.ports[0], &gets, turn_ms, round)?;
            failed += report.failed + report.rejected;
            p99[usize::from(is_built)] = report.p99_us();
            // A turn in which the load has ended is none of it.
            if !is_building(&tier, &id)? {
                break 'rounds;
            }
        }
        before.push(p99[0]);
        during.push(p99[1]);
    }
    if during.is_empty() {
        return Err(Failure::WrongAnswer("the load was too short".to_owned()));
    }
    tier.stop()?;
    let ratios = during
        .iter()
        .zip(&before)
        .map(|(during, before)| during / before);
    let detail = format!(
        "{:.0} µs and {:.0} µs at {RATE} gets a second",
        median_of(&during),
        median_of(&before)
    );
    Ok(vec![
        Verdict::new(
            "beside: p99 of gets during a build, of before",
            Bound::AtMost(1.2),
            ratios.collect(),
            detail,
        ),
        Verdict::one("  gets that failed", Bound::AtMost(0.0), failed as f64, ""),
    ])
}

/// Uploads and seals a load that is paused; returns its id.
fn paused_load(tier: &Tier, folder: &std::path::Path) -> Result<String, Failure> {
    let target = format!("/v1/ns/{NAMESPACE}/loads");
    // A first push without its seal would be one that fails, so the load is paused once it is sealed.
    let arguments = [
        "load",
        "push",
        NAMESPACE,
        "built.ndjson",
        "--mode=replace",
        // The version that is built has many times the rows of the live one.
        "--rows-change-max=1000",
    ];
    tier.run(&arguments, folder)?;
    let loads = tier.loads(NAMESPACE)?;
    let load = loads.iter().find(|load| !load.state.is_applied());
    let load = load.ok_or_else(|| Failure::WrongAnswer("the load was too short".to_owned()))?;
    ask(
        tier.ports[0],
        "POST",
        &format!("{target}/{}/pause", load.id),
        b"",
    )?;
    Ok(load.id.clone())
}

/// Returns whether a load is still built or paused; one that has failed is an error.
fn is_building(tier: &Tier, id: &str) -> Result<bool, Failure> {
    let loads = tier.loads(NAMESPACE)?;
    let load = loads.iter().find(|load| load.id == id);
    let load = load.ok_or_else(|| Failure::WrongAnswer("the load is gone".to_owned()))?;
    if load.state == LoadState::Failed {
        return Err(Failure::WrongAnswer(format!("{load:?}")));
    }
    Ok(!load.state.is_applied())
}

fn gets(tier: &mut Tier, seed: u64) -> Result<PathBuf, Failure> {
    let path = tier.lab.path("gets");
    let mut random = Random::seeded(seed);
    let get = |_| {
        let row = random.below(LIVE_ROWS);
        let (pk, sk) = (dataset::partition(row), dataset::sort(row));
        http("GET", &format!("/v1/ns/{NAMESPACE}/kv/{pk}/{sk}"), "", b"")
    };
    Prepared::write(&path, (0..20_000).map(get))?;
    Ok(path)
}

fn pace(port: u16, gets: &std::path::Path, turn_ms: u64, round: usize) -> Result<Report, Failure> {
    let arguments = [
        format!("--rate={RATE}"),
        format!("--measure-ms={turn_ms}"),
        format!("--warm-up-ms={WARM_UP_MS}"),
        format!("--first={}", round * 7_919),
    ];
    Client::start(Kind::Pace, (port, gets, Cores::Client), &arguments)?.report()
}
