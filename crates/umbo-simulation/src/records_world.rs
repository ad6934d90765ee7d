//! World 2: Umbo's own records: dispatchers over one store whose shards fail, and changes of namespaces and tokens.
//!
//! One client changes each namespace through any dispatcher, one after the other; others write and read rows
//! of the namespaces meanwhile, through any dispatcher. Dispatchers are killed and started again. A change
//! that was answered as not applied must never be visible, an acknowledged one always; no acknowledged row of
//! an existing namespace may be missing, and no row of a removed one may come back or stay.

mod admin;
mod faults;
mod names;
mod process;
mod rest;
mod rows;
mod shared_store;
mod token;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_types::Clock;

use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::history::{History, WriteId};
use crate::simulation::{elapsed, is_violated, note, violated};
use names::Names;
use process::Process;
use shared_store::SharedStore;
use token::Token;

/// Time in which every dispatcher must see a change while nothing fails: a second, and the intervals of the
/// loops.
const LEARNED_WITHIN: Duration = Duration::from_millis(2_500);
/// Attempts to start a dispatcher while nothing fails; a marked point makes at most one in twenty of them
/// fail.
const CALM_STARTS_MAX: u32 = 16;

#[derive(Debug, Clone)]
struct Plan {
    dispatchers: usize,
    shards: u16,
    names: usize,
    keys: u64,
    clients: u32,
    /// Of each dispatcher.
    refresh: Vec<Duration>,
    think_micros: u64,
    fault_every_ms: u64,
    has_token: bool,
    lasts: Duration,
}

impl Plan {
    fn draw(chance: &mut Chance) -> Self {
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
            lasts: Duration::from_millis(chance.between(3_000, 12_000)),
        }
    }
}

/// State that all tasks of the world share.
#[derive(Debug)]
struct World {
    plan: Plan,
    clock: Arc<dyn Clock>,
    store: Arc<SharedStore>,
    dispatchers: Vec<Process>,
    names: RefCell<Names>,
    history: RefCell<History>,
    /// Writes that were requested while it was unknown whether their namespace existed, by name and key.
    in_doubt: RefCell<BTreeMap<(usize, u64), Vec<WriteId>>>,
    token: RefCell<Token>,
    /// Since when nothing fails; none while something does.
    calm_since: Cell<Option<Duration>>,
    is_over: Cell<bool>,
}

/// Runs the world.
pub async fn run(seed: u64) {
    let mut chance = Chance::new(seed, "plan of the records");
    let plan = Plan::draw(&mut chance);
    note!("{plan:?}");
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new());
    let store = SharedStore::new(
        plan.shards,
        Arc::clone(&clock),
        Chance::new(seed, "shared store"),
    );
    let world = Rc::new(World {
        clock,
        dispatchers: plan.refresh.iter().map(|_| Process::default()).collect(),
        names: RefCell::new(Names::new(plan.names, plan.dispatchers)),
        history: RefCell::default(),
        in_doubt: RefCell::default(),
        token: RefCell::default(),
        calm_since: Cell::new(Some(Duration::ZERO)),
        is_over: Cell::new(false),
        store,
        plan,
    });
    let reclaiming = tokio::task::spawn_local(Arc::clone(&world.store).reclaim());
    for number in 0..world.plan.dispatchers {
        if !world.starts_in_the_end(number).await {
            violated("a dispatcher does not open although nothing fails");
        }
    }
    let mut tasks = Vec::new();
    for name in 0..world.plan.names {
        let chance = Chance::new(seed, &format!("admin {name}"));
        tasks.push(tokio::task::spawn_local(admin::run(
            Rc::clone(&world),
            name,
            chance,
        )));
    }
    for client in 0..world.plan.clients {
        let chance = Chance::new(seed, &format!("client {client}"));
        tasks.push(tokio::task::spawn_local(rows::run(
            Rc::clone(&world),
            client,
            chance,
        )));
    }
    if world.plan.has_token {
        let chance = Chance::new(seed, "token");
        tasks.push(tokio::task::spawn_local(token::run(
            Rc::clone(&world),
            chance,
        )));
    }
    faults::run(&world, Chance::new(seed, "faults")).await;
    world.is_over.set(true);
    for task in tasks {
        if let Err(error) = task.await {
            violated(&format!("a client panicked: {error}"));
        }
    }
    if !is_violated() {
        rest::check(&world).await;
    }
    reclaiming.abort();
    for process in &world.dispatchers {
        process.kill();
    }
    let history = world.history.borrow();
    note!(
        "{} writes acknowledged, {} reads checked",
        history.acknowledged,
        history.reads
    );
}

impl World {
    fn is_over(&self) -> bool {
        self.is_over.get() || elapsed() >= self.plan.lasts || is_violated()
    }

    /// Starts or restarts a dispatcher. Returns whether it serves.
    async fn start(&self, number: usize) -> bool {
        let (store, is_dead) = self.store.handle();
        self.names.borrow_mut().forget_seen(number);
        let refresh = self.plan.refresh[number];
        let clock = Arc::clone(&self.clock);
        let is_open = self.dispatchers[number]
            .open(store, clock, is_dead, refresh)
            .await;
        note!("dispatcher {number} is started: {is_open}");
        is_open
    }

    /// Starts a dispatcher while nothing fails except at marked points; a few retries suffice.
    async fn starts_in_the_end(&self, number: usize) -> bool {
        for _ in 0..CALM_STARTS_MAX {
            if self.start(number).await {
                return true;
            }
        }
        false
    }

    /// Sends a request to a dispatcher, with the token if there is one.
    async fn ask(
        &self,
        dispatcher: usize,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> Option<process::Answer> {
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
