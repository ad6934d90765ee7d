//! Swaps and rollbacks of datasets under a load of all operations through two dispatchers.
//!
//! Every value of a load is the number of its dataset, every value of a client its own. Each key that is written has one
//! writer, which knows what may be under it: its last write, if that came after the load of the dataset was created, and
//! the number of the dataset otherwise. Readers read keys that no client writes, so all values of an answer are equal.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::Duration;

use serde_json::{Value, json};

use self::clients::{Client, Seen};
use self::dataset::{NAMESPACE, rows_of};
use super::tier::{Tier, ask, json, wait_for};
use super::timeline::{Span, Timeline};
use crate::check::plan::Plan;
use crate::failure::Failure;
use crate::process::Cores;
use crate::verdict::{Bound, Verdict};

mod clients;
mod dataset;

const CHANGES: u64 = 1_000;
const CHANGES_QUICK: u64 = 20;
/// One swap in so many is rolled back, and that rollback too.
const ROLLED_BACK_EVERY: u64 = 3;
/// Time between two changes, in which clients go on.
const PAUSE: Duration = Duration::from_millis(30);
pub(super) fn swaps(plan: &Plan) -> Result<Vec<Verdict>, Failure> {
    let changes = if plan.is_quick {
        CHANGES_QUICK
    } else {
        CHANGES
    };
    let tier = Tier::cluster(Cores::All)?;
    tier.create(NAMESPACE, "{}")?;
    let timeline = Timeline::default();
    first_dataset(&tier)?;
    timeline.activate(0, || ());
    let is_over = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let clients = (0..Client::KINDS).map(|number| {
            let client = Client::new(number, &tier.ports, plan.seed, &timeline, &is_over);
            scope.spawn(move || client.run())
        });
        let clients: Vec<_> = clients.collect();
        let swapped = Swapper::new(&tier, &timeline).run(changes);
        is_over.store(true, Relaxed);
        let mut seen = Seen::default();
        for client in clients {
            seen.add(client.join().expect("no client panics")?);
        }
        swapped.map(|()| seen)
    })?;
    tier.stop()?;
    Ok(verdicts(changes, seen))
}

fn verdicts(changes: u64, seen: Seen) -> Vec<Verdict> {
    let detail = format!(
        "{changes} changes; {} writes, {} reads; {}",
        seen.writes,
        seen.reads,
        seen.first.unwrap_or_default()
    );
    let none = Bound::AtMost(0.0);
    let count = |what: &str, figure: u64| Verdict::one(what, none, figure as f64, "");
    let (beside, apart) = (seen.beside_max_ms, seen.apart_max_ms);
    let stall = (beside - apart).max(0.0);
    vec![
        Verdict::one(
            "swaps: acknowledged writes lost",
            none,
            seen.lost as f64,
            detail,
        ),
        count("  deleted rows back", seen.back),
        count("  answers that mix datasets", seen.mixed),
        count("  reads of a dataset that was not live", seen.strange),
        count("  errors", seen.errors),
        Verdict::one(
            "  longest write beside a change, ms longer",
            Bound::AtMost(50.0),
            stall,
            format!("{beside:.0} ms, others {apart:.0}"),
        ),
    ]
}

/// Uploads and seals a load; returns its id, and when it was created.
fn upload(tier: &Tier, mode: &str, dataset: u64) -> Result<(String, Span), Failure> {
    let port = tier.ports[dataset as usize % tier.ports.len()];
    let loads = format!("/v1/ns/{NAMESPACE}/loads");
    let spec = json!({"mode": mode}).to_string();
    let (span, created) = Span::of(|| ask(port, "POST", &loads, spec.as_bytes()));
    let created: Value = json(&created?)?;
    let id = created["id"].as_str().unwrap_or_default().to_owned();
    let target = format!("{loads}/{id}/parts/0");
    let lines = rows_of(dataset);
    let fields = "Content-Type: application/x-ndjson\r\n";
    super::tier::ask_with(port, ("PUT", &target), fields, lines.as_bytes())?;
    ask(
        port,
        "POST",
        &format!("{loads}/{id}/seal"),
        br#"{"parts":1}"#,
    )?;
    Ok((id, span))
}

/// Waits until a load is in a state.
fn wait_for_load(tier: &Tier, id: &str, state: &str) -> Result<(), Failure> {
    let target = format!("/v1/ns/{NAMESPACE}/loads/{id}");
    wait_for("a load is built", || {
        let load: Value = json(&ask(tier.ports[0], "GET", &target, b"")?)?;
        match load["state"].as_str().unwrap_or_default() {
            now if now == state => Ok(Some(())),
            "failed" | "aborted" => Err(Failure::WrongAnswer(load.to_string())),
            _ => Ok(None),
        }
    })
}

fn first_dataset(tier: &Tier) -> Result<(), Failure> {
    let (id, _) = upload(tier, "merge", 0)?;
    wait_for_load(tier, &id, "live")
}

/// Builds dataset after dataset, activates them and goes back.
struct Swapper<'a> {
    tier: &'a Tier,
    timeline: &'a Timeline,
    /// The one that is live, and the one that was before.
    live: u64,
    before: u64,
    changes: u64,
}

impl<'a> Swapper<'a> {
    const fn new(tier: &'a Tier, timeline: &'a Timeline) -> Self {
        Self {
            tier,
            timeline,
            live: 0,
            before: 0,
            changes: 0,
        }
    }

    fn run(mut self, changes: u64) -> Result<(), Failure> {
        let mut dataset = 0;
        while self.changes < changes {
            dataset += 1;
            let (id, created) = upload(self.tier, "replace", dataset)?;
            self.timeline.create(dataset, created);
            wait_for_load(self.tier, &id, "ready")?;
            let version = self.version_of(&id)?;
            self.change(&format!("{version}/activate"), dataset)?;
            if dataset.is_multiple_of(ROLLED_BACK_EVERY) {
                self.change("rollback", self.before)?;
                self.change("rollback", self.before)?;
            }
        }
        Ok(())
    }

    /// Makes another dataset the live one.
    fn change(&mut self, what: &str, dataset: u64) -> Result<(), Failure> {
        let port = self.tier.ports[self.changes as usize % self.tier.ports.len()];
        let target = format!("/v1/ns/{NAMESPACE}/versions/{what}");
        self.timeline
            .activate(dataset, || ask(port, "POST", &target, b""))?;
        (self.before, self.live) = (self.live, dataset);
        self.changes += 1;
        sleep(PAUSE);
        Ok(())
    }

    fn version_of(&self, load: &str) -> Result<u64, Failure> {
        let target = format!("/v1/ns/{NAMESPACE}/versions");
        let list: Value = json(&ask(self.tier.ports[0], "GET", &target, b"")?)?;
        let mut versions = list["versions"].as_array().into_iter().flatten();
        let version = versions.find(|version| version["load"] == load);
        let number = version.and_then(|version| version["number"].as_u64());
        number.ok_or_else(|| Failure::WrongAnswer(format!("no version of {load}: {list}")))
    }
}
