//! Rows and namespaces that commits leave out because a part of the file cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use umbo_store::StoreError;
use umbo_types::NamespaceId;

use crate::committer::limits::RETRY_AFTER;

/// Most entries of the expiry index that the sweeper leaves out, each of the size of a key. One more stops the sweeper
/// for [`RETRY_AFTER`]. Then it begins again with an empty list.
const SPARED_ENTRIES_MAX: usize = 1_024;
/// Rows that are purged at once in a namespace with a bad page. A step that meets the page removes nothing, so fewer
/// than this many rows stay on either side of it.
const SPARING_ROWS: u32 = 64;
/// How long an unreadable row is not reclaimed. Each such row costs an attempt at a commit when this time is over.
const SPARED_FOR: Duration = Duration::from_mins(1);

/// Parts that a commit leaves out.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Rows that are not changed, by physical key, and the error that answers their changes.
    pub(super) rows: BTreeMap<Vec<u8>, StoreError>,
    /// Whether reclaiming is left out this time.
    pub(super) are_chores: bool,
}

/// The end of a namespace at which rows are removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the first.
    #[default]
    Forward,
    /// From the last.
    Backward,
}

/// Rows and namespaces that are not reclaimed because they cannot be read. They are tried again after
/// [`SPARED_FOR`].
#[derive(Debug, Default, Clone)]
pub(crate) struct Spared {
    /// Entries of the expiry index whose rows cannot be read.
    pub(crate) entries: BTreeSet<Vec<u8>>,
    /// When the sweeper continues, if the index itself cannot be read.
    sweeper_held_until: Option<Instant>,
    /// Fenced namespaces with unreadable rows. Each is purged in small steps from this end; `None` if both ends have
    /// been tried. Bounded by the number of fences.
    namespaces: BTreeMap<NamespaceId, Option<Direction>>,
    /// When everything is tried again.
    until: Option<Instant>,
}

impl Spared {
    /// Returns whether the sweeper pauses.
    pub(super) fn is_sweeper_held(&self, now: Instant) -> bool {
        self.sweeper_held_until.is_some_and(|until| now < until)
    }

    /// Returns whether any of these namespaces is to be purged.
    pub(super) fn has_any_to_purge(&self, mut purging: impl Iterator<Item = NamespaceId>) -> bool {
        purging.any(|id| self.may_purge(id))
    }

    /// Returns whether purging a namespace may still remove rows.
    pub(super) fn may_purge(&self, namespace: NamespaceId) -> bool {
        self.namespaces.get(&namespace) != Some(&None)
    }

    /// Returns the end of a namespace at which a step purges rows, and the maximum number of these rows.
    pub(super) fn step_of(&self, namespace: NamespaceId, rows_max: u32) -> (Direction, u32) {
        match self.namespaces.get(&namespace) {
            None => (Direction::default(), rows_max),
            Some(direction) => (direction.unwrap_or_default(), rows_max.min(SPARING_ROWS)),
        }
    }

    pub(super) fn spare_entry(&mut self, entry: Option<Vec<u8>>, now: Instant) {
        match entry {
            Some(entry) if self.entries.len() < SPARED_ENTRIES_MAX => {
                self.entries.insert(entry);
            }
            _ => {
                self.entries.clear();
                self.sweeper_held_until = Some(now + RETRY_AFTER);
            }
        }
        self.until.get_or_insert(now + SPARED_FOR);
    }

    pub(super) fn spare_namespace(&mut self, namespace: NamespaceId, now: Instant) {
        let next = match self.namespaces.get(&namespace) {
            None => Some(Direction::Forward),
            Some(Some(Direction::Forward)) => Some(Direction::Backward),
            Some(_) => None,
        };
        self.namespaces.insert(namespace, next);
        self.until.get_or_insert(now + SPARED_FOR);
    }

    /// Returns whether anything has been left out since everything was last tried.
    pub(super) fn is_any(&self) -> bool {
        self.until.is_some()
    }

    /// Returns whether [`SPARED_FOR`] is over, so that everything is tried again.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// Forgets everything once [`SPARED_FOR`] is over. Returns whether it has.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let is_over = self.is_over(now);
        if is_over {
            *self = Self::default();
        }
        is_over
    }
}
