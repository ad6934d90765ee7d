//! Usage of many days: what the rows hold after restarts and kills, against an oracle that has counted every request.
//!
//! The rows are those of the real writer, in a store in memory, and they are read as operators read them. A small month
//! runs with the other tests; `MONTH_DAYS`, `MONTH_CALLERS` and `MONTH_DISPATCHERS` make a larger one, for which an optimized
//! build is quick enough.

use std::collections::BTreeMap;
use std::env;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use serde_json::Value;
use umbo_admin::UsageWriter;
use umbo_quota::{ActualUsage, CostHint, QuotaRequest, Subject};
use umbo_types::{Attributes, NamespaceId, Operation, PriceMultiplier};

use super::support::{Site, TestDispatcher};

const MINUTE: Duration = Duration::from_mins(1);
const MINUTES_A_STEP: u64 = 10;
const MINUTES_A_DAY: u64 = 1_440;
/// A kill comes in one of so many steps of a dispatcher, and so does a restart.
const STEPS_A_KILL: u64 = 40;
const STEPS_A_RESTART: u64 = 60;
/// In one of so many other steps the open step is written at each minute. In the rest only the last minute writes, which
/// leaves the same rows.
const STEPS_A_FULL_WRITE: u64 = 8;

/// What a caller has used of an operation: requests, micro-RU, rows, and bytes.
type Sums = [u64; 4];
type Oracle = BTreeMap<(String, &'static str), Sums>;

/// One dispatcher, and what it has counted since its last write.
struct Member {
    dispatcher: TestDispatcher,
    writer: UsageWriter,
    unwritten: Oracle,
}

/// What came of the month.
#[derive(Debug, Default)]
struct Month {
    expected: Oracle,
    /// Lost by kills.
    lost: Oracle,
    kills: u64,
    restarts: u64,
}

impl Member {
    async fn start(site: &Site) -> Self {
        let dispatcher = site.pod().await;
        Self {
            writer: UsageWriter::new(&dispatcher.dispatcher),
            dispatcher,
            unwritten: Oracle::new(),
        }
    }

    /// Sends some requests of a caller.
    fn request(&mut self, site: &Site, caller: &str, operation: Operation) {
        let request = QuotaRequest {
            subject: Subject {
                caller,
                namespace: "month",
                namespace_id: NamespaceId(7),
                attributes: Attributes::NONE,
                operation,
            },
            hint: CostHint::default(),
            ticket: None,
            price_multiplier: PriceMultiplier::NONE,
        };
        let now = umbo_types::Clock::monotonic(&*site.clock);
        let mut reservation = self.dispatcher.limiter.admit(&request, now, 1).unwrap();
        reservation.sent();
        let bytes = fastrand::u64(100..4_000);
        let mut work = ActualUsage {
            rows: 1,
            reads: 1,
            ..ActualUsage::default()
        };
        if operation.is_write() {
            work.write_bytes = bytes;
        } else {
            work.read_bytes = bytes;
        }
        let charged = reservation.settle(&work).as_micros();
        let sums = [1, charged, 1, bytes];
        add(&mut self.unwritten, caller, operation.as_str(), sums);
    }

    /// Samples the minute, as the observer of a dispatcher samples each second.
    fn sample(&self, site: &Site) {
        let second = umbo_types::Clock::wall(&*site.clock).as_millis() / 1_000;
        let steps = self.dispatcher.dispatcher.usage_steps.lock();
        let mut steps = steps.unwrap_or_else(PoisonError::into_inner);
        let quota = &self.dispatcher.limiter;
        quota.sample_usage(&mut steps, (second - 1, 60), |_, _| {});
    }
}

fn add(oracle: &mut Oracle, caller: &str, operation: &'static str, sums: Sums) {
    let all = oracle.entry((caller.to_owned(), operation)).or_default();
    for (all, one) in all.iter_mut().zip(sums) {
        *all += one;
    }
}

fn add_all(oracle: &mut Oracle, more: Oracle) {
    for ((caller, operation), sums) in more {
        add(oracle, &caller, operation, sums);
    }
}

impl Month {
    /// Lets the days pass.
    async fn pass(&mut self, site: &Site, members: &mut [Member], days: u64, names: &[String]) {
        for step in 0..days * MINUTES_A_DAY / MINUTES_A_STEP {
            // The minute of the step in which each dispatcher is killed or restarted.
            let minute_of = |steps| {
                let is_now = fastrand::u64(..steps) == 0;
                is_now.then(|| fastrand::u64(..MINUTES_A_STEP))
            };
            let kills: Vec<_> = members.iter().map(|_| minute_of(STEPS_A_KILL)).collect();
            let restarts: Vec<_> = members.iter().map(|_| minute_of(STEPS_A_RESTART)).collect();
            let is_written = step % STEPS_A_FULL_WRITE == 0;
            for minute in 0..MINUTES_A_STEP {
                for (at, member) in members.iter_mut().enumerate() {
                    for name in names {
                        if fastrand::u8(..3) == 0 {
                            let write = fastrand::u8(..4) == 0;
                            let operation = if write {
                                Operation::Put
                            } else {
                                Operation::Get
                            };
                            member.request(site, name, operation);
                        }
                    }
                    if kills[at] == Some(minute) {
                        self.kill(site, member).await;
                    }
                }
                site.clock.advance(MINUTE);
                for (at, member) in members.iter_mut().enumerate() {
                    member.sample(site);
                    if restarts[at] == Some(minute) {
                        member.writer.end().await;
                        add_all(&mut self.expected, std::mem::take(&mut member.unwritten));
                        *member = Member::start(site).await;
                        self.restarts += 1;
                    } else if is_written || kills[at].is_some() || minute + 1 == MINUTES_A_STEP {
                        member.writer.write().await;
                        add_all(&mut self.expected, std::mem::take(&mut member.unwritten));
                    }
                }
            }
        }
    }

    /// Kills a dispatcher within a minute: before or after a write has ended.
    async fn kill(&mut self, site: &Site, member: &mut Member) {
        if fastrand::bool() {
            member.sample(site);
        }
        if fastrand::u8(..4) == 0 {
            // The kill comes after the row is stored.
            member.sample(site);
            member.writer.write().await;
            add_all(&mut self.expected, std::mem::take(&mut member.unwritten));
        }
        add_all(&mut self.lost, std::mem::take(&mut member.unwritten));
        *member = Member::start(site).await;
        self.kills += 1;
    }
}

/// Reads the usage by caller and operation.
async fn reported(member: &TestDispatcher, seconds: u64) -> Oracle {
    let path = format!(
        "/admin/v1/usage?last_seconds={seconds}&by=caller,operation&namespace=month&limit=65536"
    );
    let answer = member.ask("GET", &path, &[], "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.body["unreadable_rows"], 0);
    let mut sums = Oracle::new();
    for row in answer.body["rows"].as_array().unwrap() {
        let number = |field: &str| row[field].as_u64().unwrap();
        let bytes = number("read_bytes") + number("write_bytes");
        let micros = (row["ru"].as_f64().unwrap() * 1e6).round() as i64;
        let micros = micros.unsigned_abs();
        let operation = match &row["operation"] {
            Value::String(text) if text == "put" => "put",
            other => {
                assert_eq!(other, "get");
                "get"
            }
        };
        let caller = row["caller"].as_str().unwrap();
        let all = [number("requests"), micros, number("rows"), bytes];
        add(&mut sums, caller, operation, all);
    }
    sums
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    let text = env::var(name).ok();
    text.map_or(otherwise, |text| text.parse().unwrap())
}

#[tokio::test]
async fn days_of_usage_are_summed_but_for_a_minute_of_each_kill() {
    let days = from_environment("MONTH_DAYS", 2);
    let callers = from_environment("MONTH_CALLERS", 50);
    let members_count = from_environment("MONTH_DISPATCHERS", 2);
    let seed = from_environment("MONTH_SEED", fastrand::u64(..1 << 32));
    println!("MONTH_SEED={seed}");
    fastrand::seed(seed);
    let site = Site {
        accounts_max: 16_384,
        ..Site::new()
    };
    let names: Vec<_> = (0..callers).map(|at| format!("service-{at:04}")).collect();
    let mut members = Vec::new();
    for _ in 0..members_count {
        members.push(Member::start(&site).await);
    }
    let mut month = Month::default();
    month.pass(&site, &mut members, days, &names).await;

    // Nothing confirms the records here, and a dispatcher that has run for a day without that does not answer.
    let reader = site.pod().await;
    let begun = Instant::now();
    let found = reported(&reader, (days + 1) * 86_400).await;
    let took = Instant::now().duration_since(begun);
    assert!(month.kills > 0 && month.restarts > 0, "{month:?}");
    assert!(!month.lost.is_empty(), "a kill loses something");
    let differs = |key| found.get(key) != month.expected.get(key);
    let wrong: Vec<_> = month.expected.keys().filter(|key| differs(key)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(found.len(), month.expected.len());

    let rows = site.records().await;
    let rows = rows
        .iter()
        .filter(|(key, _)| key.partition.as_bytes().starts_with(b"umbo-usage"));
    let lens: Vec<_> = rows.map(|(_, value)| value.len()).collect();
    let bytes: usize = lens.iter().sum();
    let sum = |oracle: &Oracle| oracle.values().map(|sums| sums[0]).sum::<u64>();
    println!(
        "{days} days, {callers} callers, {members_count} dispatchers: {} rows of {} KiB; {} requests, {} kills lost {} \
         of them; {} restarts; read in {took:?}",
        lens.len(),
        bytes >> 10,
        sum(&month.expected),
        month.kills,
        sum(&month.lost),
        month.restarts,
    );
    // 200 MiB for thirty days of a thousand callers at one dispatcher.
    let allowed = (200 << 20) * days * callers * members_count / 30 / 1_000;
    assert!(
        (bytes as u64) < allowed.max(1 << 20),
        "{bytes} of {allowed}"
    );
}
