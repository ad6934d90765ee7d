//! Dispatchers as processes: started, killed, and started again.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use umbo_routing::ClusterMap;
use umbo_store::Store;
use umbo_store_remote::{Connector, Io, RemoteSettings, RemoteStore, Transport};
use umbo_types::Clock;

use super::paused_store::PausedStore;
use super::world::LoadsWorld;
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::simulation::{met, note, violated};
use crate::store_world::moves::NODES;
use crate::store_world::network::From;

/// Attempts to start a dispatcher while nothing fails.
const CALM_STARTS_MAX: u32 = 16;
/// Kills before which the dispatcher begins to stop in order, in thousandths.
const DRAINED_PER_MILLE: u64 = 500;
/// Longest time that it drains before it is killed, in milliseconds.
const DRAIN_MS_MAX: u64 = 2_000;
/// Wait after an attempt that has failed: the nodes may still be opening their files.
const START_WAIT: Duration = Duration::from_secs(1);

/// The network as a process sees it, which makes no connection after its end.
#[derive(Debug)]
struct OfProcess {
    network: From,
    is_dead: Arc<AtomicBool>,
}

#[async_trait]
impl Connector for OfProcess {
    async fn connect(&self, host: &str, port: u16) -> io::Result<Box<dyn Io>> {
        if self.is_dead.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        self.network.connect(host, port).await
    }
}

/// Starts a dispatcher. Returns whether it serves.
async fn start(world: &LoadsWorld, number: usize) -> bool {
    let dispatcher = &world.dispatchers[number];
    let is_dead = Arc::new(AtomicBool::new(false));
    let network = OfProcess {
        network: From {
            network: Arc::clone(&world.network),
            dispatcher: number,
        },
        is_dead: Arc::clone(&is_dead),
    };
    let settings = RemoteSettings {
        transport: Transport::Other(Arc::new(network)),
        seed: Some(dispatcher.seed),
        ..RemoteSettings::default()
    };
    let clock: Arc<dyn Clock> = Arc::<SimulatedClock>::clone(&dispatcher.clock);
    let Some(map) = world.map() else {
        violated("no node has a map");
        return false;
    };
    let store = PausedStore {
        inner: RemoteStore::connect(settings, ClusterMap::clone(&map), Arc::clone(&clock)),
        pauses: Arc::clone(&world.pauses),
        dispatcher: number,
    };
    let store: Arc<dyn Store> = Arc::new(store);
    world.stores.endpoints[number].begin(Arc::clone(&store));
    let refresh = dispatcher.refresh;
    let is_open = dispatcher
        .process
        .open(store, clock, is_dead, (number, refresh));
    let is_open = is_open.await;
    note!("dispatcher {number} is started: {is_open}");
    if !is_open {
        kill(world, number);
    }
    is_open
}

/// Ends a dispatcher as `kill -9` does.
pub(super) fn kill(world: &LoadsWorld, number: usize) {
    world.dispatchers[number].process.kill();
    drop(world.stores.endpoints[number].end());
    for node in NODES {
        world.network.cut(number, node, true);
        world.network.cut(number, node, false);
    }
}

/// Starts a dispatcher while nothing fails.
pub(super) async fn start_at_rest(world: &LoadsWorld, number: usize) {
    for _ in 0..CALM_STARTS_MAX {
        if start(world, number).await {
            return;
        }
        tokio::time::sleep(START_WAIT).await;
    }
    violated("a dispatcher does not open although nothing fails");
}

/// Lets a dispatcher begin to stop in order: it lets the loads go that it runs, and another one goes on with them.
async fn drain(world: &LoadsWorld, number: usize, wait: Duration) {
    note!("dispatcher {number} drains for {wait:?}");
    met("dispatcher drained");
    let process = &world.dispatchers[number].process;
    process.begin_drain();
    tokio::time::sleep(wait).await;
    // It may have been paused amid its last write of a load, and goes on before it is killed.
    world.pauses.end_of(number).await;
    if process.has_let_loads_go() {
        met("loads let go");
    }
}

/// Kills dispatchers, half of them while they stop in order, and starts them again until the faults are over; then all
/// serve.
pub(super) async fn kill_some(world: Rc<LoadsWorld>, mut chance: Chance) {
    while !world.stores.is_over() && !world.is_over() {
        let wait = chance.between(500, 8_000);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let number = chance.index(world.dispatchers.len());
        if world.pauses.paused().is_some() {
            // Its loads are to be taken over.
            continue;
        }
        if chance.per_mille(DRAINED_PER_MILLE) {
            let wait = Duration::from_millis(chance.below(DRAIN_MS_MAX));
            drain(&world, number, wait).await;
        }
        note!("fault: dispatcher {number} is killed");
        met("dispatcher killed");
        kill(&world, number);
        let wait = chance.below(2_000);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        while !world.stores.is_over() && !start(&world, number).await {
            tokio::time::sleep(START_WAIT).await;
        }
    }
    for number in 0..world.dispatchers.len() {
        if !world.dispatchers[number].process.is_open() {
            start_at_rest(&world, number).await;
        }
    }
}
