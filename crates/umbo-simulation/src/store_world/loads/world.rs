//! What the tasks of a world of loads share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_routing::ClusterMap;

use super::datasets::SimulatedDatasets;
use super::paused_store::Pauses;
use crate::chance::Chance;
use crate::clock::SimulatedClock;
use crate::records_world::process::{Process, ProcessAnswer};
use crate::simulation::is_violated;
use crate::store_world::host::SimulatedHost;
use crate::store_world::network::Network;
use crate::store_world::world::World;

/// The namespace.
pub(super) const NAME: &str = "n0";

/// State that all tasks of the world share.
#[derive(Debug)]
pub(super) struct LoadsWorld {
    pub(super) stores: Rc<World>,
    pub(super) network: Arc<Network>,
    pub(super) dispatchers: Vec<SimulatedDispatcher>,
    pub(super) datasets: RefCell<SimulatedDatasets>,
    pub(super) pauses: Arc<Pauses>,
    /// Partitions, and rows of each.
    pub(super) partitions: u64,
    pub(super) sorts: u64,
    /// How many large rows a load has, in thousandths of all.
    pub(super) large_per_mille: u64,
    /// Longest wait between two requests of a client, in microseconds.
    pub(super) think_micros: u64,
    pub(super) is_over: Cell<bool>,
}

impl LoadsWorld {
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get() || is_violated()
    }

    /// Returns the newest map that a node has.
    pub(super) fn map(&self) -> Option<Arc<ClusterMap>> {
        let maps = self.stores.hosts.iter().filter_map(SimulatedHost::map);
        maps.max_by_key(|map| map.version())
    }

    /// Returns whether a dispatcher runs, as clients are told that choose one.
    pub(super) fn answers(&self, dispatcher: usize) -> bool {
        self.dispatchers[dispatcher].process.is_open() && self.pauses.paused() != Some(dispatcher)
    }

    /// Sends a request to a dispatcher; `path` is below that of the namespace.
    pub(super) async fn ask(
        &self,
        dispatcher: usize,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Vec<u8>,
    ) -> Option<ProcessAnswer> {
        let path = format!("/v1/ns/{NAME}/{path}");
        let process = &self.dispatchers[dispatcher].process;
        process.ask(method, &path, headers, body).await
    }
}

/// A dispatcher.
#[derive(Debug)]
pub(super) struct SimulatedDispatcher {
    pub(super) process: Process,
    pub(super) clock: Arc<SimulatedClock>,
    pub(super) seed: u64,
    /// Interval at which it follows the records.
    pub(super) refresh: Duration,
}

impl SimulatedDispatcher {
    pub(super) fn new(seed: u64, number: usize, chance: &mut Chance) -> Self {
        Self {
            process: Process::default(),
            clock: Arc::default(),
            seed: seed.wrapping_add(number as u64),
            refresh: Duration::from_millis(chance.between(50, 500)),
        }
    }
}
