//! World 4: dispatchers' stores and shard nodes over a simulated network, with engines on simulated disks below.
//!
//! Nodes are paused, lose their power and are restarted; links are held, reset and cut; clients give writes
//! up and continue. All writes are durable. In addition to the rules of rows: after a write of unknown
//! outcome, a later acknowledged write of the same client through the same dispatcher is never overwritten by
//! it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_routing::ClusterMap;
use umbo_store_redb::Config;
use umbo_store_remote::{RemoteSettings, RemoteStore, Transport};
use umbo_types::{Clock, NamespaceId};

use super::endpoint::Endpoint;
use super::host::SimulatedHost;
use super::moves::{NODES, first_map, member};
use super::nemesis::Nemesis;
use super::network::{From, Network};
use super::world::{StorePlan, World};
use super::{client, rest};
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::simulation::{is_violated, note, violated};

/// Runs the world.
pub async fn run(seed: u64) {
    let mut chance = Chance::new(seed, "plan of the hop");
    let plan = StorePlan {
        shards: chance.between(2, 4) as u16,
        async_per_mille: 0,
        ttl_per_mille: 0,
        fences: false,
        deadline_per_mille: 500,
        deadline_micros_max: chance.weighted(&[(1, 5_000), (1, 100_000), (1, 1_000_000)]),
        gives_up_at_deadline: true,
        lasts: Duration::from_millis(chance.between(2_000, 8_000)),
        ..StorePlan::draw(&mut chance)
    };
    note!("{plan:?}");
    let clock = Arc::new(SimulatedClock::new());
    let map = Arc::new(first_map(plan.shards));
    let dispatchers = chance.between(1, 2) as usize;
    let delay = chance.weighted(&[(2, 1_000), (1, 20_000)]);
    let network = Network::new(Chance::new(seed, "network"), dispatchers, &NODES, delay);
    let world = Rc::new(World {
        hosts: hosts(seed, &plan, &map, || Arc::clone(&clock)),
        endpoints: (0..dispatchers)
            .map(|_| Rc::new(Endpoint::of(seed)))
            .collect(),
        clock,
        history: RefCell::default(),
        namespaces: RefCell::new(vec![NamespaceId(7), NamespaceId(8)]),
        is_over: Cell::new(false),
        plan,
    });
    let mut nemesis = Nemesis {
        world: Rc::clone(&world),
        network: Arc::clone(&network),
        has_moves: false,
        chance: Chance::new(seed, "nemesis"),
    };
    for node in 0..NODES.len() {
        nemesis.start(node).await;
    }
    connect(&world, &network, &map, seed);
    let clients: Vec<_> = (0..world.plan.clients)
        .map(|number| {
            let chance = Chance::new(seed, &format!("client {number}"));
            tokio::task::spawn_local(client::run(Rc::clone(&world), number as u32, chance))
        })
        .collect();
    nemesis.run().await;
    world.is_over.set(true);
    for client in clients {
        if client.await.is_err() {
            violated("a client panicked");
        }
    }
    if !is_violated() {
        rest::check_reached(&world).await;
    }
    for endpoint in &world.endpoints {
        if let Some(store) = endpoint.end() {
            store.close().await;
        }
    }
    for (name, host) in NODES.iter().zip(&world.hosts) {
        network.stop(name);
        host.close().await;
    }
}

/// Returns the hosts of all nodes.
pub(super) fn hosts(
    seed: u64,
    plan: &StorePlan,
    map: &Arc<ClusterMap>,
    clock: impl Fn() -> Arc<SimulatedClock>,
) -> Vec<SimulatedHost> {
    let host = |name: &str| {
        let config = Config {
            cache_bytes: plan.cache_bytes,
            cluster: Some(member(map, name)),
            ..Config::default()
        };
        SimulatedHost::new(seed, name, config, &clock())
    };
    NODES.into_iter().map(host).collect()
}

/// Connects every dispatcher's store to the nodes.
fn connect(world: &World, network: &Arc<Network>, map: &Arc<ClusterMap>, seed: u64) {
    for (number, endpoint) in world.endpoints.iter().enumerate() {
        let from = From {
            network: Arc::clone(network),
            dispatcher: number,
        };
        let settings = RemoteSettings {
            transport: Transport::Other(Arc::new(from)),
            seed: Some(seed.wrapping_add(number as u64)),
            ..RemoteSettings::default()
        };
        let clock: Arc<dyn Clock> = Arc::<SimulatedClock>::clone(&world.clock);
        endpoint.begin(RemoteStore::connect(
            settings,
            ClusterMap::clone(map),
            clock,
        ));
    }
}
