//! The path's view of a namespace: its settings, and the ids of its datasets.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use umbo_api::admin::{
    CompressionSetting, DurabilitySetting, NamespaceInfo, NamespaceState, WriteSetting,
};
use umbo_api::versions::VersionInfo;
use umbo_store::Durability;
use umbo_types::{NamespaceId, Timestamp};

use crate::datasets::{Datasets, VersionError};

/// The path's view of a namespace.
#[derive(Debug, Clone)]
pub struct NamespaceEntry {
    /// The description for operators.
    pub info: NamespaceInfo,
    /// The name, which records of requests share.
    pub name: Arc<str>,
    /// The id in quotas, lists of hot keys and idempotency records. It also divides the partitions among the
    /// shards.
    pub id: NamespaceId,
    /// The id of the live dataset, which reads see: `id` itself if the namespace never had another dataset.
    pub dataset: NamespaceId,
    /// Number of activations so far. A shard compares it to see whether this dispatcher knows a newer live
    /// dataset.
    pub epoch: u32,
    /// Its place among the counters of the process, from its first use on.
    pub place: OnceLock<usize>,
    /// The datasets, or `None` if all rows are under `id`.
    datasets: Option<Arc<Datasets>>,
}

impl NamespaceEntry {
    pub(crate) fn new(info: NamespaceInfo, datasets: Option<Datasets>) -> Self {
        let id = NamespaceId(info.id);
        Self {
            name: info.name.as_str().into(),
            info,
            id,
            dataset: datasets.as_ref().map_or(id, Datasets::live),
            epoch: datasets.as_ref().map_or(0, Datasets::epoch),
            place: OnceLock::new(),
            datasets: datasets.map(Arc::new),
        }
    }

    /// Returns the ids under which rows of the namespace are stored.
    pub fn datasets(&self) -> impl Iterator<Item = NamespaceId> {
        let only = self.datasets.is_none().then_some(self.id);
        let all = self.datasets.iter().flat_map(|all| all.ids());
        all.chain(only)
    }

    /// Returns whether rows of the namespace are stored under an id.
    pub fn has_dataset(&self, id: NamespaceId) -> bool {
        self.datasets().any(|own| own == id)
    }

    /// Returns the id under which the rows of a version are stored, if it can be read.
    pub fn version(&self, number: u32) -> Result<NamespaceId, VersionError> {
        match &self.datasets {
            Some(datasets) => datasets.readable(number),
            None => Datasets::of_one(self.id).readable(number),
        }
    }

    /// Returns the number of the live version.
    pub fn live_version(&self) -> u32 {
        let datasets = self.datasets.as_ref();
        datasets.map_or(1, |datasets| datasets.live_version())
    }

    /// Returns the versions as clients see them, without their sizes, each with the id of its dataset.
    pub fn versions(&self) -> Vec<(NamespaceId, VersionInfo)> {
        let datasets = self.datasets.as_ref();
        datasets.map_or_else(Vec::new, |datasets| datasets.infos())
    }

    /// Returns whether a version was kept for long enough.
    pub(crate) fn has_overdue_version(&self, now: Timestamp) -> bool {
        let datasets = self.datasets.as_ref();
        datasets.is_some_and(|datasets| datasets.overdue_since(now).is_some())
    }

    /// Returns the durability of writes that name none.
    pub const fn durability(&self) -> Durability {
        match self.info.settings.durability {
            DurabilitySetting::Sync => Durability::Sync,
            DurabilitySetting::Async => Durability::Async,
        }
    }

    /// Returns the compression of values that are written.
    pub const fn compression(&self) -> CompressionSetting {
        self.info.settings.compression
    }

    /// Returns the time to live of rows that name none, or `None` if such rows are kept for good.
    pub fn default_ttl(&self) -> Option<Duration> {
        self.info.settings.default_ttl.map(Duration::from_secs)
    }

    pub(crate) const fn is_live(&self) -> bool {
        matches!(self.info.state, NamespaceState::Live)
    }
}

/// Returns how the rows of a namespace are written.
pub(crate) const fn writes_of(id: NamespaceId) -> WriteSetting {
    if id.has_fast_writes() {
        WriteSetting::Fast
    } else {
        WriteSetting::Exact
    }
}
