//! What the tasks of a world of Umbo's own records share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use umbo_types::Clock;

use super::names::SimulatedNamespaces;
use super::process::{Process, ProcessAnswer};
use super::shared_store::SharedStore;
use super::token::FirstToken;
use super::ways::PeerWays;
use crate::chance::Chance;
use crate::history::OperationHistory;
use crate::simulation::{elapsed, is_violated, note};
use crate::value::WriteId;

/// Attempts to start a dispatcher while nothing fails; a marked point makes at most one in twenty of them
/// fail.
const CALM_STARTS_MAX: u32 = 16;

/// Random parameters of a seed.
#[derive(Debug, Clone)]
pub(super) struct RecordsPlan {
    pub(super) dispatchers: usize,
    pub(super) shards: u16,
    pub(super) names: usize,
    pub(super) keys: u64,
    pub(super) clients: u32,
    /// Of each dispatcher.
    pub(super) refresh: Vec<Duration>,
    pub(super) think_micros: u64,
    pub(super) fault_every_ms: u64,
    pub(super) has_token: bool,
    pub(super) has_quota: bool,
    pub(super) lasts: Duration,
}

impl RecordsPlan {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let dispatchers = chance.between(1, 3) as usize;
        Self {
            dispatchers,
            shards: chance.between(1, 4) as u16,
            names: chance.between(1, 3) as usize,
            keys: chance.between(1, 5),
            clients: chance.between(1, 4) as u32,
            refresh: (0..dispatchers)
                .map(|_| Duration::from_millis(chance.between(50, 500)))
                .collect(),
            think_micros: chance.weighted(&[(1, 5_000), (2, 50_000), (1, 300_000)]),
            fault_every_ms: chance.weighted(&[(1, 100), (2, 700), (1, 3_000)]),
            has_token: chance.per_mille(250),
            has_quota: Chance::new(chance.clone().draw(), "quota").per_mille(400),
            lasts: Duration::from_millis(chance.between(3_000, 12_000)),
        }
    }
}

/// State that all tasks of the world share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: RecordsPlan,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) store: Arc<SharedStore>,
    pub(super) dispatchers: Vec<Process>,
    pub(super) ways: Arc<PeerWays>,
    pub(super) names: RefCell<SimulatedNamespaces>,
    pub(super) history: RefCell<OperationHistory>,
    /// Writes by name and key: one that is answered late may be of the rows of a namespace that was created since.
    pub(super) asked: RefCell<BTreeMap<(usize, u64), Vec<WriteId>>>,
    pub(super) token: RefCell<FirstToken>,
    /// Since when nothing fails; none while something does.
    pub(super) calm_since: Cell<Option<Duration>>,
    pub(super) is_over: Cell<bool>,
}

impl World {
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get() || elapsed() >= self.plan.lasts || is_violated()
    }

    /// Starts or restarts a dispatcher. Returns whether it serves.
    pub(super) async fn start(&self, number: usize) -> bool {
        let (store, is_dead) = self.store.handle();
        self.names.borrow_mut().forget_seen(number);
        let refresh = self.plan.refresh[number];
        let clock = Arc::clone(&self.clock);
        let is_open = self.dispatchers[number]
            .open(store, clock, is_dead, (number, refresh))
            .await;
        note!("dispatcher {number} is started: {is_open}");
        is_open
    }

    /// Starts a dispatcher while nothing fails except at marked points; a few retries suffice.
    pub(super) async fn starts_in_the_end(&self, number: usize) -> bool {
        for _ in 0..CALM_STARTS_MAX {
            if self.start(number).await {
                return true;
            }
        }
        false
    }

    /// Sends a request to a dispatcher, with the token if there is one.
    pub(super) async fn ask(
        &self,
        dispatcher: usize,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> Option<ProcessAnswer> {
        let sent = elapsed();
        let headers = self.token.borrow().headers();
        let answer = self.dispatchers[dispatcher]
            .ask(method, path, &headers, body)
            .await?;
        if answer.status == http::StatusCode::UNAUTHORIZED {
            self.token.borrow().check_refusal(!headers.is_empty(), sent);
        }
        Some(answer)
    }
}
