//! Which dataset decides a write of the memory store, and what the others make of it.

use bytes::Bytes;
use umbo_types::NamespaceId;

use super::{MemoryShard, PartitionId};
use crate::records::RecordsCopy;
use crate::request::{Change, Condition, Mutation, SortRange};

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

    /// Returns the dataset that decides a mutation which names this one.
    pub(super) fn decider(&self, namespace: NamespaceId, mutation: &Mutation) -> NamespaceId {
        match mutation.condition {
            Condition::Unwritten => namespace,
            _ => self
                .groups
                .of(namespace)
                .map_or(namespace, |group| group.live),
        }
    }

    /// Returns whether a load may put the row: its dataset is being built, and no client has written it.
    pub(super) fn is_unwritten(&self, at: &PartitionId, sort: &Bytes) -> bool {
        let is_in = |(other, range): &(PartitionId, SortRange)| other == at && range.contains(sort);
        self.groups.is_building(at.0)
            && !self.written.contains(&(at.clone(), sort.clone()))
            && !self.written_ranges.iter().any(is_in)
    }

    /// Makes the row of a mutation that was applied in the other datasets what it is in the one that decided.
    pub(super) fn mirror(&mut self, namespace: NamespaceId, mutation: &Mutation) {
        let Some(group) = self.groups.of(namespace).cloned() else {
            return;
        };
        let is_upload = matches!(mutation.change, Change::Upload(_));
        if is_upload || mutation.condition == Condition::Unwritten {
            return;
        }
        let partition = &mutation.key.partition;
        let sort = Bytes::copy_from_slice(mutation.key.sort.as_bytes());
        let live = self.partitions.get(&(group.live, partition.clone()));
        let row = live.and_then(|rows| rows.get(&sort)).cloned();
        for id in group.mirrors() {
            self.place(&(id, partition.clone()), sort.clone(), row.clone());
        }
        if let Some(building) = group.building {
            self.written.insert(((building, partition.clone()), sort));
        }
    }
}
