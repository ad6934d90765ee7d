//! A neighbour on a real server: one caller floods with large ranges at ten times its quota, another
//! gets rows within its own, and is not to notice.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::bench::lab::{Lab, NAMESPACE, UMBO};
use crate::check::plan::Plan;
use crate::check::server::open;
use crate::dataset;
use crate::failure::Failure;
use crate::load::client::{Client, Kind};
use crate::load::pace;
use crate::load::requests::{Prepared, http};
use crate::process::Cores;
use crate::random::Random;
use crate::verdict::{Bound, Verdict, median_of};

/// Rows of one range of the flood.
const BIG_ROWS: u64 = 100_000;
/// Rows of one batch while they are loaded.
const BATCH_ROWS: u64 = 1_000;
/// What such a range costs in request units, but for its time.
const BIG_PRICE: f64 = 1.0 + 0.05 * BIG_ROWS as f64 + 275.0 * BIG_ROWS as f64 / 4_096.0;
/// Quota of the caller that floods, in request units a second.
const FLOOD_QUOTA: f64 = 5_000.0;
/// How much more than that it asks for.
const FLOOD: f64 = 10.0;
/// Gets a second of the neighbour.
const NEIGHBOUR_RATE: f64 = 1_000.0;

pub(super) fn neighbour(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let (flood, quiet) = (lab.new_caller("flood")?, lab.new_caller("neighbour")?);
    let data = lab.loaded()?;
    let umbo = lab.umbo(&data, Cores::Server)?;
    load_big_partition(&mut lab)?;
    for (caller, rate) in [("flood", FLOOD_QUOTA), ("neighbour", 2.0 * NEIGHBOUR_RATE)] {
        let policy = format!(
            r#"{{"name":"{caller}","match":{{"caller":"{caller}"}},"per":["caller"],"unit":"ru","rate":{rate}}}"#
        );
        lab.put_policy(caller, &policy)?;
    }
    lab.warm(UMBO)?;
    let requests = Requests::prepare(&mut lab, plan.seed, &flood, &quiet)?;
    let measure_ms = if plan.is_quick { 3_000 } else { 6_000 };
    let turns = measure(lab.plan.rounds, &requests, measure_ms)?;
    umbo.process.stop()?;
    Ok(turns.verdicts())
}

/// Files of prepared requests.
struct Requests {
    gets: PathBuf,
    ranges: PathBuf,
}

impl Requests {
    fn prepare(lab: &mut Lab, seed: u64, flood: &str, quiet: &str) -> Result<Self, Failure> {
        let (gets, ranges) = (lab.path("gets"), lab.path("ranges"));
        let mut random = Random::seeded(seed);
        let rows = lab.rows;
        let get = |_| {
            let row = random.below(rows);
            let (pk, sk) = (dataset::partition(row), dataset::sort(row));
            http(
                "GET",
                &format!("/v1/ns/{NAMESPACE}/kv/{pk}/{sk}"),
                quiet,
                b"",
            )
        };
        Prepared::write(&gets, (0..20_000).map(get))?;
        let bytes_max = 1 << 28;
        let target = format!("/v1/ns/{NAMESPACE}/range/big?limit={BIG_ROWS}&max_bytes={bytes_max}");
        let fields = format!("{flood}Connection: close\r\n");
        Prepared::write(&ranges, std::iter::once(http("GET", &target, &fields, b"")))?;
        Ok(Self { gets, ranges })
    }
}

/// What the clients saw, turn by turn.
#[derive(Default)]
struct Turns {
    alone: Vec<pace::Report>,
    beside: Vec<pace::Report>,
    flood: pace::Report,
}

fn measure(rounds: usize, requests: &Requests, measure_ms: u64) -> Result<Turns, Failure> {
    let quiet = |round| pace(&requests.gets, NEIGHBOUR_RATE, measure_ms, round, false)?.report();
    let mut turns = Turns::default();
    for round in 0..rounds {
        // Alone first, then beside, and the other way round.
        for is_beside in [round % 2 == 1, round % 2 == 0] {
            if is_beside {
                // The flood begins before and ends after.
                let rate = FLOOD * FLOOD_QUOTA / BIG_PRICE;
                let flood = pace(&requests.ranges, rate, measure_ms + 800, 0, true)?;
                turns.beside.push(quiet(round)?);
                turns.flood.add(flood.report()?);
            } else {
                turns.alone.push(quiet(round)?);
            }
        }
    }
    Ok(turns)
}

impl Turns {
    fn verdicts(&self) -> Vec<Verdict> {
        let Self {
            alone,
            beside,
            flood,
        } = self;
        let of_quiet = || alone.iter().chain(beside);
        let refused: u64 = of_quiet()
            .map(|report| report.rejected + report.failed)
            .sum();
        let asked: u64 = of_quiet().map(pace::Report::answered).sum();
        let p99 = |reports: &[pace::Report]| -> Vec<f64> {
            reports.iter().map(pace::Report::p99_us).collect()
        };
        let (p99_alone, p99_beside) = (p99(alone), p99(beside));
        let ratios = p99_beside
            .iter()
            .zip(&p99_alone)
            .map(|(beside, alone)| beside / alone);
        let detail = format!(
            "{:.0} µs beside, {:.0} µs alone; the flood: {} ranges of {BIG_ROWS} rows let in, {} rejected",
            median_of(&p99_beside),
            median_of(&p99_alone),
            flood.succeeded,
            flood.rejected
        );
        vec![
            Verdict::one(
                "server: gets of the neighbour that were refused",
                Bound::AtMost(0.0),
                refused as f64,
                format!("{asked} gets"),
            ),
            Verdict::new(
                "server: p99 of the neighbour, of alone",
                Bound::AtMost(1.3),
                ratios.collect(),
                detail,
            ),
            Verdict::one(
                "server: the flood was rejected, share",
                Bound::AtLeast(0.5),
                flood.rejected as f64 / flood.answered() as f64,
                "it asks for ten times its quota",
            ),
        ]
    }
}

fn load_big_partition(lab: &mut Lab) -> Result<(), Failure> {
    let batches: Vec<Vec<u8>> = (0..BIG_ROWS)
        .step_by(BATCH_ROWS as usize)
        .map(|first| {
            let mut lines = String::new();
            for row in first..first + BATCH_ROWS {
                let value = dataset::value(row);
                writeln!(
                    lines,
                    r#"{{"op":"put","pk":"big","sk":"s{row:06}","v":"{value}"}}"#
                )
                .expect("a string takes every write");
            }
            let fields = "Prefer: return=minimal\r\n";
            lab.request("POST", "batch/write", fields, lines.as_bytes())
        })
        .collect();
    lab.send_once(UMBO, batches.into_iter()).map(drop)
}

/// Starts a pacing client.
fn pace(
    requests: &Path,
    rate: f64,
    measure_ms: u64,
    round: usize,
    is_drain: bool,
) -> Result<Client, Failure> {
    let mut arguments = vec![
        format!("--rate={rate}"),
        format!("--measure-ms={measure_ms}"),
        // Every round begins at other keys.
        format!("--first={}", round * 7_919),
    ];
    if is_drain {
        arguments.push("--drain".to_owned());
    }
    Client::start(Kind::Pace, (UMBO, requests, Cores::Client), &arguments)
}
