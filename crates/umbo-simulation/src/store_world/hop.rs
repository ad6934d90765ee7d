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
use umbo_shard::{Node, NodeLimits, NodeParts};
use umbo_store_redb::Config;
use umbo_store_remote::{RemoteSettings, RemoteStore, Transport};
use umbo_types::{Clock, NamespaceId};

use super::endpoint::Endpoint;
use super::host::SimulatedHost;
use super::moves::{NODES, first_map, member};
use super::network::{From, Network};
use super::world::{StorePlan, World};
use super::{client, rest};
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::disk::DiskFaults;
use crate::simulation::{is_violated, met, note, violated};

#[derive(Debug, Clone, Copy)]
enum Fault {
    Pause,
    HoldRequests,
    HoldAnswers,
    Stick,
    Reset,
    Cut,
    PowerFailure,
    Restart,
    SlowDisk,
    FailedSyncs,
    Full,
}

const ALL: [Fault; 11] = [
    Fault::Pause,
    Fault::HoldRequests,
    Fault::HoldAnswers,
    Fault::Stick,
    Fault::Reset,
    Fault::Cut,
    Fault::PowerFailure,
    Fault::Restart,
    Fault::SlowDisk,
    Fault::FailedSyncs,
    Fault::Full,
];

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
        hosts: hosts(seed, &plan, &map, &clock),
        endpoints: (0..dispatchers)
            .map(|_| Rc::new(Endpoint::of(seed)))
            .collect(),
        clock,
        history: RefCell::default(),
        namespaces: RefCell::new(vec![NamespaceId(7), NamespaceId(8)]),
        is_over: Cell::new(false),
        lost: Cell::default(),
        plan,
    });
    let mut nemesis = Nemesis {
        world: Rc::clone(&world),
        network: Arc::clone(&network),
        map: Arc::clone(&map),
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
    clock: &Arc<SimulatedClock>,
) -> Vec<SimulatedHost> {
    let host = |name: &str| {
        let config = Config {
            cache_bytes: plan.cache_bytes,
            cluster: Some(member(map, name)),
            ..Config::default()
        };
        SimulatedHost::new(seed, name, config, clock)
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

/// Faults.
pub(super) struct Nemesis {
    pub(super) world: Rc<World>,
    pub(super) network: Arc<Network>,
    pub(super) map: Arc<ClusterMap>,
    pub(super) chance: Chance,
}

impl Nemesis {
    /// Opens the store of a node and makes it accept connections.
    pub(super) async fn start(&self, node: usize) {
        let host = &self.world.hosts[node];
        host.open().await;
        let Some(store) = host.endpoint.store() else {
            return;
        };
        let clock: Arc<dyn Clock> = Arc::<SimulatedClock>::clone(&self.world.clock);
        let parts = NodeParts {
            name: NODES[node].to_owned(),
            map: Arc::clone(&self.map),
            store,
            clock,
            limits: NodeLimits::default(),
        };
        match Node::new(parts) {
            Ok(made) => self.network.serve(NODES[node], Arc::new(made)),
            Err(error) => violated(&format!("a node cannot be made: {error}")),
        }
    }

    /// Causes faults until the world is over, and removes them.
    pub(super) async fn run(&mut self) {
        let mut faults = Vec::new();
        for fault in ALL {
            if self.chance.per_mille(400) {
                faults.push((self.chance.between(1, 3), fault));
            }
        }
        faults.push((1, Fault::Pause));
        while !self.world.is_over() {
            let every = self.world.plan.fault_every_ms * 1_000;
            let wait = self.chance.between(every / 10, every * 2);
            tokio::time::sleep(Duration::from_micros(wait)).await;
            let fault = self.chance.weighted(&faults);
            let node = self.chance.index(NODES.len());
            note!("fault: {fault:?} of node {}", NODES[node]);
            self.inject(fault, node).await;
        }
        for (node, name) in NODES.iter().enumerate() {
            self.network.hold(name, 0, false);
            self.network.hold(name, 1, false);
            self.world.hosts[node].disk.heal();
        }
    }

    async fn inject(&mut self, fault: Fault, node: usize) {
        let (name, disk) = (NODES[node], self.world.hosts[node].disk.clone());
        match fault {
            Fault::Pause => {
                met("node paused");
                self.hold(name, &[0, 1]).await;
            }
            Fault::HoldRequests => {
                met("requests held");
                self.hold(name, &[0]).await;
            }
            Fault::HoldAnswers => {
                met("answers held");
                self.hold(name, &[1]).await;
            }
            Fault::Stick => {
                met("connection stuck");
                let dispatcher = self.chance.index(self.world.endpoints.len());
                self.network.stick(dispatcher, name, true);
                self.pause(3_000).await;
                self.network.stick(dispatcher, name, false);
            }
            Fault::Reset | Fault::Cut => {
                let dispatcher = self.chance.index(self.world.endpoints.len());
                self.network.cut(dispatcher, name, true);
                met("connection reset");
                if matches!(fault, Fault::Cut) {
                    met("link cut");
                    self.pause(1_500).await;
                }
                self.network.cut(dispatcher, name, false);
            }
            Fault::PowerFailure => {
                met("power failure");
                self.network.stop(name);
                self.world.hosts[node].lose_power().await;
                self.pause(500).await;
                self.lose_records(node);
                self.start(node).await;
            }
            Fault::Restart => {
                met("orderly restart");
                self.network.drain(name);
                self.pause(200).await;
                self.network.stop(name);
                self.world.hosts[node].close().await;
                self.lose_records(node);
                self.start(node).await;
            }
            Fault::SlowDisk => {
                met("slow disk");
                disk.set_commit_time(10_000, 200_000);
                self.pause(1_000).await;
                disk.set_commit_time(100, 2_000);
            }
            Fault::FailedSyncs => {
                disk.set_faults(DiskFaults {
                    sync: 5_000,
                    ..DiskFaults::default()
                });
                self.pause(500).await;
                disk.set_faults(DiskFaults::default());
            }
            Fault::Full => {
                disk.set_room(Some(self.chance.below(128 << 10)));
                self.pause(2_000).await;
                disk.set_room(None);
            }
        }
    }

    /// Removes the copy of Umbo's own records from the folder of a node that is down, as if its shards had moved to a
    /// new folder.
    fn lose_records(&mut self, node: usize) {
        let folder = self.world.hosts[node].data_folder();
        if self.chance.per_mille(300) && std::fs::remove_file(folder.join("records")).is_ok() {
            met("copy of the records lost");
            note!("node {} has lost its copy of the records", NODES[node]);
        }
    }

    async fn hold(&mut self, name: &str, directions: &[usize]) {
        for &direction in directions {
            self.network.hold(name, direction, true);
        }
        let most = self.chance.weighted(&[(3, 150), (1, 2_500)]);
        self.pause(most).await;
        for &direction in directions {
            self.network.hold(name, direction, false);
        }
    }

    async fn pause(&mut self, millis: u64) {
        let wait = self.chance.between(1, millis);
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}
