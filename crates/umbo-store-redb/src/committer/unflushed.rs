//! Asynchronous writes that were answered and are not on the disk yet: when they are due there, and whether the
//! database has lost them.
//!
//! Pure. The invariant: even if they are lost and made again several times, they are due when the first of them was.

use std::time::Instant;

use crate::committer::limits::{FLUSH_AFTER, UNFLUSHED_BYTES_MAX};
use crate::committer::writer::LoggedChange;

/// Asynchronous writes that are not on the disk yet.
#[derive(Debug, Default)]
pub(super) struct Unflushed {
    pub(super) changes: Vec<LoggedChange>,
    pub(super) bytes: usize,
    pub(super) since: Option<Instant>,
    /// Sequence number of the last commit among them, or 0 if the database holds no such commit.
    pub(super) sequence: u64,
    /// Whether the database has lost them.
    pub(super) is_lost: bool,
}

impl Unflushed {
    /// Returns whether a durable commit is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.bytes >= UNFLUSHED_BYTES_MAX
            || self
                .since
                .is_some_and(|since| now.saturating_duration_since(since) >= FLUSH_AFTER)
    }

    /// Returns the changes to apply again.
    pub(super) fn lost(&self) -> &[LoggedChange] {
        if self.is_lost { &self.changes } else { &[] }
    }

    /// Records a commit, with the changes that it made if they are not on the disk.
    pub(super) fn note_commit(
        &mut self,
        is_durable: bool,
        sequence: u64,
        changes: Vec<LoggedChange>,
        now: Instant,
    ) {
        if is_durable {
            *self = Self::default();
            return;
        }
        if std::mem::take(&mut self.is_lost) {
            // The commit has made them again. The time since they were first answered stays.
            self.changes.clear();
            self.bytes = 0;
        }
        self.bytes += changes.iter().map(LoggedChange::bytes).sum::<usize>();
        self.changes.extend(changes);
        self.sequence = sequence;
        // The flush bound is a bound on the disk, so it is measured in the runner's time.
        self.since.get_or_insert(now);
    }

    /// Records that the file was opened again without these changes.
    pub(super) fn note_loss(&mut self) {
        self.is_lost = !self.changes.is_empty();
        // Sequence numbers of lost commits are assigned again.
        self.sequence = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_are_made_again_are_due_when_they_were() {
        let began = Instant::now();
        let mut unflushed = Unflushed::default();
        unflushed.note_commit(false, 1, Vec::new(), began);
        assert!(!unflushed.is_due(began));
        // The disk fails again and again, and the file is opened each time.
        for step in 1..=3 {
            unflushed.is_lost = true;
            unflushed.note_commit(false, 2, Vec::new(), began + step * (FLUSH_AFTER / 2));
            assert!(!unflushed.is_lost);
        }
        assert!(unflushed.is_due(began + FLUSH_AFTER));
        unflushed.note_commit(true, 3, Vec::new(), began + FLUSH_AFTER);
        assert!(!unflushed.is_due(began + 9 * FLUSH_AFTER));
    }
}
