//! World 5: loads, and everything else at once: whole dispatchers, which run loads and activate versions, over shard
//! nodes, a simulated network and engines on simulated disks.
//!
//! One client makes loads of a namespace, one after the other, and activates, rolls back, drops and aborts what they
//! have built; a load may have rows with equal keys, of which the last counts, and large values. Many small loads of other
//! namespaces compete with them. Another client puts large values and leaves before they are answered; others put, delete and read rows, each request by any dispatcher. Nodes, disks and
//! links fail as in the world of the hop; shards move to the other node, whose folder may be new; dispatchers are killed,
//! half of them while they stop in order, and paused while they run a load; the clock of one process is wrong; backups
//! are made, and restored into another number of shards. No acknowledged write may be lost, by an activation or a
//! rollback neither, no deleted row may come back, no answer may mix versions, every load must end as it would have,
//! with all of its rows, no version may be dropped early, and nothing may be left of what was aborted or dropped.

mod backups;
mod client;
mod clocks;
mod crowd;
mod datasets;
mod dispatcher;
mod large_rows;
mod loader;
mod paused_store;
mod rest;
mod uploads;
mod world;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use self::datasets::SimulatedDatasets;
use self::paused_store::Pauses;
use self::world::{LoadsWorld, SimulatedDispatcher};
use super::endpoint::Endpoint;
use super::hop;
use super::moves::{NODES, first_map};
use super::nemesis::Nemesis;
use super::network::Network;
use super::world::{StorePlan, World};
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::simulation::{is_violated, note, violated};

/// Runs the world.
pub async fn run(seed: u64) {
    let (world, mut nemesis) = begin(seed).await;
    let clients: Vec<_> = (0..world.stores.plan.clients.min(4))
        .map(|number| {
            let chance = Chance::new(seed, &format!("client {number}"));
            tokio::task::spawn_local(client::run(Rc::clone(&world), number, chance))
        })
        .collect();
    let loading = Chance::new(seed, "loader");
    let loading = tokio::task::spawn_local(loader::run(Rc::clone(&world), loading));
    let uploading = Chance::new(seed, "uploads");
    let uploading = tokio::task::spawn_local(uploads::run(Rc::clone(&world), uploading));
    let jumping = Chance::new(seed, "clocks");
    let jumping = tokio::task::spawn_local(clocks::run(Rc::clone(&world), jumping));
    let backing_up = Chance::new(seed, "backups");
    let backing_up = tokio::task::spawn_local(backups::run(Rc::clone(&world), seed, backing_up));
    let killing = Chance::new(seed, "kills of dispatchers");
    let killing = tokio::task::spawn_local(dispatcher::kill_some(Rc::clone(&world), killing));
    let crowding = Chance::new(seed, "crowd");
    let crowding = tokio::task::spawn_local(crowd::run(Rc::clone(&world), crowding));
    nemesis.run().await;
    world.stores.is_over.set(true);
    note!("all faults are over");
    join(vec![
        killing, jumping, uploading, backing_up, loading, crowding,
    ])
    .await;
    world.is_over.set(true);
    join(clients).await;
    if !is_violated() {
        rest::check(&world).await;
    }
    for number in 0..world.dispatchers.len() {
        dispatcher::kill(&world, number);
    }
    for (name, host) in NODES.iter().zip(&world.stores.hosts) {
        world.network.stop(name);
        host.close().await;
    }
    note!("{} reads checked", world.datasets.borrow().reads);
}

/// Waits for tasks to end.
async fn join(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        if let Err(error) = task.await {
            violated(&format!("a client panicked: {error}"));
        }
    }
}

/// Starts nodes and dispatchers and creates the namespace, while nothing fails.
async fn begin(seed: u64) -> (Rc<LoadsWorld>, Nemesis) {
    let mut chance = Chance::new(seed, "plan of the loads");
    let plan = StorePlan {
        shards: chance.between(2, 4) as u16,
        async_per_mille: 0,
        ttl_per_mille: 0,
        fences: false,
        fault_every_ms: chance.weighted(&[(1, 500), (2, 1_500), (1, 4_000)]),
        lasts: Duration::from_millis(chance.between(5_000, 12_000)),
        ..StorePlan::draw(&mut chance)
    };
    note!("{plan:?}");
    let clock = Arc::new(SimulatedClock::new());
    let map = Arc::new(first_map(plan.shards));
    let dispatchers = chance.between(1, 3) as usize;
    let delay = chance.weighted(&[(2, 1_000), (1, 10_000)]);
    let network = Network::new(Chance::new(seed, "network"), dispatchers, &NODES, delay);
    let endpoints = (0..dispatchers).map(|_| Rc::new(Endpoint::of(seed)));
    let stores = Rc::new(World {
        hosts: hop::hosts(seed, &plan, &map, || Arc::new(SimulatedClock::new())),
        endpoints: endpoints.collect(),
        clock,
        history: RefCell::default(),
        namespaces: RefCell::default(),
        is_over: Cell::new(false),
        plan,
    });
    // Umbo draws the numbers of loads, uploads and runners from it. Not before the hosts are made: equal seeds would give
    // their folders equal names.
    fastrand::seed(seed);
    let nemesis = Nemesis {
        world: Rc::clone(&stores),
        network: Arc::clone(&network),
        has_moves: true,
        chance: Chance::new(seed, "nemesis"),
    };
    for node in 0..NODES.len() {
        nemesis.start(node).await;
    }
    let world = Rc::new(LoadsWorld {
        dispatchers: (0..dispatchers)
            .map(|number| SimulatedDispatcher::new(seed, number, &mut chance))
            .collect(),
        datasets: RefCell::new(SimulatedDatasets::new()),
        pauses: Pauses::new(Chance::new(seed, "pauses"), stores.plan.lasts),
        partitions: chance.between(1, 3),
        sorts: chance.between(1, 4),
        large_per_mille: chance.weighted(&[(2, 0), (1, 300)]),
        think_micros: chance.weighted(&[(1, 40_000), (2, 150_000)]),
        is_over: Cell::new(false),
        stores,
        network,
    });
    for number in 0..dispatchers {
        dispatcher::start_at_rest(&world, number).await;
    }
    for name in [world::NAME].iter().chain(&crowd::NAMES) {
        loader::create_namespace(&world, name).await;
    }
    (world, nemesis)
}
