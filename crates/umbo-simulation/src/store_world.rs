//! World 1: one engine of a standalone server, on a simulated disk, with power failures.
//!
//! Clients overwrite few rows with every operation of the store contract; the disk fails at random. After
//! each power failure, and at the end, all rows are compared with all acknowledged writes. At the end all
//! faults are removed, and the store must serve again, reclaim expired rows, and store no unreachable row.

mod client;
mod endpoint;
mod faults;
pub mod hop;
mod host;
mod isolation;
pub mod moves;
mod network;
mod rest;
mod words;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use umbo_store_redb::Config;
use umbo_types::{Clock, NamespaceId};

use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::history::History;
use crate::simulation::{elapsed, is_violated, met, note};
use endpoint::Endpoint;
use host::Host;

/// How long an asynchronous write may be missing after a power failure: the flush bound of the engine, the
/// longest commit in progress, and the scheduling in between.
pub(crate) const FLUSH_BOUND: Duration = Duration::from_millis(50 + 2 * 25 + 5);

/// Random parameters of a seed.
#[derive(Debug, Clone)]
struct Plan {
    shards: u16,
    cache_bytes: usize,
    clients: u64,
    partitions: u64,
    sorts: u64,
    /// Longest wait between two operations of a client, in microseconds.
    think_micros: u64,
    /// In thousandths.
    async_per_mille: u64,
    ttl_per_mille: u64,
    large_per_mille: u64,
    fences: bool,
    /// Writes with a deadline, in thousandths.
    deadline_per_mille: u64,
    /// Longest time to a deadline.
    deadline_micros_max: u64,
    /// Whether clients give a write up at its deadline, as dispatchers do.
    gives_up_at_deadline: bool,
    /// Mean time between two faults, in milliseconds.
    fault_every_ms: u64,
    lasts: Duration,
}

impl Plan {
    fn draw(chance: &mut Chance) -> Self {
        Self {
            shards: chance.between(1, 3) as u16,
            cache_bytes: chance.weighted(&[(2, 96 << 10), (1, 1 << 20), (1, 8 << 20)]),
            clients: chance.between(2, 6),
            partitions: chance.between(1, 4),
            sorts: chance.between(1, 5),
            think_micros: chance.weighted(&[(1, 1_000), (2, 10_000), (1, 50_000)]),
            async_per_mille: chance.weighted(&[(1, 0), (2, 300), (1, 900)]),
            ttl_per_mille: chance.weighted(&[(1, 0), (1, 100), (1, 500)]),
            large_per_mille: chance.weighted(&[(2, 20), (1, 300)]),
            fences: chance.per_mille(500),
            deadline_per_mille: 100,
            deadline_micros_max: 3_000,
            gives_up_at_deadline: false,
            fault_every_ms: chance.weighted(&[(1, 200), (2, 800), (1, 3_000)]),
            lasts: Duration::from_millis(chance.between(2_000, 6_000)),
        }
    }
}

/// State that all tasks of the world share.
#[derive(Debug)]
struct World {
    plan: Plan,
    /// One, or the nodes of a cluster.
    hosts: Vec<Host>,
    /// The stores that clients call.
    endpoints: Vec<Rc<Endpoint>>,
    clock: Arc<SimulatedClock>,
    history: RefCell<History>,
    /// Namespaces that clients use, and that may be removed.
    namespaces: RefCell<Vec<NamespaceId>>,
    is_over: std::cell::Cell<bool>,
    /// Asynchronous writes that the store reports as lost.
    lost: std::cell::Cell<u64>,
}

/// Runs the world.
pub async fn run(seed: u64) {
    let mut chance = Chance::new(seed, "plan of the store");
    if chance.per_mille(100) {
        return isolation::run(seed).await;
    }
    let plan = Plan::draw(&mut chance);
    note!("{plan:?}");
    let clock = Arc::new(SimulatedClock::new());
    let config = Config {
        shards: Some(plan.shards),
        cache_bytes: plan.cache_bytes,
        ..Config::default()
    };
    let host = Host::new(seed, "", config, &clock);
    let world = Rc::new(World {
        endpoints: vec![Rc::clone(&host.endpoint)],
        hosts: vec![host],
        clock,
        plan,
        history: RefCell::default(),
        namespaces: RefCell::new(vec![NamespaceId(7), NamespaceId(8)]),
        is_over: std::cell::Cell::new(false),
        lost: std::cell::Cell::default(),
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

impl World {
    fn is_over(&self) -> bool {
        self.is_over.get() || elapsed() >= self.plan.lasts || is_violated()
    }

    /// Records the counters of the store; to be called with each answer.
    fn note_wall(&self) {
        let now = self.clock.wall();
        self.history.borrow_mut().note_wall(now);
        if self.plan.async_per_mille > 0 {
            self.note_losses();
        }
    }

    fn note_losses(&self) {
        let stores = self
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.store());
        let shards = stores.flat_map(|store| store.status());
        let lost = shards.map(|shard| shard.lost_async).sum();
        if self.lost.replace(lost) < lost {
            met("asynchronous write lost to the disk");
            note!("{lost} asynchronous writes are lost to the disk");
            self.history.borrow_mut().note_loss();
        }
    }
}
