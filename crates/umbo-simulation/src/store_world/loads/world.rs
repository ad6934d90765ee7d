//! What the tasks of a world of loads share.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use umbo_routing::ClusterMap;

use super::datasets::SimulatedDatasets;
use crate::chance::Chance;
use crate::records_world::process::{Process, ProcessAnswer};
use crate::simulation::is_violated;
use crate::store_world::network::Network;
use crate::store_world::world::World;

/// The namespace.
pub(super) const NAME: &str = "n0";

/// State that all tasks of the world share.
#[derive(Debug)]
pub(super) struct LoadsWorld {
    pub(super) stores: Rc<World>,
    pub(super) network: Arc<Network>,
    pub(super) map: Arc<ClusterMap>,
    pub(super) dispatchers: Vec<SimulatedDispatcher>,
    pub(super) datasets: RefCell<SimulatedDatasets>,
    /// Partitions, and rows of each.
    pub(super) partitions: u64,
    pub(super) sorts: u64,
    /// Longest wait between two requests of a client, in microseconds.
    pub(super) think_micros: u64,
    pub(super) is_over: Cell<bool>,
}

impl LoadsWorld {
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get() || is_violated()
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
    pub(super) seed: u64,
    /// Interval at which it follows the records.
    pub(super) refresh: Duration,
}

impl SimulatedDispatcher {
    pub(super) fn new(seed: u64, number: usize, chance: &mut Chance) -> Self {
        Self {
            process: Process::default(),
            seed: seed.wrapping_add(number as u64),
            refresh: Duration::from_millis(chance.between(50, 500)),
        }
    }
}
