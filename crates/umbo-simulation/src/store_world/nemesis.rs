//! Faults of nodes and of their links, one after the other.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_shard::{Node, NodeLimits, NodeParts};
use umbo_store_redb::shard_file_name;
use umbo_types::Clock;

use super::moves::{NODES, member, nodes};
use super::network::Network;
use super::world::World;
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::disk::DiskFaults;
use crate::simulation::{met, note, violated};

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
    Move,
}

/// Faults of every world.
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

/// Faults.
pub(super) struct Nemesis {
    pub(super) world: Rc<World>,
    pub(super) network: Arc<Network>,
    /// Whether shards move.
    pub(super) has_moves: bool,
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
        let Some(map) = host.map() else {
            return violated("a node has no map");
        };
        let clock: Arc<dyn Clock> = Arc::<SimulatedClock>::clone(&host.clock);
        let parts = NodeParts {
            name: NODES[node].to_owned(),
            map,
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
        if self.has_moves && self.chance.per_mille(400) {
            faults.push((self.chance.between(1, 3), Fault::Move));
        }
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
                self.stop(node).await;
                self.lose_records(node);
                self.start(node).await;
            }
            Fault::Move => self.move_shards(node, 1 - node).await,
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

    /// Stops a node in order.
    async fn stop(&mut self, node: usize) {
        self.network.drain(NODES[node]);
        self.pause(200).await;
        self.network.stop(NODES[node]);
        self.world.hosts[node].close().await;
    }

    /// Moves one or all shards of a node to the other one, as an operator does. The folder of that one may be new if it
    /// has no shards yet.
    async fn move_shards(&mut self, from: usize, to: usize) {
        let Some(before) = self.world.hosts[from].map() else {
            return violated("a node has no map");
        };
        let mut shards = before.shards_of(NODES[from]);
        if self.chance.per_mille(500) {
            shards.truncate(1);
        }
        let named: Vec<_> = shards
            .iter()
            .map(|&shard| (shard, NODES[to].to_owned()))
            .collect();
        let Ok(plan) = before.plan_moves(nodes(), &named) else {
            return violated("a move cannot be planned");
        };
        let map = Arc::new(plan.map);
        note!(
            "shards {shards:?} move to {} by map {}",
            NODES[to],
            map.version()
        );
        let world = Rc::clone(&self.world);
        let (source, target) = (&world.hosts[from], &world.hosts[to]);
        source.config.borrow_mut().cluster = Some(member(&map, NODES[from]));
        self.stop(from).await;
        self.start(from).await;
        self.stop(to).await;
        if before.shards_of(NODES[to]).is_empty() && self.chance.per_mille(700) {
            met("new folder");
            target.empty_folder();
            // It is begun without shards: without a manifest the files would be read beside the simulated disk.
            target.open().await;
            target.close().await;
        }
        target.config.borrow_mut().cluster = Some(member(&map, NODES[to]));
        for shard in shards {
            met("shard moved");
            let name = shard_file_name(shard);
            let copied = source.disk.read_file(&source.data_folder().join(&name));
            let copied = copied.and_then(|bytes| {
                let path = target.data_folder().join(&name);
                target.disk.write_file(&path, bytes)
            });
            if let Err(error) = copied {
                return violated(&format!("a file cannot be copied: {error}"));
            }
        }
        self.start(to).await;
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
