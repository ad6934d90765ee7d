//! Two callers with the same quota: one reads rows that are in memory, the other rows from disk.
//!
//! What the ledger charged a caller beyond the fixed part (requests, rows, bytes, penalties) is held against how
//! long the store was busy for it, which the server counts apart (`umbo_store_duration_seconds`). The callers take
//! turns, so the time of a turn is that of its caller.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use umbo_api::quota::{UsageAnswer, UsageRow};

use super::cold_pages::evict;
use super::formula::{MILLISECOND, SETTINGS, fixed_units};
use crate::bench::lab::{Lab, NAMESPACE, UMBO, UMBO_ADMIN};
use crate::check::connection::Connection;
use crate::check::plan::Plan;
use crate::check::server::open;
use crate::dataset::{self, PARTITION_ROWS};
use crate::failure::Failure;
use crate::load::requests::http;
use crate::load::scrape::{get, scrape};
use crate::process::Cores;
use crate::random::Random;
use crate::verdict::{Bound, Verdict, median_of};

/// Quota of each caller, in request units a second: a lone connection reaches it on a busy machine.
const RATE: f64 = 200.0;
/// Burst of each quota in request units: a tenth of a second, so that a turn spends its rate and no more.
const BURST: f64 = 20.0;
/// Rows of a range and of a multi-get.
const MANY_ROWS: u64 = 20;
/// Wait for the server to count what it has answered.
const COUNTED: Duration = Duration::from_millis(50);
/// Difference of charged and busy time, of what the price says, at most.
const ERROR_MAX: f64 = 0.15;
/// Difference of what the callers spend in a second, at most: a lone connection wakes late on a busy machine.
const RATES_MAX: f64 = 0.1;

/// Where the rows of a caller are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Memory,
    Disk,
}

impl Place {
    /// The caller that reads there.
    fn caller(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Get,
    Range,
    MultiGet,
    Put,
}

impl Kind {
    /// The operation, as the server calls it in usage and metrics.
    fn operation(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Range => "range",
            Self::MultiGet => "multi-get",
            Self::Put => "put",
        }
    }
}

/// What a caller was charged in a turn, and what the store did for it.
#[derive(Debug, Clone, Copy, Default)]
struct Turn {
    requests: f64,
    /// Request units without penalties.
    units: f64,
    /// Of them those for the time.
    time_units: f64,
    /// Milliseconds of the store.
    busy_ms: f64,
    seconds: f64,
}

impl Turn {
    /// Returns the charge for a busy millisecond, of its price.
    fn priced(&self) -> f64 {
        self.time_units / self.busy_ms / MILLISECOND
    }

    fn rate(&self) -> f64 {
        self.units / self.seconds
    }

    fn busy_us(&self) -> f64 {
        self.busy_ms * 1_000.0 / self.requests
    }
}

pub(super) fn callers(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let mut lab = open(plan)?;
    let fields = [Place::Memory, Place::Disk].map(|place| lab.new_caller(place.caller()));
    let [memory, disk] = fields;
    let (memory, disk) = (memory?, disk?);
    let data = lab.loaded()?;
    let umbo = lab.umbo_with(&data, Cores::Server, SETTINGS)?;
    for place in [Place::Memory, Place::Disk] {
        let caller = place.caller();
        let policy = format!(
            r#"{{"name":"{caller}","match":{{"caller":"{caller}"}},"per":["caller"],"unit":"ru","rate":{RATE},"burst":{BURST}}}"#
        );
        lab.put_policy(caller, &policy)?;
    }
    let mut driver = Driver {
        data: &data,
        rows: lab.rows,
        token: lab.fields(),
        memory,
        disk,
        random: Random::seeded(plan.seed),
        turn: Duration::from_millis(lab.plan.measure_ms),
    };
    let mut verdicts = Vec::new();
    let mut all = Vec::new();
    for kind in [Kind::Get, Kind::Range] {
        let turns = driver.pairs(&lab, kind)?;
        verdicts.extend(judge(kind, &turns));
        for (at, place) in [Place::Memory, Place::Disk].into_iter().enumerate() {
            let of_place = turns.iter().map(|pair| pair[at]).collect();
            all.push((format!("{} {}", kind.operation(), place.caller()), of_place));
        }
    }
    for kind in [Kind::MultiGet, Kind::Put] {
        let mut turns = Vec::new();
        for _ in 0..lab.plan.rounds {
            turns.push(driver.turn(kind, Place::Memory)?);
        }
        all.push((kind.operation().to_owned(), turns));
    }
    umbo.process.stop()?;
    verdicts.push(across_operations(&all));
    Ok(verdicts)
}

/// Judges the turns of both callers of an operation, in memory first.
fn judge(kind: Kind, turns: &[[Turn; 2]]) -> [Verdict; 2] {
    let operation = kind.operation();
    let of = |at: usize, figure: fn(&Turn) -> f64| {
        let figures: Vec<f64> = turns.iter().map(|pair| figure(&pair[at])).collect();
        median_of(&figures)
    };
    let errors = turns
        .iter()
        .map(|[memory, disk]| (disk.priced() / memory.priced() - 1.0).abs())
        .collect();
    let rates = turns
        .iter()
        .map(|[memory, disk]| (disk.rate() / memory.rate() - 1.0).abs())
        .collect();
    [
        Verdict::new(
            format!("{operation}: busy time as priced, disk of memory, off by"),
            Bound::AtMost(ERROR_MAX),
            errors,
            format!(
                "charged of 0.1 RU/ms: memory {:.3}, disk {:.3}; {:.1} and {:.1} µs busy a request",
                of(0, Turn::priced),
                of(1, Turn::priced),
                of(0, Turn::busy_us),
                of(1, Turn::busy_us),
            ),
        ),
        Verdict::new(
            format!("{operation}: RU/s, disk of memory, off by"),
            Bound::AtMost(RATES_MAX),
            rates,
            format!(
                "{:.0} and {:.0} RU/s of a quota of {RATE:.0}",
                of(0, Turn::rate),
                of(1, Turn::rate)
            ),
        ),
    ]
}

/// Compares what a busy millisecond brings in, fixed parts included. For orientation: prices are not calibrated.
fn across_operations(all: &[(String, Vec<Turn>)]) -> Verdict {
    let mut figures = Vec::new();
    let mut details = Vec::new();
    for (name, turns) in all {
        let yields: Vec<f64> = turns.iter().map(|turn| turn.units / turn.busy_ms).collect();
        let median = median_of(&yields);
        figures.push(median);
        details.push(format!("{name} {median:.1}"));
    }
    let most = figures.iter().copied().fold(0.0, f64::max);
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    Verdict::one(
        "RU for a busy ms across operations, most of least",
        Bound::Nothing,
        most / least,
        details.join(", "),
    )
}

/// Sends the requests of both callers by turns.
struct Driver<'a> {
    data: &'a Path,
    rows: u64,
    /// Fields of the checker itself, and of the callers.
    token: String,
    memory: String,
    disk: String,
    random: Random,
    turn: Duration,
}

impl Driver<'_> {
    /// Returns the turns of both callers, in memory first.
    fn pairs(&mut self, lab: &Lab, kind: Kind) -> Result<Vec<[Turn; 2]>, Failure> {
        let pair = |_| {
            let disk = self.turn(kind, Place::Disk)?;
            Ok([self.turn(kind, Place::Memory)?, disk])
        };
        (0..lab.plan.rounds).map(pair).collect()
    }

    /// Spends the quota of a caller for one turn.
    fn turn(&mut self, kind: Kind, place: Place) -> Result<Turn, Failure> {
        let mut connection = Connection::open(UMBO)?;
        match place {
            Place::Memory => {
                let request = request(kind, 0, &self.token);
                for _ in 0..2 {
                    let answer = connection.ask(&request)?;
                    if !answer.is_success() {
                        return Err(answer.unexpected());
                    }
                }
            }
            Place::Disk => evict(self.data)?,
        }
        let before = self.counted(kind, place)?;
        let begun = Instant::now();
        while begun.elapsed() < self.turn {
            let (row, fields) = match place {
                Place::Memory => (0, &self.memory),
                Place::Disk => (self.random.below(self.rows), &self.disk),
            };
            let answer = connection.ask(&request(kind, row, fields))?;
            if answer.is_rejected() {
                let wait = answer.number("\r\numbo-retry-after-ms:")?;
                sleep(Duration::from_secs_f64(wait / 1_000.0));
            } else if !answer.is_success() {
                return Err(answer.unexpected());
            }
        }
        let seconds = begun.elapsed().as_secs_f64();
        sleep(COUNTED);
        let after = self.counted(kind, place)?;
        Ok(Turn {
            requests: after.requests - before.requests,
            units: after.units - before.units,
            time_units: after.time_units - before.time_units,
            busy_ms: after.busy_ms - before.busy_ms,
            seconds,
        })
    }

    /// Returns what the server has counted of a caller, and of the store.
    fn counted(&self, kind: Kind, place: Place) -> Result<Turn, Failure> {
        let operation = kind.operation();
        let usage = get(UMBO, &format!("/v1/ns/{NAMESPACE}/usage"), &self.token)?;
        let usage: UsageAnswer = serde_json::from_str(&usage)
            .map_err(|error| Failure::WrongAnswer(format!("usage: {error}")))?;
        let mut of_caller = usage.rows.into_iter();
        let row = of_caller
            .find(|row| row.caller == place.caller() && row.operation == operation)
            .unwrap_or_default();
        let series = format!("umbo_store_duration_seconds_sum{{operation=\"{operation}\"");
        let busy = scrape(UMBO_ADMIN, &self.token, &series)?;
        Ok(Turn {
            requests: row.requests as f64,
            units: row.ru - row.penalty,
            time_units: time_units(&row),
            busy_ms: busy * 1_000.0,
            seconds: 0.0,
        })
    }
}

/// Makes a request of a caller.
fn request(kind: Kind, row: u64, fields: &str) -> Vec<u8> {
    let (pk, sk) = (dataset::partition(row), dataset::sort(row));
    let path = |rest: String| format!("/v1/ns/{NAMESPACE}/{rest}");
    let fields = format!("{fields}Cache-Control: no-cache\r\n");
    match kind {
        Kind::Get => http("GET", &path(format!("kv/{pk}/{sk}")), &fields, b""),
        Kind::Range => {
            let target = path(format!("range/{pk}?limit={MANY_ROWS}"));
            http("GET", &target, &fields, b"")
        }
        Kind::MultiGet => {
            let first = row - row % PARTITION_ROWS;
            let keys: Vec<String> = (first..first + MANY_ROWS)
                .map(|row| format!(r#"{{"pk":"{pk}","sk":"{}"}}"#, dataset::sort(row)))
                .collect();
            let body = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
            let fields = fields + "Content-Type: application/json\r\n";
            http("POST", &path("batch/get".into()), &fields, body.as_bytes())
        }
        Kind::Put => {
            let value = dataset::value(row);
            let target = path(format!("kv/{pk}/{sk}"));
            http("PUT", &target, &fields, value.as_bytes())
        }
    }
}

/// Returns what of the usage of reads was charged for time.
fn time_units(row: &UsageRow) -> f64 {
    let fixed = fixed_units(row.requests as f64, row.rows as f64, row.read_bytes as f64);
    row.ru - row.penalty - fixed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(time_units: f64, busy_ms: f64) -> Turn {
        Turn {
            requests: 100.0,
            units: 112.0 + time_units,
            time_units,
            busy_ms,
            seconds: 1.0,
        }
    }

    #[test]
    fn what_is_left_of_a_charge_is_the_price_of_its_time() {
        let row = UsageRow {
            requests: 100,
            ru: 113.25,
            penalty: 1.0,
            rows: 100,
            read_bytes: 4_096,
            ..UsageRow::default()
        };
        assert!((time_units(&row) - 6.25).abs() < 1e-9);
    }

    #[test]
    fn a_cap_on_the_time_of_reads_from_disk_is_noticed() {
        let memory = turn(0.04, 0.4);
        let [as_priced, _] = judge(Kind::Get, &[[memory, turn(2.0, 20.0)]]);
        assert!(as_priced.holds());
        let [capped, _] = judge(Kind::Get, &[[memory, turn(0.12, 20.0)]]);
        assert!(!capped.holds());
    }
}
