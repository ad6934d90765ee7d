//! Conditions of mutations: whether one holds, and whether that is known without the stored row.

use umbo_store::Change;
use umbo_types::{Timestamp, Version};

use super::refusal::MutationRefusal;
use super::{CommitPlan, Existed, is_blind};
use crate::work::Op;

impl CommitPlan<'_> {
    /// Refuses a mutation whose condition is false. Returns whether its row existed.
    pub(super) fn check_condition(
        &self,
        id: usize,
        op: &Op,
        now: Timestamp,
    ) -> Result<Existed, MutationRefusal> {
        let key = &self.keys[id];
        let is_counter = matches!(op.change, Change::Increment { .. });
        // Without a read, the condition of a load holds for every stored row.
        let is_covered = op.condition.as_of().is_some() && !key.is_read;
        if (is_blind(&op.condition) || is_covered) && !is_counter && key.is_unknown() {
            return Ok(Existed::AsBase(id));
        }
        let current = key.visible_stamp(now)?;
        if !op.condition.is_unwritten() && !op.condition.holds_for(current) {
            return Err(MutationRefusal::Condition(current.map(|row| row.version)));
        }
        Ok(Existed::Known(current.is_some()))
    }

    /// Records how new the row of a mutation is.
    pub(super) fn note_stamp(&self, id: usize, op: &Op, version: Version) {
        if self.keys[id].group.is_some() {
            self.stamps.note_everywhere(version);
        } else {
            self.stamps.note(&op.key, &op.condition, version);
        }
    }
}
