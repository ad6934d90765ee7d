//! World 3: shards that move between the folders of two nodes, with steps of the operator left out.
//!
//! The operator plans a move, stops the old node, starts it with the new map, copies the file, and starts the
//! new node with the new map; each step may be left out or done too early, and nodes are restarted with any
//! map. Clients send every operation to both nodes. Whatever the operator does, no acknowledged write may be
//! missing or be overtaken by an older one, so two nodes never serve one shard. At the end all steps are done
//! in order, and all shards serve.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_routing::{ClusterMap, ClusterNode};
use umbo_store::{ShardState, Store};
use umbo_store_redb::{ClusterMember, Config, shard_file_name};
use umbo_types::{NamespaceId, ShardId};

use super::host::SimulatedHost;
use super::world::{StorePlan, World};
use super::{client, rest};
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::simulation::{is_violated, met, note, violated};

/// Names of the nodes.
pub(super) const NODES: [&str; 2] = ["a", "b"];

/// Runs the world.
pub async fn run(seed: u64) {
    let mut chance = Chance::new(seed, "plan of the moves");
    let plan = StorePlan {
        shards: chance.between(2, 4) as u16,
        clients: chance.between(1, 4),
        partitions: 6,
        async_per_mille: 0,
        ttl_per_mille: 0,
        fences: false,
        lasts: Duration::from_millis(chance.between(2_000, 8_000)),
        ..StorePlan::draw(&mut chance)
    };
    note!("{plan:?}");
    let clock = Arc::new(SimulatedClock::new());
    let map = Arc::new(first_map(plan.shards));
    let host = |name: &str| {
        let config = Config {
            cache_bytes: plan.cache_bytes,
            cluster: Some(member(&map, name)),
            ..Config::default()
        };
        SimulatedHost::new(seed, name, config, &clock)
    };
    let hosts: Vec<SimulatedHost> = NODES.into_iter().map(host).collect();
    let world = Rc::new(World {
        endpoints: hosts.iter().map(|host| Rc::clone(&host.endpoint)).collect(),
        hosts,
        clock,
        history: RefCell::default(),
        namespaces: RefCell::new(vec![NamespaceId(7)]),
        is_over: Cell::new(false),
        plan,
    });
    for host in &world.hosts {
        host.open().await;
    }
    let clients: Vec<_> = (0..world.plan.clients)
        .map(|number| {
            let chance = Chance::new(seed, &format!("client {number}"));
            tokio::task::spawn_local(client::run(Rc::clone(&world), number as u32, chance))
        })
        .collect();
    let mut operator = Operator {
        world: Rc::clone(&world),
        maps: vec![map],
        chance: Chance::new(seed, "operator"),
    };
    while !world.is_over() {
        operator.move_somehow().await;
    }
    world.is_over.set(true);
    for client in clients {
        if client.await.is_err() {
            violated("a client panicked");
        }
    }
    if !is_violated() {
        operator.finish().await;
        rest::settle_by_read(&world).await;
    }
    for host in &world.hosts {
        host.close().await;
    }
}

/// Returns all nodes.
pub(super) fn nodes() -> Vec<ClusterNode> {
    let node = |name: &str| ClusterNode::new(name, &format!("{name}:7411"));
    let nodes = NODES.into_iter().map(node);
    nodes
        .map(|node| node.expect("the names are good"))
        .collect()
}

/// Returns the initial map of the nodes.
pub(super) fn first_map(shards: u16) -> ClusterMap {
    ClusterMap::create("simulated", nodes(), shards).expect("the map is small")
}

/// Returns the cluster settings of a node.
pub(super) fn member(map: &Arc<ClusterMap>, node: &str) -> ClusterMember {
    ClusterMember {
        map: Arc::clone(map),
        node: node.to_owned(),
        create_missing: Vec::new(),
        accept: Vec::new(),
    }
}

/// The operator that moves shards.
struct Operator {
    world: Rc<World>,
    /// All maps, the newest last.
    maps: Vec<Arc<ClusterMap>>,
    chance: Chance,
}

impl Operator {
    /// Moves a shard with steps left out and nodes restarted, and in the end in order.
    async fn move_somehow(&mut self) {
        self.pause().await;
        let newest = Arc::clone(&self.maps[self.maps.len() - 1]);
        let shard = ShardId(self.chance.below(u64::from(newest.shards())) as u16);
        let from = newest
            .place_of(shard)
            .map_or(0, |place| index_of(&place.node));
        let to = 1 - from;
        let named = [(shard, NODES[to].to_owned())];
        let Ok(plan) = newest.plan_moves(nodes(), &named) else {
            return violated("a move cannot be planned");
        };
        let map = Arc::new(plan.map);
        self.maps.push(Arc::clone(&map));
        note!(
            "shard {shard} moves from {} to {} by map {}",
            NODES[from],
            NODES[to],
            map.version()
        );
        met("move planned");
        if self.is_done("restart of the old node") {
            self.restart(from, &map).await;
        } else if self.is_done("stop of the old node") {
            self.world.hosts[from].close().await;
        }
        self.pause().await;
        if self.is_done("copy") {
            self.copy(shard, from, to).await;
        }
        self.pause().await;
        if self.is_done("restart of the new node") {
            self.restart(to, &map).await;
        }
        self.pause().await;
        if !self.world.hosts[from].endpoint.is_open() {
            // The old node may be started with its previous map.
            self.restart_with_some_map(from).await;
        }
        for _ in 0..self.chance.below(3) {
            let node = self.chance.index(NODES.len());
            self.restart_with_some_map(node).await;
            self.pause().await;
        }
        // The next move begins after this one is done.
        self.finish().await;
    }

    async fn restart_with_some_map(&mut self, node: usize) {
        met("node restarted with some map");
        let back = self.chance.index(self.maps.len().min(3));
        let map = Arc::clone(&self.maps[self.maps.len() - 1 - back]);
        self.restart(node, &map).await;
    }

    fn is_done(&mut self, step: &'static str) -> bool {
        let is_done = self.chance.per_mille(800);
        if !is_done {
            met("step of a move left out");
            note!("left out: {step}");
        }
        is_done
    }

    async fn pause(&mut self) {
        let millis = self.chance.below(300);
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    /// Stops a node properly and starts it with a map, or with the newest one if that map is refused.
    async fn restart(&self, node: usize, map: &Arc<ClusterMap>) {
        let host = &self.world.hosts[node];
        host.close().await;
        let newest = &self.maps[self.maps.len() - 1];
        for map in [map, newest] {
            host.config.borrow_mut().cluster = Some(member(map, NODES[node]));
            match host.try_open().await {
                Ok(()) => return note!("node {} serves by map {}", NODES[node], map.version()),
                Err(error) => {
                    met("map refused");
                    note!(
                        "node {} refuses map {}: {error}",
                        NODES[node],
                        map.version()
                    );
                }
            }
        }
        violated("a node does not open with the newest map");
    }

    /// Copies the file of a shard in its current state.
    async fn copy(&self, shard: ShardId, from: usize, to: usize) {
        let (from, to) = (&self.world.hosts[from], &self.world.hosts[to]);
        let name = shard_file_name(shard);
        let (source, target) = (from.data_folder().join(&name), to.data_folder().join(&name));
        let Ok(contents) = from.disk.read_file(&source) else {
            return;
        };
        // Copying onto a file in use would break that file: operators must not do that.
        if to.endpoint.is_open() && self.serves(to, shard).await {
            return;
        }
        met("file copied");
        if to.disk.write_file(&target, contents).is_err() {
            violated("a file cannot be copied");
        }
    }

    async fn serves(&self, host: &SimulatedHost, shard: ShardId) -> bool {
        let status = async |store: Arc<dyn Store>| store.status();
        let status = host.endpoint.ask(status).await.unwrap_or_default();
        let mut status = status.into_iter();
        status.any(|one| one.shard == shard && one.state == ShardState::Available)
    }

    /// Does every step in order, until all shards serve.
    async fn finish(&mut self) {
        let newest = Arc::clone(&self.maps[self.maps.len() - 1]);
        for node in 0..NODES.len() {
            self.restart(node, &newest).await;
        }
        let mut missing = BTreeSet::new();
        for shard in (0..newest.shards()).map(ShardId) {
            let owner = newest
                .place_of(shard)
                .map_or(0, |place| index_of(&place.node));
            if !self.serves(&self.world.hosts[owner], shard).await {
                missing.insert((shard, owner));
            }
        }
        for &(shard, owner) in &missing {
            self.world.hosts[owner].close().await;
            self.copy(shard, 1 - owner, owner).await;
            self.restart(owner, &newest).await;
            if !self.serves(&self.world.hosts[owner], shard).await {
                self.explain(owner, shard).await;
            }
        }
    }

    async fn explain(&self, owner: usize, shard: ShardId) {
        let host = &self.world.hosts[owner];
        let status = async |store: Arc<dyn Store>| store.status();
        let status = host.endpoint.ask(status).await.unwrap_or_default();
        for one in status.iter().filter(|one| one.shard == shard) {
            if let ShardState::Unavailable(reason) = &one.state {
                note!("{}", host.without_path(reason));
            }
        }
        violated("a shard does not serve although every step of its moves was done in order");
    }
}

fn index_of(node: &str) -> usize {
    NODES
        .iter()
        .position(|name| *name == node)
        .unwrap_or_default()
}
