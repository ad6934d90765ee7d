//! What a plan has to do with the datasets of a group: rows of loads, and changes that several datasets take.

use std::collections::BTreeMap;

use umbo_store::{DatasetGroup, StoreError};

use super::{CommitPlan, FromLoad, KeyState, RowEffect};
use crate::key_codec;
use crate::work::Op;

impl<'a> CommitPlan<'a> {
    /// Refuses every change of these keys, and those whose effect in another dataset is a change of one.
    pub(crate) fn leave_out(&mut self, keys: &'a BTreeMap<Vec<u8>, StoreError>) {
        if keys.is_empty() {
            return;
        }
        for key in &mut self.keys {
            key.refusal = keys.get(key.key).or_else(|| {
                let moved = |id| keys.get(&key_codec::in_namespace(key.key, id));
                key.group.and_then(|group| group.mirrors().find_map(moved))
            });
        }
        self.records.leave_out(keys);
    }

    /// Returns whether a load puts any of the rows.
    pub(crate) fn has_loaded(&self) -> bool {
        self.keys.iter().any(|key| key.loaded != FromLoad::No)
    }

    /// Calls `read` with each key of a load, in order; it returns whether a client has written the row.
    pub(crate) fn read_written<E>(
        &mut self,
        mut read: impl FnMut(&[u8]) -> Result<bool, E>,
    ) -> Result<(), E> {
        let is_read =
            |key: &&mut super::KeyPlan<'_>| key.loaded != FromLoad::No && key.refusal.is_none();
        for key in self.keys.iter_mut().filter(is_read) {
            if read(key.key)? {
                key.loaded = FromLoad::Written;
            }
        }
        Ok(())
    }

    /// Returns whether a load may put a row: no client has written it, in this commit or before.
    pub(super) fn may_load(&self, id: usize, op: &Op) -> bool {
        let Some(live) = op.live else {
            return false;
        };
        if self.keys[id].loaded == FromLoad::Written {
            return false;
        }
        if !self.has_mirrored() {
            return true;
        }
        let key = key_codec::in_namespace(&op.key, live);
        let found = self.keys.binary_search_by(|one| one.key.cmp(&key[..]));
        found.map_or(true, |at| matches!(self.keys[at].state, KeyState::AsBefore))
    }

    /// Returns whether other datasets take any of the changes.
    pub(crate) fn has_mirrored(&self) -> bool {
        self.has_groups
    }

    /// Returns the changes that other datasets take, in order of their keys.
    pub(crate) fn mirrored(
        &self,
    ) -> impl Iterator<Item = (&[u8], &'a DatasetGroup, RowEffect<'_>)> {
        self.keys.iter().filter_map(|key| {
            let effect = key.effect();
            let is_change = effect != RowEffect::None;
            key.group
                .filter(|_| is_change)
                .map(|group| (key.key, group, effect))
        })
    }
}
