//! Groups of small writes that are answered once they are in the log, before the shard's file has them.
//!
//! A group that the log takes costs one write and one sync, whatever it changes in the tree of the file. Its rows are in
//! a memtable until an apply has committed them to the file. Everything else is committed to the file as before, with
//! the rows of the memtables first: other work, and every group after a failure of the log.
//!
//! The invariants: a group is answered only if its record or a later commit of the file is on the disk; the segment of a
//! memtable is not written again before the file has the rows of the memtable; a record whose sync failed is followed by
//! a commit of the file, which makes it void.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::committer::apply::RunningApply;
use crate::committer::limits::{
    APPLY_BYTES, APPLY_ROWS, FLUSH_AFTER, MEMTABLE_BYTES_MAX, MEMTABLE_ROWS_MAX, ROW_HELD_MAX,
};
use crate::memtable::{Frozen, Memtable, Overlay};
use crate::queue::WorkSize;
use crate::sizes::SizeChanges;
use crate::write_log::{LogMark, WriteLog};

/// The log of a committer, and the rows that the file does not have yet.
pub(super) struct Logged {
    pub(super) is_enabled: bool,
    /// Longest time that a row is only in the log.
    pub(super) apply_after: Duration,
    pub(super) log: Option<WriteLog>,
    /// Epoch of the log that the file needs to be complete.
    pub(super) needed: Option<u64>,
    /// Takes the rows of the next groups.
    pub(super) active: Arc<Memtable>,
    /// Rows in it.
    pub(super) rows: usize,
    /// Bytes of their keys and values.
    pub(super) bytes: usize,
    /// When the first of them was answered.
    pub(super) since: Option<Instant>,
    /// Number of the last group in it.
    pub(super) last: u64,
    /// How its rows change the sizes of namespaces.
    pub(super) sizes: SizeChanges,
    /// Rows that are being applied, or could not be.
    pub(super) frozen: Option<Frozen>,
    pub(super) applying: Option<RunningApply>,
    /// The log is not used before then, because it has failed.
    pub(super) held_until: Option<Instant>,
    /// When the first group was answered that is not on the disk.
    pub(super) unsynced_since: Option<Instant>,
    /// Whether a record may be on the disk whose group was not answered.
    pub(super) is_in_doubt: bool,
    /// Whether the disk had room for the rows of a memtable when its first group came.
    pub(super) has_room: bool,
    pub(super) record: Vec<u8>,
}

impl Logged {
    pub(super) fn new(is_enabled: bool, apply_after: Duration) -> Self {
        Self {
            is_enabled,
            apply_after,
            log: None,
            needed: None,
            active: Arc::default(),
            rows: 0,
            bytes: 0,
            sizes: SizeChanges::default(),
            last: 0,
            since: None,
            frozen: None,
            applying: None,
            held_until: None,
            unsynced_since: None,
            is_in_doubt: false,
            has_room: false,
            record: Vec::new(),
        }
    }

    /// Returns the memtables, the newest first.
    pub(super) fn overlay(&self) -> Overlay {
        let active = (self.rows > 0).then(|| (Arc::clone(&self.active), self.last));
        let frozen = self.frozen.as_ref().map(Frozen::table);
        Overlay::new(active.into_iter().chain(frozen).collect())
    }

    /// Returns whether the file has every row.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0 && self.frozen.is_none()
    }

    /// Returns whether a record may be on the disk whose group was not answered.
    pub(super) const fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Returns whether the file needs the log to be complete.
    pub(super) fn is_needed(&self) -> bool {
        let log = self.log.as_ref();
        log.is_some_and(|log| self.needed == Some(log.epoch()))
    }

    /// Returns what a commit of every row records about the log.
    pub(super) fn mark(&self) -> LogMark {
        match &self.log {
            Some(log) if !self.is_needed() => LogMark::Needed(log.epoch()),
            None if self.needed.is_some() => LogMark::Done,
            _ => LogMark::Unchanged,
        }
    }

    /// Records that a commit of the file holds every row and, if it has one, the epoch of the log. Returns the
    /// memtables whose rows the commit has.
    pub(super) fn note_commit(&mut self, sequence: u64) -> Vec<Frozen> {
        self.needed = self.log.as_ref().map(WriteLog::epoch);
        self.is_in_doubt = false;
        self.unsynced_since = None;
        if let Some(log) = &mut self.log {
            log.note_commit(sequence);
        }
        if self.is_empty() {
            return Vec::new();
        }
        let applied = self.frozen.take();
        applied.into_iter().chain([self.renew()]).collect()
    }

    /// Returns how the memtables change the sizes of the file.
    pub(super) fn all_sizes(&self) -> SizeChanges {
        let mut all = SizeChanges::default();
        let frozen = self.frozen.as_ref().map(|frozen| &frozen.sizes);
        for changes in frozen.into_iter().chain([&self.sizes]) {
            all.merge(changes);
        }
        all
    }

    /// Begins the next memtable in the other segment.
    pub(super) fn renew(&mut self) -> Frozen {
        self.rows = 0;
        self.bytes = 0;
        self.since = None;
        if let Some(log) = &mut self.log {
            log.switch();
        }
        Frozen {
            table: std::mem::take(&mut self.active),
            last: self.last,
            sizes: std::mem::take(&mut self.sizes),
        }
    }

    /// Returns whether the memtable has so many rows or bytes that it is applied at once.
    pub(super) const fn is_large(&self) -> bool {
        self.rows >= APPLY_ROWS || self.bytes >= APPLY_BYTES
    }

    /// Returns for how long an answer is held back for each row of its write: in proportion to the rows since an
    /// apply was due.
    pub(super) fn row_held(&self) -> Duration {
        let late = WorkSize {
            mutations: self.rows.saturating_sub(APPLY_ROWS),
            bytes: self.bytes.saturating_sub(APPLY_BYTES),
        };
        ROW_HELD_MAX * late.rows() as u32 / MEMTABLE_ROWS_MAX as u32
    }

    /// Returns whether the memtable and its segment take no further group.
    pub(super) fn is_full(&self) -> bool {
        self.rows >= MEMTABLE_ROWS_MAX
            || self.bytes >= MEMTABLE_BYTES_MAX
            || self.log.as_ref().is_some_and(|log| !log.has_room())
    }

    /// Returns how long to wait until the memtable has to be applied or its log to be flushed. An apply that ends wakes
    /// the committer.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        if self.is_stalled() {
            return Some(Duration::ZERO);
        }
        let left = |since: Option<Instant>, most: Duration| {
            Some(most.saturating_sub(now.saturating_duration_since(since?)))
        };
        let apply = match &self.applying {
            Some(apply) => apply.left(),
            None => left(self.since, self.apply_after),
        };
        let flush = left(self.unsynced_since, FLUSH_AFTER);
        [apply, flush].into_iter().flatten().min()
    }

    pub(super) fn is_due(since: Option<Instant>, most: Duration, now: Instant) -> bool {
        since.is_some_and(|since| now.saturating_duration_since(since) >= most)
    }

    /// Returns whether rows are to be committed together with the next work, because their apply has failed or the
    /// committer ends.
    pub(super) fn is_stalled(&self) -> bool {
        self.applying.is_none() && (self.frozen.is_some() || (!self.is_enabled && self.rows > 0))
    }

    /// Takes no further groups.
    pub(super) const fn stop(&mut self) {
        self.is_enabled = false;
    }

    /// Returns whether rows are being applied.
    pub(super) const fn is_applying(&self) -> bool {
        self.applying.is_some()
    }
}
