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

use std::rc::Rc;

use tokio::task::JoinHandle;

use crate::chance::Chance;
use crate::simulation::{is_violated, note};
use world::{StorePlan, World};

/// Runs the world.
pub async fn run(seed: u64) {
    let mut chance = Chance::new(seed, "plan of the store");
    if chance.per_mille(100) {
        return isolation::run(seed).await;
    }
    let plan = StorePlan::draw(&mut chance);
    note!("{plan:?}");
    let world = Rc::new(World::of_one_host(seed, plan));
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
