//! Many small loads of several other namespaces and callers at once. They compete for the places of runs, with one
//! another and with the loads of the world, and each is live in the end with its row.

use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};

use super::loader::STEP_TIME_MAX;
use super::world::LoadsWorld;
use crate::chance::Chance;
use crate::records_world::process::{ProcessAnswer, Told};
use crate::simulation::{elapsed, is_violated, met, note, violated};

/// The other namespaces.
pub(super) const NAMES: [&str; 2] = ["n1", "n2"];
/// Loads at once: more than two dispatchers have places, and of each namespace fewer than may be open.
const LOADS: usize = 10;
/// Callers that make them.
const CALLERS: usize = 3;

/// Makes rounds of loads until the faults are over.
pub(super) async fn run(world: Rc<LoadsWorld>, mut chance: Chance) {
    for round in 0..chance.weighted(&[(2, 0), (1, 1), (1, 2)]) {
        let wait = chance.between(200, 4_000);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        if world.stores.is_over() {
            return;
        }
        let loads: Vec<_> = (0..LOADS)
            .map(|number| {
                let name = NAMES[number % NAMES.len()];
                let chance = Chance::new(chance.below(u64::MAX), "one of the crowd");
                let one = OneLoad {
                    world: Rc::clone(&world),
                    chance,
                    base: format!("/v1/ns/{name}"),
                    key: format!("{round}-{number}"),
                    caller: format!("caller-{}", number % CALLERS),
                };
                tokio::task::spawn_local(one.run())
            })
            .collect();
        for load in loads {
            if let Err(error) = load.await {
                violated(&format!("a client of the crowd panicked: {error}"));
            }
        }
    }
}

struct OneLoad {
    world: Rc<LoadsWorld>,
    chance: Chance,
    base: String,
    key: String,
    caller: String,
}

impl OneLoad {
    async fn run(mut self) {
        let create = json!({ "mode": "merge" }).to_string();
        let Some(created) = self
            .insist("POST", "loads", "application/json", create)
            .await
        else {
            return;
        };
        let id = created.json()["id"].as_str().unwrap_or_default().to_owned();
        let row = json!({ "pk": "crowd", "sk": self.key, "v": self.key }).to_string();
        let part = format!("loads/{id}/parts/0");
        let seal = json!({ "parts": 1 }).to_string();
        let steps = [
            ("PUT", part, "application/x-ndjson", row),
            ("POST", format!("loads/{id}/seal"), "application/json", seal),
        ];
        for (method, path, kind, body) in steps {
            if self.insist(method, &path, kind, body).await.is_none() {
                return;
            }
        }
        if self.is_live(&id).await {
            met("load of a crowd live");
            self.check().await;
        }
    }

    async fn is_live(&mut self, id: &str) -> bool {
        let (until, mut last) = (self.until(), Value::Null);
        while elapsed() < until && !is_violated() {
            self.pause().await;
            let path = format!("loads/{id}");
            let Some(answer) = self
                .ask("GET", &path, "application/json", String::new())
                .await
            else {
                continue;
            };
            let load = answer.json();
            match load["state"].as_str().unwrap_or_default() {
                "live" => return true,
                "failed" | "aborted" => {
                    violated(&format!("a load of the crowd has ended: {load}"));
                    return false;
                }
                _ => last = load,
            }
            let reason = last["reason"].as_str().unwrap_or_default();
            if reason.contains("waits for its turn") {
                met("load waits for its turn");
            }
        }
        violated(&format!("a load of the crowd does not become live: {last}"));
        false
    }

    /// Reads the row. No other run writes it.
    async fn check(&mut self) {
        let until = self.until();
        let path = format!("kv/crowd/{}", self.key);
        while elapsed() < until && !is_violated() {
            let answer = self
                .ask("GET", &path, "application/json", String::new())
                .await;
            match answer {
                Some(answer) if answer.status.is_success() => {
                    if answer.body != self.key.as_bytes() {
                        violated("a row of the crowd has another value");
                    }
                    return;
                }
                Some(answer) if answer.code() == "key-not-found" => {
                    return violated("a row of the crowd is not there");
                }
                _ => self.pause().await,
            }
        }
        violated("a row of the crowd cannot be read");
    }

    async fn insist(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: String,
    ) -> Option<ProcessAnswer> {
        let until = self.until();
        while elapsed() < until && !is_violated() {
            let answer = self.ask(method, path, kind, body.clone()).await;
            if let Some(answer) = answer.filter(|answer| answer.told() == Told::Done) {
                return Some(answer);
            }
            self.pause().await;
        }
        violated(&format!("{method} {path} of the crowd is not acknowledged"));
        None
    }

    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        kind: &str,
        body: String,
    ) -> Option<ProcessAnswer> {
        let dispatcher = self.chance.index(self.world.dispatchers.len());
        let mut headers = vec![
            ("content-type", kind.to_owned()),
            ("umbo-quota-user", self.caller.clone()),
        ];
        if path == "loads" {
            headers.push(("idempotency-key", format!("\"{}\"", self.key)));
        }
        let path = format!("{}/{path}", self.base);
        let process = &self.world.dispatchers[dispatcher].process;
        let answer = process
            .ask(method, &path, &headers, body.into_bytes())
            .await;
        let told = answer
            .as_ref()
            .map(|answer| (answer.status.as_u16(), answer.code()));
        note!("{method} {path} by dispatcher {dispatcher}: {told:?}");
        answer
    }

    async fn pause(&mut self) {
        let wait = self.chance.below(800);
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }

    /// Returns when a step must have succeeded.
    fn until(&self) -> Duration {
        elapsed().max(self.world.stores.plan.lasts) + STEP_TIME_MAX
    }
}
