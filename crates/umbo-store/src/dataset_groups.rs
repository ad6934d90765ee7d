//! The datasets of all namespaces that have several, as a shard sees them.
//!
//! Owns the decision which dataset decides a write and which datasets take its effect; the engines make the changes.
//! The invariants: one dataset decides all writes of one commit to one group. Of two states of a group, the state with
//! the higher epoch is newer, even if a dispatcher has brought it and not a copy of the records.

use umbo_types::NamespaceId;

use crate::dataset_group::DatasetGroup;
use crate::records::{RecordsCopy, RecordsRevision};

/// The dataset groups of a shard, at a revision of the records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatasetGroups {
    revision: RecordsRevision,
    groups: Vec<DatasetGroup>,
    /// The dataset and the index of its group, in ascending order.
    members: Vec<(NamespaceId, usize)>,
}

impl DatasetGroups {
    /// Makes the groups of a revision.
    pub fn new(revision: RecordsRevision, groups: Vec<DatasetGroup>) -> Self {
        let members_of = |(at, group): (usize, &DatasetGroup)| {
            let members: Vec<_> = group.ids().map(|id| (id, at)).collect();
            members
        };
        let mut members: Vec<_> = groups.iter().enumerate().flat_map(members_of).collect();
        members.sort_unstable();
        Self {
            revision,
            groups,
            members,
        }
    }

    /// Returns the revision of the records that the groups are from.
    pub const fn revision(&self) -> RecordsRevision {
        self.revision
    }

    /// Returns the groups.
    pub fn groups(&self) -> &[DatasetGroup] {
        &self.groups
    }

    /// Returns whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns whether a copy changes nothing: it is not newer, or neither the copy nor the shard has any groups.
    pub fn has(&self, copy: &RecordsCopy) -> bool {
        copy.revision <= self.revision || (copy.datasets.is_empty() && self.groups.is_empty())
    }

    /// Replaces the groups with the groups of a newer copy. If a dispatcher has activated a dataset of a group by an
    /// even newer copy, that dataset stays live. Returns whether the groups were replaced.
    pub fn adopt(&mut self, copy: &RecordsCopy) -> bool {
        if self.has(copy) {
            return false;
        }
        let mut groups = copy.datasets.clone();
        for group in &mut groups {
            let is_it = |own: &&DatasetGroup| own.identity == group.identity;
            let own = self.groups.iter().find(is_it);
            if let Some(own) = own.filter(|own| own.epoch > group.epoch)
                && group.ids().any(|id| id == own.live)
            {
                group.activate(own.live, own.epoch);
            }
        }
        *self = Self::new(copy.revision, groups);
        true
    }

    /// Learns from a write that its sender knows a later activation than the shard: the dataset of the write is live.
    /// Returns whether the shard did not know this activation.
    pub fn learn(&mut self, id: NamespaceId, epoch: u32) -> bool {
        if epoch == 0 || self.groups.is_empty() {
            return false;
        }
        let Some(at) = self.index_of(id) else {
            return false;
        };
        let group = &mut self.groups[at];
        if group.epoch >= epoch {
            return false;
        }
        group.activate(id, epoch);
        true
    }

    /// Returns the group of a dataset, or `None` if the id has no group.
    pub fn of(&self, id: NamespaceId) -> Option<&DatasetGroup> {
        if self.groups.is_empty() {
            return None;
        }
        self.index_of(id).map(|at| &self.groups[at])
    }

    /// Returns whether a load builds the dataset.
    pub fn is_building(&self, id: NamespaceId) -> bool {
        self.of(id).is_some_and(|group| group.building == Some(id))
    }

    /// Returns whether idempotency records of a namespace with several datasets are kept under the id.
    pub fn is_identity(&self, id: NamespaceId) -> bool {
        self.groups.iter().any(|group| group.identity == id)
    }

    fn index_of(&self, id: NamespaceId) -> Option<usize> {
        let found = self.members.binary_search_by_key(&id, |member| member.0);
        found.ok().map(|at| self.members[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: NamespaceId = NamespaceId(3);
    const SECOND: NamespaceId = NamespaceId(8);
    const THIRD: NamespaceId = NamespaceId(9);

    fn copy(number: u64, group: DatasetGroup) -> RecordsCopy {
        RecordsCopy {
            revision: RecordsRevision { epoch: 0, number },
            datasets: vec![group],
            ..RecordsCopy::default()
        }
    }

    fn group(epoch: u32, live: NamespaceId, kept: &[NamespaceId]) -> DatasetGroup {
        DatasetGroup {
            epoch,
            live,
            kept: kept.to_vec(),
            building: None,
            identity: FIRST,
        }
    }

    #[test]
    fn the_highest_epoch_decides_whoever_brings_it() {
        let mut groups = DatasetGroups::default();
        assert!(!groups.learn(SECOND, 4));
        let built = DatasetGroup {
            building: Some(SECOND),
            ..group(0, FIRST, &[])
        };
        assert!(groups.adopt(&copy(5, built.clone())));
        assert!(groups.is_building(SECOND) && !groups.is_building(FIRST));
        assert!(!groups.adopt(&copy(4, group(9, SECOND, &[]))));
        // A dispatcher knows the activation before the copy arrives.
        assert!(groups.learn(SECOND, 1) && !groups.learn(FIRST, 1) && !groups.learn(FIRST, 0));
        assert_eq!(groups.of(FIRST), Some(&group(1, SECOND, &[FIRST])));
        // A copy from between does not undo it, and the copy of the activation changes nothing more.
        assert!(groups.adopt(&copy(6, built)));
        assert_eq!(groups.of(FIRST), Some(&group(1, SECOND, &[FIRST])));
        assert!(groups.adopt(&copy(7, group(1, SECOND, &[FIRST]))));
        assert_eq!(groups.of(SECOND), Some(&group(1, SECOND, &[FIRST])));
        assert_eq!(groups.of(THIRD), None);
        assert!(groups.is_identity(FIRST) && !groups.is_identity(SECOND));
    }

    #[test]
    fn copies_without_groups_are_no_news_where_there_are_none() {
        let mut groups = DatasetGroups::default();
        let empty = RecordsCopy {
            revision: RecordsRevision {
                epoch: 0,
                number: 9,
            },
            ..RecordsCopy::default()
        };
        assert!(groups.has(&empty) && !groups.adopt(&empty));
        assert!(groups.adopt(&copy(5, group(1, SECOND, &[FIRST]))));
        assert!(!groups.has(&empty) && groups.adopt(&empty) && groups.is_empty());
    }
}
