//! A namespace's datasets, of which one is live.
//!
//! A dataset is a namespace id of its own: a version of a namespace that was loaded as a whole.

use umbo_types::NamespaceId;

/// The datasets of a namespace that take the same writes.
///
/// A shard that keeps the group decides each write to any of them on one dataset, and makes its effect in all, in one
/// commit. A read names one and sees that one alone. Ids are never used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetGroup {
    /// Number of activations so far; of two groups of one namespace the higher one is newer.
    pub epoch: u32,
    /// The dataset that conditions, increments and answers of writes are about.
    pub live: NamespaceId,
    /// Older ones, which can be live again.
    pub kept: Vec<NamespaceId>,
    /// The one that a load builds.
    pub building: Option<NamespaceId>,
    /// Id under which idempotency records of the namespace are kept, and by which its partitions are placed: that of
    /// the namespace itself.
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
