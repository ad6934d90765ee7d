//! World 2: Umbo's own records: dispatchers over one store whose shards fail, and changes of namespaces and tokens.
//!
//! One client changes each namespace through any dispatcher, one after the other; others write and read rows
//! of the namespaces meanwhile, through any dispatcher. Dispatchers are killed and started again. A change
//! that was answered as not applied must never be visible, an acknowledged one always; no acknowledged row of
//! an existing namespace may be missing, and no row of a removed one may come back or stay. Some seeds have a quota of
//! the scope `fleet`, and dispatchers that are cut off from one another: at rest it must count once.

mod admin;
mod faults;
mod names;
pub(crate) mod process;
mod quota;
mod rest;
mod rows;
mod shared_store;
mod token;
mod token_client;
mod ways;
mod world;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_types::Clock;

use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::simulation::{is_violated, note, violated};
use names::SimulatedNamespaces;
use process::Process;
use shared_store::SharedStore;
use world::{RecordsPlan, World};

/// Runs the world.
pub async fn run(seed: u64) {
    let mut chance = Chance::new(seed, "plan of the records");
    let plan = RecordsPlan::draw(&mut chance);
    note!("{plan:?}");
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new());
    let store = SharedStore::new(
        plan.shards,
        Arc::clone(&clock),
        Chance::new(seed, "shared store"),
    );
    let ways = Arc::default();
    let world = Rc::new(World {
        clock,
        dispatchers: plan.refresh.iter().map(|_| Process::among(&ways)).collect(),
        ways,
        names: RefCell::new(SimulatedNamespaces::new(plan.names, plan.dispatchers)),
        history: RefCell::default(),
        asked: RefCell::default(),
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
    if world.plan.has_quota {
        tasks.push(quota::begin(&world, Chance::new(seed, "quota")).await);
    }
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
        tasks.push(tokio::task::spawn_local(token_client::run(
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
