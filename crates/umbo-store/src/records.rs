//! Copies of Umbo's own records (namespaces, tokens, policies, lists), as a store keeps them.
//!
//! The records have one home: a partition of the home shard, where a change is one durable compare-and-set.
//! All other nodes hold a copy at a revision. A store keeps the newest copy that it received, and raises its
//! fences in every shard; it does not interpret the records. The invariant: of two copies the one with the
//! higher revision is valid, and copies with equal revisions are equal.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use umbo_routing::{RecordsHome, ShardMap};
use umbo_types::{NamespaceId, PartitionKey, ShardId};

use crate::dataset_group::DatasetGroup;
use crate::error::StoreError;
use crate::id_range::IdRange;

/// What a store does with copies of Umbo's own records.
#[async_trait]
pub trait RecordsKeeper {
    /// Returns the home of Umbo's own records, the only shard that changes them.
    fn home(&self) -> RecordsHome {
        RecordsHome::default()
    }

    /// Passes a copy of Umbo's own records to the store. Every node keeps the newest copy durably, and every shard
    /// keeps the fences and dataset groups of the copy durably. Returns one answer for each shard, in order of their
    /// ids: `Ok` if the fences and groups of this copy, or of a newer one, are on the disk. Passing the same copy again
    /// is cheap and has the same answer; an older copy than the kept one changes nothing.
    async fn keep_records(&self, copy: Arc<RecordsCopy>) -> Vec<(ShardId, Result<(), StoreError>)>;

    /// Returns the newest copy that any reachable node keeps, or `None` if no copy was ever passed. Fails if no node
    /// can be asked, or a copy cannot be read.
    async fn kept_records(&self) -> Result<Option<Arc<RecordsCopy>>, StoreError>;

    /// Returns whether the newest copy that the store has kept or passed on fences a namespace, at no cost.
    fn is_fenced(&self, namespace: NamespaceId) -> bool;

    /// Returns the highest revision of a copy that the store has received or heard of, at no cost.
    fn records_revision(&self) -> RecordsRevision;
}

/// Names that are tried for a partition of the home shard. A shard with one slot of 4,096 is missed by all
/// of them once in 10^13 maps.
const PARTITION_TRIES: u32 = 1 << 17;

/// Returns the first of the partitions `NAME-0`, `NAME-1` and so on that falls into the home shard, or `None` if the
/// shard map gives the shard no slots. Umbo's own rows are in such partitions of [`NamespaceId::SYSTEM`].
pub fn home_partition(map: &ShardMap, home: RecordsHome, name: &str) -> Option<PartitionKey> {
    let named =
        |n: u32| PartitionKey::new(format!("{name}-{n}")).expect("a short text is a partition key");
    let mut tried = (0..PARTITION_TRIES).map(named);
    tried.find(|key| map.locate(NamespaceId::SYSTEM, key) == home.shard)
}

/// Position of a copy in the order of all copies: by epoch, then by number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordsRevision {
    /// Number of the home: an operator who promotes another shard begins the next epoch. 0 in the revision
    /// before the first change.
    pub epoch: u64,
    /// Number of changes, over all epochs.
    pub number: u64,
}

/// Umbo's own records at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordsCopy {
    /// The revision.
    pub revision: RecordsRevision,
    /// Namespaces that were removed: ranges that ascend and do not overlap, and may adjoin. Shards refuse all work for
    /// them and purge their rows. Never holds [`NamespaceId::SYSTEM`]. An id in one copy is in every later copy, except
    /// in a copy from a peer of the version before: it knows only the first id of each range, and every shard has
    /// confirmed the others.
    pub fenced: Vec<IdRange>,
    /// Dataset groups of the namespaces that have more than one dataset, or a single dataset with another id than the
    /// namespace; in ascending order of `live`. Each copy has all groups. A dataset is in at most one group and is not
    /// fenced.
    pub datasets: Vec<DatasetGroup>,
    /// All records, in the encoding of their owner. Opaque to a store.
    pub content: Bytes,
}

impl RecordsCopy {
    /// Returns whether the copy fences a namespace.
    pub fn fences(&self, namespace: NamespaceId) -> bool {
        namespace != NamespaceId::SYSTEM && IdRange::any_has(&self.fenced, namespace)
    }

    /// Places the datasets of the copy in a map: the partitions of a dataset are in the same shards as the partitions
    /// of its namespace. Does nothing if the map has the datasets of a newer copy. A store does this with every copy
    /// that it keeps or reads; code that learns of records in another way does it before the first call that names a
    /// dataset.
    pub fn place_datasets(&self, map: &ShardMap) {
        place_datasets(map, self.revision, &self.datasets);
    }
}

/// As [`RecordsCopy::place_datasets`], for the groups of a revision.
pub fn place_datasets(map: &ShardMap, revision: RecordsRevision, groups: &[DatasetGroup]) {
    let placed = |group: &DatasetGroup| {
        let identity = group.identity;
        let ids: Vec<_> = group.ids().map(|id| (id, identity)).collect();
        ids
    };
    let placed = groups.iter().flat_map(placed);
    map.placements()
        .replace((revision.epoch, revision.number), placed);
}
