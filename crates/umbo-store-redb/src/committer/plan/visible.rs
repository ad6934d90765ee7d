//! What a mutation sees of the row of its key.

use umbo_store::{CounterRow, RowStamp};
use umbo_types::Timestamp;

use super::refusal::MutationRefusal;
use super::{Base, KeyPlan, KeyState, RowEffect};
use crate::row_codec::RowHead;

impl KeyPlan<'_> {
    pub(super) fn effect(&self) -> RowEffect<'_> {
        match &self.state {
            KeyState::AsBefore => RowEffect::None,
            KeyState::Put(head, value) => RowEffect::Put(*head, value),
            KeyState::Deleted => RowEffect::Remove,
        }
    }

    /// Returns whether it is known only once the change is made if there is a visible row.
    pub(super) fn is_unknown(&self) -> bool {
        let is_row = matches!(self.base, Base::Row(..));
        matches!(self.state, KeyState::AsBefore) && !is_row
    }

    /// Returns the number of the visible row, for an increment.
    pub(super) fn visible_counter(
        &self,
        now: Timestamp,
    ) -> Result<Option<CounterRow>, MutationRefusal> {
        Ok(match (&self.state, &self.base) {
            (KeyState::Put(head, value), _) => head
                .is_visible(now)
                .then(|| CounterRow::of(value, head.expires_at)),
            (KeyState::AsBefore, Base::Row(Some(head), counter)) if head.is_visible(now) => {
                counter.clone()
            }
            (KeyState::AsBefore, Base::Damaged(reason)) => {
                return Err(MutationRefusal::Damaged(reason.clone()));
            }
            (KeyState::Deleted, _) | (KeyState::AsBefore, Base::Row(..) | Base::Unread) => None,
        })
    }

    pub(super) fn visible_stamp(
        &self,
        now: Timestamp,
    ) -> Result<Option<RowStamp>, MutationRefusal> {
        let visible = |head: &RowHead| head.is_visible(now).then(|| head.stamp());
        match (&self.state, &self.base) {
            (KeyState::Put(head, _), _) => Ok(visible(head)),
            (KeyState::AsBefore, Base::Row(row, _)) => Ok(row.as_ref().and_then(visible)),
            (KeyState::AsBefore, Base::Damaged(reason)) => {
                Err(MutationRefusal::Damaged(reason.clone()))
            }
            // Only keys that no mutation needs to know of are not read, and these do not ask.
            (KeyState::Deleted, _) | (KeyState::AsBefore, Base::Unread) => Ok(None),
        }
    }
}
