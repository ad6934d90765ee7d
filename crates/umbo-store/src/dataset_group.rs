//! The datasets of a namespace; one of them is live.
//!
//! A dataset is a version of a namespace that was loaded as a whole. It has a separate namespace id.

use umbo_types::NamespaceId;

/// The datasets of a namespace that take the same writes.
///
/// A shard that keeps the group decides each write on one of the datasets and applies its effect to all of them, in one
/// commit. A read names one dataset and sees only the rows of that dataset. Ids are never used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetGroup {
    /// Number of activations so far. Of two states of the group, the state with the higher epoch is newer.
    pub epoch: u32,
    /// The dataset that conditions, increments and answers of writes refer to.
    pub live: NamespaceId,
    /// Older datasets, which can be activated again.
    pub kept: Vec<NamespaceId>,
    /// The dataset that a load builds.
    pub building: Option<NamespaceId>,
    /// Id of the namespace itself. The idempotency records of the namespace are kept under it, and its partitions are
    /// placed by it.
    pub identity: NamespaceId,
}

impl DatasetGroup {
    /// Returns all datasets, the live one first.
    pub fn ids(&self) -> impl Iterator<Item = NamespaceId> + '_ {
        std::iter::once(self.live).chain(self.mirrors())
    }

    /// Returns the datasets that take the effects of writes but do not decide them.
    pub fn mirrors(&self) -> impl Iterator<Item = NamespaceId> + '_ {
        self.kept.iter().chain(&self.building).copied()
    }

    /// Makes another dataset of the group the live one.
    pub(crate) fn activate(&mut self, id: NamespaceId, epoch: u32) {
        self.epoch = epoch;
        if self.live != id {
            self.kept.retain(|&other| other != id);
            self.building.take_if(|other| *other == id);
            self.kept.push(std::mem::replace(&mut self.live, id));
        }
    }
}
