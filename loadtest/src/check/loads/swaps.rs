//! Writes beside swaps and rollbacks of datasets, through two dispatchers: how long a change holds them up.
//!
//! That no write is lost and no answer mixes datasets is what the world `loads` of the simulation holds.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::tier::{Tier, ask, ask_with, json, wait_for};
use crate::check::connection::Connection;
use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::load::requests::http;
use crate::process::Cores;
use crate::random::Random;
use crate::verdict::{Bound, Verdict};

const CHANGES: usize = 1_000;
const CHANGES_QUICK: usize = 20;
/// One swap in so many is rolled back, and that rollback too.
const ROLLED_BACK_EVERY: u64 = 3;
/// Time between two changes, in which writers go on.
const PAUSE: Duration = Duration::from_millis(30);
const NAMESPACE: &str = "swapped";
/// Writers, a partition each, and its rows.
const WRITERS: u64 = 3;
const ROWS: u64 = 30;

/// From when to when a write or a change went on: before it was sent, and after it was answered.
type Span = (Instant, Instant);

pub(super) fn swaps(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let changes = if plan.is_quick {
        CHANGES_QUICK
    } else {
        CHANGES
    };
    let tier = Tier::cluster(Cores::All)?;
    tier.create(NAMESPACE, "{}")?;
    let first = upload(&tier, "merge", 0)?;
    wait_for_load(&tier, &first, "live")?;
    let is_over = AtomicBool::new(false);
    let (spans, written) = thread::scope(|scope| {
        let write = |number| {
            let (ports, is_over) = (&tier.ports, &is_over);
            scope.spawn(move || write(number, ports, plan.seed, is_over))
        };
        let writers: Vec<_> = (0..WRITERS).map(write).collect();
        let spans = change_often(&tier, changes);
        is_over.store(true, Relaxed);
        let written = writers
            .into_iter()
            .map(|writer| writer.join().expect("no writer panics"));
        (spans, written.collect::<Result<Vec<_>, _>>())
    });
    let (spans, written) = (spans?, written?);
    tier.stop()?;
    Ok(verdicts(&spans, &written))
}

fn verdicts(spans: &[Span], written: &[Written]) -> Vec<Verdict> {
    let (mut beside, mut apart) = (Duration::ZERO, Duration::ZERO);
    for (begun, ended) in written.iter().flat_map(|written| &written.spans) {
        // The first change that was not over before.
        let change = spans.partition_point(|change| change.1 < *begun);
        let is_beside = spans.get(change).is_some_and(|change| change.0 <= *ended);
        let longest = if is_beside { &mut beside } else { &mut apart };
        *longest = (*longest).max(*ended - *begun);
    }
    let writes: usize = written.iter().map(|written| written.spans.len()).sum();
    let errors: u64 = written.iter().map(|written| written.errors).sum();
    vec![
        Verdict::one(
            "swaps: longest write beside a change, ms longer",
            Bound::AtMost(50.0),
            beside.saturating_sub(apart).as_secs_f64() * 1e3,
            format!(
                "{beside:.0?}, others {apart:.0?}; {} changes, {writes} writes",
                spans.len()
            ),
        ),
        Verdict::one(
            "  writes that failed",
            Bound::AtMost(0.0),
            errors as f64,
            "",
        ),
    ]
}

/// Uploads and seals a load; returns its id.
fn upload(tier: &Tier, mode: &str, dataset: u64) -> Result<String, Failure> {
    let port = tier.ports[dataset as usize % tier.ports.len()];
    let loads = format!("/v1/ns/{NAMESPACE}/loads");
    let spec = json!({"mode": mode}).to_string();
    let created: Value = json(&ask(port, "POST", &loads, spec.as_bytes())?)?;
    let load = format!("{loads}/{}", created["id"].as_str().unwrap_or_default());
    let mut lines = String::new();
    for (writer, row) in (0..WRITERS).flat_map(|writer| (0..ROWS).map(move |row| (writer, row))) {
        let row =
            json!({"pk": format!("p{writer}"), "sk": row.to_string(), "v": dataset.to_string()});
        writeln!(lines, "{row}").expect("a string takes every write");
    }
    let target = format!("{load}/parts/0");
    let fields = "Content-Type: application/x-ndjson\r\n";
    ask_with(port, ("PUT", &target), fields, lines.as_bytes())?;
    ask(port, "POST", &format!("{load}/seal"), br#"{"parts":1}"#)?;
    Ok(load)
}

fn wait_for_load(tier: &Tier, target: &str, state: &str) -> Result<Value, Failure> {
    wait_for("a load is built", || {
        let load: Value = json(&ask(tier.ports[0], "GET", target, b"")?)?;
        match load["state"].as_str().unwrap_or_default() {
            now if now == state => Ok(Some(load)),
            "failed" | "aborted" => Err(Failure::WrongAnswer(load.to_string())),
            _ => Ok(None),
        }
    })
}

/// Builds dataset after dataset, activates them and goes back; returns when.
fn change_often(tier: &Tier, changes: usize) -> Result<Vec<Span>, Failure> {
    let mut spans = Vec::new();
    let mut change = |what: &str| -> Result<usize, Failure> {
        let port = tier.ports[spans.len() % tier.ports.len()];
        let begun = Instant::now();
        let target = format!("/v1/ns/{NAMESPACE}/versions/{what}");
        ask(port, "POST", &target, b"")?;
        spans.push((begun, Instant::now()));
        sleep(PAUSE);
        Ok(spans.len())
    };
    for dataset in 1_u64.. {
        let load = upload(tier, "replace", dataset)?;
        let ready = wait_for_load(tier, &load, "ready")?;
        let mut done = change(&format!("{}/activate", ready["version"]))?;
        if dataset.is_multiple_of(ROLLED_BACK_EVERY) {
            change("rollback")?;
            done = change("rollback")?;
        }
        if done >= changes {
            break;
        }
    }
    Ok(spans)
}

/// The writes of one client.
#[derive(Default)]
struct Written {
    spans: Vec<Span>,
    errors: u64,
}

/// Puts and removes rows until the changes are over, each through any dispatcher.
fn write(writer: u64, ports: &[u16], seed: u64, is_over: &AtomicBool) -> Result<Written, Failure> {
    let mut random = Random::seeded(seed ^ (writer + 1));
    let connections = ports.iter().map(|port| Connection::open(*port));
    let mut connections = connections.collect::<Result<Vec<_>, _>>()?;
    let mut written = Written::default();
    while !is_over.load(Relaxed) {
        let connection = random.below(connections.len() as u64) as usize;
        let target = format!("/v1/ns/{NAMESPACE}/kv/p{writer}/{}", random.below(ROWS));
        let (method, body): (_, &[u8]) = match random.below(3) {
            0 => ("DELETE", b""),
            _ => ("PUT", b"written"),
        };
        let begun = Instant::now();
        let answer = connections[connection].ask(&http(method, &target, "", body))?;
        written.spans.push((begun, Instant::now()));
        written.errors += u64::from(!answer.is_success());
    }
    Ok(written)
}
