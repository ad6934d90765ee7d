//! The datasets of a committer's shard that take the same writes.
//!
//! Owns the groups in effect and their effect on reclaiming. Idempotency records of a namespace outlive its first
//! dataset. The written keys of a dataset are forgotten once the dataset is no longer being built.

use umbo_store::{DatasetGroups, RecordsCopy};
use umbo_types::{NamespaceId, Version};

use crate::committer::newest_stamps::NewestStamps;
use crate::committer::writer::Purged;
use crate::fences::Fences;

/// The datasets of a committer's shard.
#[derive(Debug)]
pub(crate) struct CommitterDatasets {
    /// The groups in effect.
    pub(super) groups: DatasetGroups,
    /// A bound on how new the rows of each dataset are.
    pub(super) stamps: NewestStamps,
    /// Whether the table of written keys may have entries of datasets that are not being built.
    pub(super) has_written: bool,
    /// Fenced datasets without rows, whose ids still name idempotency records of their namespaces.
    held: Vec<NamespaceId>,
}

impl CommitterDatasets {
    /// Begins with the rows of a shard. No row is newer than `newest`.
    pub(super) fn new(groups: DatasetGroups, has_written: bool, newest: Version) -> Self {
        Self {
            groups,
            stamps: NewestStamps::after(newest),
            has_written,
            held: Vec::new(),
        }
    }

    /// Returns the same datasets for a commit without work.
    pub(super) fn without_stamps(&self) -> Self {
        Self {
            groups: self.groups.clone(),
            stamps: NewestStamps::after(Version(0)),
            has_written: self.has_written,
            held: self.held.clone(),
        }
    }

    /// Keeps the groups of a copy, if it is newer. Returns whether anything has changed.
    pub(super) fn adopt(&mut self, copy: &RecordsCopy) -> bool {
        let has_built = self
            .groups
            .groups()
            .iter()
            .any(|one| one.building.is_some());
        let is_news = self.groups.adopt(copy);
        if is_news {
            self.has_written |= has_built;
            self.held.clear();
        }
        is_news
    }

    /// Returns which of the fenced namespaces are to be purged now.
    pub(super) fn to_purge(&self, fences: &Fences) -> impl Iterator<Item = NamespaceId> {
        fences.purging().filter(|id| !self.held.contains(id))
    }

    /// Returns the number of fenced namespaces that are to be purged now.
    pub(super) fn to_purge_count(&self, fences: &Fences) -> u64 {
        fences
            .purging_count()
            .saturating_sub(self.held.len() as u64)
    }

    /// Learns of a later activation from a write. Returns whether the committer did not know it.
    pub(super) fn learn(&mut self, dataset: NamespaceId, epoch: u32) -> bool {
        let is_news = self.groups.learn(dataset, epoch);
        // The dataset that is live now may have been the one being built.
        self.has_written |= is_news;
        is_news
    }

    /// Records the rows and written keys that a commit has reclaimed.
    pub(super) fn note_reclaimed(&mut self, purged: &Purged) {
        if let Some(has_more) = purged.has_more_written {
            self.has_written = has_more;
        }
        self.held.extend(&purged.held);
    }
}
