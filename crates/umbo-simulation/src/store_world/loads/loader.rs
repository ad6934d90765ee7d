//! The client that makes loads, one after the other, and changes which version is live.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::datasets::{LATE_MAX, RowId};
use super::large_rows::{LOADED_PARTITION, LOADED_ROWS, is_large, long_bytes};
use super::paused_store::REPLACED;
use super::world::LoadsWorld;
use crate::chance::Chance;
use crate::records_world::process::{ProcessAnswer, Told};
use crate::simulation::{elapsed, is_violated, met, note, violated};

/// Time after the last fault within which every step of a load succeeds: it includes all waits of a run that was
/// refused again and again, and the lease of one that ended.
pub(super) const STEP_TIME_MAX: Duration = Duration::from_mins(2);

/// Creates a namespace while nothing fails.
pub(super) async fn create_namespace(world: &LoadsWorld, name: &str) {
    let path = format!("/admin/v1/namespaces/{name}");
    for dispatcher in (0..world.dispatchers.len()).cycle().take(20) {
        let process = &world.dispatchers[dispatcher].process;
        let answer = process.ask("PUT", &path, &[], b"{}".to_vec()).await;
        let is_there = |answer: ProcessAnswer| {
            answer.told() == Told::Done || answer.code() == "namespace-exists"
        };
        if answer.is_some_and(is_there) {
            return;
        }
    }
    violated("a namespace cannot be created although nothing fails");
}

/// Makes loads until the faults are over, and ends the last one.
pub(super) async fn run(world: Rc<LoadsWorld>, chance: Chance) {
    let mut loader = Loader {
        world,
        chance,
        live: 1,
        kept: None,
    };
    while !loader.world.stores.is_over() && !is_violated() {
        loader.round().await;
    }
    let live = loader.live;
    note!("version {live} is the live one in the end");
    loader.world.datasets.borrow_mut().live = live;
}

fn id_of(load: &Value) -> String {
    load["id"].as_str().unwrap_or_default().to_owned()
}

struct Loader {
    world: Rc<LoadsWorld>,
    chance: Chance,
    live: u32,
    /// The version that can be activated again.
    kept: Option<u32>,
}

impl Loader {
    /// Makes a load and brings it to some end.
    async fn round(&mut self) {
        if self.chance.per_mille(250) {
            return self.merge().await;
        }
        let activates = self.chance.per_mille(300);
        let spec = json!({
            "mode": "replace", "activate": activates, "guards": { "rows_change_max": 1e6 },
        });
        let Some((created, between)) = self.create(&spec).await else {
            return;
        };
        let (id, version) = (id_of(&created), created["version"].as_u64());
        let version = version.unwrap_or_default() as u32;
        note!("load {id} builds version {version}");
        self.world.datasets.borrow_mut().create(version, between);
        if self.chance.per_mille(100) {
            return self.abort(&id).await;
        }
        let rows = self.rows(&format!("l{version}"));
        let of_version = rows.iter().cloned().collect();
        self.world.datasets.borrow_mut().fill(version, of_version);
        let Some(parts) = self.upload(&id, &rows).await else {
            return;
        };
        if self.chance.per_mille(50) {
            return self.abort(&id).await;
        }
        if activates {
            self.world
                .datasets
                .borrow_mut()
                .activate(version, elapsed());
        }
        if !self.seal(&id, parts).await {
            return;
        }
        if !activates && self.chance.per_mille(200) {
            let wait = self.chance.below(3_000);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            return self.abort(&id).await;
        }
        let aim = if activates { "live" } else { "ready" };
        if !self.reaches(&id, aim).await {
            return;
        }
        met(if activates { "load live" } else { "load ready" });
        if activates {
            self.kept = Some(std::mem::replace(&mut self.live, version));
        } else if self.chance.per_mille(100) {
            return self.abort(&id).await;
        } else if !self.activate(version).await {
            return;
        }
        self.pause().await;
        if self.chance.per_mille(500)
            && let Some(before) = self.kept
            && self.activate(before).await
        {
            met("rollback");
            self.pause().await;
            if self.chance.per_mille(500) && !self.activate(version).await {
                return;
            }
        }
        if self.chance.per_mille(300)
            && let Some(kept) = self.kept.take()
        {
            let path = format!("versions/{kept}");
            let is_gone = |answer: &ProcessAnswer| {
                ["version-superseded", "version-not-found"].contains(&&*answer.code())
            };
            if self.insist("DELETE", &path, &Value::Null, is_gone).await {
                met("version dropped");
            }
        }
    }

    async fn pause(&mut self) {
        let wait = self.chance.below(1_500);
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }

    /// Makes a load of mode merge, the import of a file or another one, and brings it to its end.
    async fn merge(&mut self) {
        let is_import = self.chance.per_mille(500);
        let spec = json!({ "mode": "merge", "import": is_import });
        let Some((created, between)) = self.create(&spec).await else {
            return;
        };
        let id = id_of(&created);
        let rows = self.rows(&format!("m{}-", elapsed().as_millis()));
        // Rows of an import are applied from the first part on.
        let early = is_import.then(|| self.begin_merge(&rows, between));
        let Some(parts) = self.upload(&id, &rows).await else {
            return;
        };
        let merged = early.unwrap_or_else(|| self.begin_merge(&rows, between));
        if !self.seal(&id, parts).await || !self.reaches(&id, "live").await {
            return;
        }
        met(if is_import {
            "file imported"
        } else {
            "load merged"
        });
        for (row, write, is_last) in merged {
            let mut datasets = self.world.datasets.borrow_mut();
            datasets.end(row, write, Some(true), elapsed());
            if !is_last {
                datasets.replace(row, write, elapsed());
            }
        }
    }

    /// Records rows of a load of mode merge, created between two instants, that are applied from now on. Returns each with
    /// the number of its write, and whether no later one has its key.
    fn begin_merge(
        &self,
        rows: &[(RowId, String)],
        between: (Duration, Duration),
    ) -> Vec<(RowId, usize, bool)> {
        let mut datasets = self.world.datasets.borrow_mut();
        let begun = rows.iter().enumerate().map(|(at, (row, value))| {
            let is_last = rows[at + 1..].iter().all(|(other, _)| other != row);
            let write = datasets.merge(*row, value.clone(), between, elapsed());
            (*row, write, is_last)
        });
        begun.collect()
    }

    async fn seal(&mut self, id: &str, parts: usize) -> bool {
        let path = format!("loads/{id}/seal");
        let seal = json!({ "parts": parts });
        self.insist("POST", &path, &seal, |_| false).await
    }

    /// Creates a load. Returns it, and two instants between which it was created.
    async fn create(&mut self, spec: &Value) -> Option<(Value, (Duration, Duration))> {
        let until = self.until();
        while elapsed() < until && !is_violated() {
            let asked = elapsed();
            let answer = self.ask("POST", "loads", spec).await;
            match answer {
                Some(answer) if answer.told() == Told::Done => {
                    return Some((answer.json(), (asked, elapsed())));
                }
                // Some were created whose answers were lost.
                Some(answer) if ["load-building", "load-limit"].contains(&&*answer.code()) => {
                    self.abort_open().await;
                }
                _ => {}
            }
            self.pause().await;
        }
        violated("a load cannot be created");
        None
    }

    async fn abort_open(&mut self) {
        let Some(list) = self.ask("GET", "loads", &Value::Null).await else {
            return;
        };
        let list = list.json();
        for load in list["loads"].as_array().into_iter().flatten() {
            let state = load["state"].as_str().unwrap_or_default();
            if ["created", "uploading"].contains(&state) {
                let path = format!("loads/{}/abort", load["id"].as_str().unwrap_or_default());
                self.ask("POST", &path, &Value::Null).await;
            }
        }
    }

    /// Draws the rows of a load: each row of the namespace, or some, in the order of their keys; and rows of some of
    /// these keys before them, which those replace.
    fn rows(&mut self, name: &str) -> Vec<(RowId, String)> {
        let per_mille = self.chance.weighted(&[(2, 1_000), (2, 600), (1, 0)]);
        let mut rows = Vec::new();
        for partition in 0..self.world.partitions {
            for sort in 0..self.world.sorts {
                if self.chance.per_mille(per_mille) {
                    let value = format!("{name}-{partition}-{sort}");
                    rows.push(((partition, sort), value));
                }
            }
        }
        for sort in 0..LOADED_ROWS {
            if self.chance.per_mille(self.world.large_per_mille) {
                rows.push(((LOADED_PARTITION, sort), format!("{name}-large-{sort}")));
            }
        }
        for number in 0..self.chance.weighted(&[(2, 0), (1, 1), (1, 4)]) {
            if !rows.is_empty() {
                met("key twice in a load");
                let at = self.chance.index(rows.len());
                let (row, value) = rows[at].clone();
                let before = self.chance.index(at + 1);
                rows.insert(before, (row, format!("{value}-{REPLACED}{number}")));
            }
        }
        rows
    }

    /// Uploads rows in some parts, in any order; returns how many.
    async fn upload(&mut self, id: &str, rows: &[(RowId, String)]) -> Option<usize> {
        let count = 1 + self.chance.below(3) as usize;
        let mut parts = vec![String::new(); count];
        for (at, (row, value)) in rows.iter().enumerate() {
            let (partition, sort) = row;
            let value = if is_large(*row) {
                String::from_utf8(long_bytes(value)).expect("it was made of text")
            } else {
                value.clone()
            };
            writeln!(
                parts[at * count / rows.len()],
                r#"{{"pk":"p{partition}","sk":"k{sort}","v":"{value}"}}"#
            )
            .expect("a string takes everything");
        }
        let mut parts: Vec<_> = parts.into_iter().enumerate().collect();
        while !parts.is_empty() {
            let next = self.chance.below(parts.len() as u64) as usize;
            let (number, lines) = parts.swap_remove(next);
            let path = format!("loads/{id}/parts/{number}");
            let body = Value::String(lines);
            if !self.insist("PUT", &path, &body, |_| false).await {
                return None;
            }
            if self.chance.per_mille(500) {
                self.pause().await;
            }
        }
        let path = format!("loads/{id}");
        if let Some(load) = self.ask("GET", &path, &Value::Null).await
            && load.json()["rows_applied"].as_u64() > Some(0)
        {
            met("rows applied before the seal");
        }
        Some(count)
    }

    async fn abort(&mut self, id: &str) {
        let path = format!("loads/{id}/abort");
        if self.insist("POST", &path, &Value::Null, |_| false).await {
            met("load aborted");
        }
    }

    /// Makes a version the live one.
    async fn activate(&mut self, version: u32) -> bool {
        self.world
            .datasets
            .borrow_mut()
            .activate(version, elapsed());
        let path = format!("versions/{version}/activate");
        if !self.insist("POST", &path, &Value::Null, |_| false).await {
            return false;
        }
        met("version activated");
        self.kept = Some(std::mem::replace(&mut self.live, version));
        true
    }

    /// Waits until a load is in a state. It must not end in another one.
    async fn reaches(&mut self, id: &str, aim: &str) -> bool {
        let path = format!("loads/{id}");
        let until = self.until();
        let mut last = Value::Null;
        while elapsed() < until && !is_violated() {
            self.pause().await;
            let Some(answer) = self.ask("GET", &path, &Value::Null).await else {
                continue;
            };
            let load = answer.json();
            let state = load["state"].as_str().unwrap_or_default();
            if state == aim {
                return true;
            }
            if ["failed", "aborted", "superseded", "rolled-back"].contains(&state) {
                violated(&format!("load {id} ended as {state}: {}", load["reason"]));
                return false;
            }
            last = load;
        }
        violated(&format!("load {id} does not become {aim}: {last}"));
        false
    }

    /// Sends a request that may be repeated until it is acknowledged, or answered as `is_done` says.
    async fn insist(
        &mut self,
        method: &str,
        path: &str,
        body: &Value,
        is_done: impl Fn(&ProcessAnswer) -> bool,
    ) -> bool {
        let until = self.until();
        let (mut is_in_doubt, mut last) = (false, Value::Null);
        while elapsed() < until && !is_violated() {
            let answer = self.ask(method, path, body).await;
            let told = answer.as_ref().map_or(Told::Unknown, ProcessAnswer::told);
            is_in_doubt |= told == Told::Unknown;
            if told == Told::Done || answer.as_ref().is_some_and(&is_done) {
                if is_in_doubt {
                    // An earlier attempt must not come after the next step.
                    tokio::time::sleep(LATE_MAX).await;
                }
                return true;
            }
            last = answer.map_or(Value::Null, |answer| answer.json());
            self.pause().await;
        }
        violated(&format!("{method} {path} is not acknowledged: {last}"));
        false
    }

    /// Returns when a step must have succeeded.
    fn until(&self) -> Duration {
        elapsed().max(self.world.stores.plan.lasts) + STEP_TIME_MAX
    }

    async fn ask(&mut self, method: &str, path: &str, body: &Value) -> Option<ProcessAnswer> {
        let first = self.chance.index(self.world.dispatchers.len());
        let all = self.world.dispatchers.len();
        let mut others = (first..first + all).map(|number| number % all);
        let dispatcher = others.find(|&number| self.world.answers(number));
        let dispatcher = dispatcher.unwrap_or(first);
        let (kind, body) = match body {
            Value::Null => ("application/json", Vec::new()),
            Value::String(lines) => ("application/x-ndjson", lines.clone().into_bytes()),
            json => ("application/json", json.to_string().into_bytes()),
        };
        let headers = [("content-type", kind.to_owned())];
        let world = Rc::clone(&self.world);
        let answer = world.ask(dispatcher, method, path, &headers, body).await;
        match &answer {
            Some(answer) => note!(
                "{method} {path} by dispatcher {dispatcher}: {} {}",
                answer.status.as_u16(),
                answer.code()
            ),
            None => note!("{method} {path} by dispatcher {dispatcher}: no answer"),
        }
        answer
    }
}
