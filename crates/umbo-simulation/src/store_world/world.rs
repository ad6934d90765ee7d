//! What the tasks of a world of stores share.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_store::ShardState;
use umbo_store_redb::Config;
use umbo_types::{Clock as _, NamespaceId};

use super::endpoint::Endpoint;
use super::host::SimulatedHost;
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::history::OperationHistory;
use crate::simulation::{elapsed, is_violated};

/// Random parameters of a seed.
#[derive(Debug, Clone)]
pub(super) struct StorePlan {
    pub(super) shards: u16,
    pub(super) cache_bytes: usize,
    pub(super) clients: u64,
    pub(super) partitions: u64,
    pub(super) sorts: u64,
    /// Longest wait between two operations of a client, in microseconds.
    pub(super) think_micros: u64,
    /// In thousandths.
    pub(super) async_per_mille: u64,
    pub(super) ttl_per_mille: u64,
    pub(super) large_per_mille: u64,
    pub(super) fences: bool,
    /// Writes with a deadline, in thousandths.
    pub(super) deadline_per_mille: u64,
    /// Longest time to a deadline.
    pub(super) deadline_micros_max: u64,
    /// Whether clients give a write up at its deadline, as dispatchers do.
    pub(super) gives_up_at_deadline: bool,
    /// Mean time between two faults, in milliseconds.
    pub(super) fault_every_ms: u64,
    pub(super) lasts: Duration,
}

impl StorePlan {
    pub(super) fn draw(chance: &mut Chance) -> Self {
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

    /// Some tens of operations, so slow that the rows of the log are applied meanwhile. They last from now on.
    pub(super) fn short(chance: &mut Chance) -> Self {
        Self {
            shards: chance.between(1, 2) as u16,
            clients: chance.between(1, 3),
            think_micros: chance.weighted(&[(1, 2_000), (3, 200_000)]),
            fences: false,
            lasts: elapsed() + Duration::from_millis(chance.between(100, 2_000)),
            ..Self::draw(chance)
        }
    }
}

/// State that all tasks of the world share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: StorePlan,
    /// One, or the nodes of a cluster.
    pub(super) hosts: Vec<SimulatedHost>,
    /// The stores that clients call.
    pub(super) endpoints: Vec<Rc<Endpoint>>,
    pub(super) clock: Arc<SimulatedClock>,
    pub(super) history: RefCell<OperationHistory>,
    /// Namespaces that clients use, and that may be removed.
    pub(super) namespaces: RefCell<Vec<NamespaceId>>,
    pub(super) is_over: std::cell::Cell<bool>,
}

impl World {
    /// Makes a world of one standalone server, whose store is not open yet.
    pub(super) fn of_one_host(seed: u64, plan: StorePlan) -> Self {
        let clock = Arc::new(SimulatedClock::new());
        let config = Config {
            shards: Some(plan.shards),
            cache_bytes: plan.cache_bytes,
            ..Config::default()
        };
        let host = SimulatedHost::new(seed, "", config, &clock);
        Self {
            endpoints: vec![Rc::clone(&host.endpoint)],
            hosts: vec![host],
            clock,
            plan,
            history: RefCell::default(),
            namespaces: RefCell::new(vec![NamespaceId(7), NamespaceId(8)]),
            is_over: std::cell::Cell::new(false),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get() || elapsed() >= self.plan.lasts || is_violated()
    }

    /// Records the counters of the store; to be called with each answer.
    pub(super) fn note_wall(&self) {
        let now = self.clock.wall();
        self.history.borrow_mut().note_wall(now);
        if self.plan.async_per_mille > 0 {
            self.note_shards();
        }
    }

    pub(super) fn note_shards(&self) {
        let stores = self
            .endpoints
            .iter()
            .filter_map(|endpoint| endpoint.store());
        for shard in stores.flat_map(|store| store.status()) {
            let writes = shard.state == ShardState::Available;
            self.history.borrow_mut().note_shard(shard.shard.0, writes);
        }
    }
}
