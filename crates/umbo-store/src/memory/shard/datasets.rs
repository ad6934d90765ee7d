//! The dataset groups of a shard of the memory store.

use umbo_types::NamespaceId;

use super::MemoryShard;
use crate::records::RecordsCopy;

impl MemoryShard {
    /// Keeps the dataset groups of a copy, if it is newer.
    pub(in crate::memory) fn adopt(&mut self, copy: &RecordsCopy) {
        if self.groups.adopt(copy) {
            let groups = &self.groups;
            self.written.retain(|((id, _), _)| groups.is_building(*id));
            self.written_ranges
                .retain(|((id, _), _)| groups.is_building(*id));
        }
    }

    /// Returns the id of the namespace that a dataset is of.
    pub(super) fn identity(&self, dataset: NamespaceId) -> NamespaceId {
        self.groups
            .of(dataset)
            .map_or(dataset, |group| group.identity)
    }
}
