//! World 1: one engine of a standalone server, on a simulated disk, with power failures.
//!
//! Clients overwrite few rows with every operation of the store contract; the disk fails at random. After
//! each power failure, and at the end, all rows are compared with all acknowledged writes. At the end all
//! faults are removed, and the store must serve again, reclaim expired rows, and store no unreachable row.

mod client;
mod endpoint;
mod faults;
mod fences;
pub mod hop;
mod host;
mod isolation;
pub mod kills;
pub mod loads;
pub mod moves;
mod nemesis;
mod network;
mod rest;
mod words;
mod world;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::JoinHandle;
use umbo_store_redb::Config;
use umbo_types::NamespaceId;

use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::simulation::{is_violated, note};
use host::SimulatedHost;
use world::{StorePlan, World};

/// Runs the world.
pub async fn run(seed: u64) {
    let mut chance = Chance::new(seed, "plan of the store");
    if chance.per_mille(100) {
        return isolation::run(seed).await;
    }
    let plan = StorePlan::draw(&mut chance);
    note!("{plan:?}");
    let clock = Arc::new(SimulatedClock::new());
    let config = Config {
        shards: Some(plan.shards),
        cache_bytes: plan.cache_bytes,
        ..Config::default()
    };
    let host = SimulatedHost::new(seed, "", config, &clock);
    let world = Rc::new(World {
        endpoints: vec![Rc::clone(&host.endpoint)],
        hosts: vec![host],
        clock,
        plan,
        history: RefCell::default(),
        namespaces: RefCell::new(vec![NamespaceId(7), NamespaceId(8)]),
        is_over: std::cell::Cell::new(false),
    });
    world.hosts[0].open().await;
    let clients: Vec<JoinHandle<()>> = (0..world.plan.clients)
        .map(|number| {
            let chance = Chance::new(seed, &format!("client {number}"));
            tokio::task::spawn_local(client::run(Rc::clone(&world), number as u32, chance))
        })
        .collect();
    let fences = faults::run(&world, Chance::new(seed, "faults")).await;
    world.is_over.set(true);
    for client in clients {
        if let Err(error) = client.await {
            crate::simulation::violated(&format!("a client panicked: {error}"));
        }
    }
    if !is_violated() {
        rest::check(&world, &fences).await;
    }
    let history = world.history.borrow();
    note!(
        "{} writes acknowledged, {} reads checked",
        history.acknowledged,
        history.reads
    );
}
