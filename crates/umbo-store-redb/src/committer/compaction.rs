//! Compactions: they give the space of removed rows back to the disk while the shard serves.
//!
//! redb uses free pages again but shortens a file only if its end is free. A compaction moves the last pages to free
//! pages before them. It needs exclusive use of the file, so reads wait meanwhile, as when the file is opened again.
//! Owns this pause of the shard. The invariant: by the known sizes of the rows, a pause is worth it.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Committer;
use crate::committer::failed::FailedCommit;
use crate::committer::limits::IDLE_WAKE;
use crate::committer::pauses::{APART_SHORT, Waste};
use crate::file_error::{FileError, guarded};
use crate::runner::Runner;

/// Least waste for a compaction: in bytes, and as a part of the file (one byte in this number). Waste is the bytes of a
/// file beyond its rows.
const WASTE_MIN: u64 = 4 << 20;
const WASTE_PART: u64 = 2;
/// The same on a disk that is short: less is free than the compaction gives back.
const WASTE_MIN_SHORT: u64 = 1 << 20;
const WASTE_PART_SHORT: u64 = 8;
/// Most bytes of rows in a file that is compacted while the disk has room: they are moved within about 100 ms.
const LIVE_BYTES_MAX: u64 = 128 << 20;
/// The same on a disk that is short.
const LIVE_BYTES_MAX_SHORT: u64 = 1 << 30;
/// Delay of a compaction after it begins to seem worth it: a removal of many rows may be under way.
const SETTLE: Duration = Duration::from_secs(1);
/// Longest wait before a compaction for reads that have begun. After it the compaction is put off.
const READERS_WAIT: Duration = Duration::from_millis(50);

impl Committer {
    /// Compacts the file if that is due.
    pub(super) fn compact_if_due(&mut self) {
        let now = self.disk_now();
        let since = |at: Instant| now.saturating_duration_since(at);
        if !self.compaction.is_pending()
            || (self.compaction.looked_at).is_some_and(|at| since(at) < IDLE_WAKE)
        {
            return;
        }
        self.compaction.looked_at = Some(now);
        self.compaction.is_news = false;
        let Some(waste) = self.waste() else {
            self.compaction.due = None;
            return;
        };
        let due = *self.compaction.due.get_or_insert(now + SETTLE);
        let is_held = self.compaction.not_before.is_some_and(|at| now < at);
        if now >= due && !is_held && self.may_compact() {
            self.compact(waste);
        }
    }

    /// Returns whether the last commit found the disk full.
    fn is_full(&self) -> bool {
        matches!(self.trouble, Some(FileError::Full(_)))
    }

    /// Returns how many bytes the file has beyond its rows, if they are worth a compaction.
    fn waste(&self) -> Option<Waste> {
        let (opener, path) = (&self.file.opener, &self.file.path);
        let live = self.shard.live_bytes()?;
        let bytes = opener.bytes_on_disk(path)?;
        let waste = bytes.saturating_sub(live);
        let is_short = opener.free(path).is_some_and(|free| free < waste);
        let (least, part, live_max) = if !is_short {
            (WASTE_MIN, WASTE_PART, LIVE_BYTES_MAX)
        } else if self.file.disk.reserve.is_sufficient() {
            (WASTE_MIN_SHORT, WASTE_PART_SHORT, LIVE_BYTES_MAX_SHORT)
        } else {
            // Rows can be stored again only in the space that the compaction gives back.
            (WASTE_MIN_SHORT, WASTE_PART_SHORT, u64::MAX)
        };
        let is_worth_it = waste >= least.max(bytes / part) && live <= live_max;
        is_worth_it.then_some(Waste {
            bytes: waste,
            is_short,
        })
    }

    /// Returns whether nothing is under way that a compaction would disturb.
    fn may_compact(&self) -> bool {
        self.database.is_some()
            && (self.trouble.is_none() || self.is_full())
            && self.logged.is_empty()
            && !self.file.disk.has_bad_ranges()
            && (self.is_full() || !self.shard.backup.is_read())
    }

    /// Compacts the file. Reads wait until it is over, and writes in the queue.
    fn compact(&mut self, waste: Waste) {
        let path = self.file.path.clone();
        let bytes = || self.file.opener.bytes_on_disk(&path).unwrap_or_default();
        let (before, began) = (bytes(), self.disk_now());
        self.shard.backup.end();
        let old = self.shard.pause();
        while old.is_read() {
            let waited = self.disk_now().saturating_duration_since(began);
            if waited >= READERS_WAIT || self.file.opener.runner() != Runner::Threads {
                self.compaction.not_before = Some(began + APART_SHORT);
                return self.shard.resume(old);
            }
            thread::yield_now();
        }
        drop(old);
        let Some(mut database) = self.take_database() else {
            return;
        };
        let compacted = guarded(|| Ok(database.compact()?));
        self.database = Some(Arc::new(database));
        // Even if the compaction failed, the next opening finds the last commit.
        if let Err(failure) = self.reopen() {
            self.refuse(Vec::new(), &FailedCommit::before_commit(failure));
        }
        self.shard.note_reopened();
        let now = self.disk_now();
        let took = now.saturating_duration_since(began);
        let after = self.file.opener.bytes_on_disk(&path).unwrap_or_default();
        let given = before.saturating_sub(after);
        self.compaction.note(now, took, given, waste);
        self.shard.counters.note_compaction(took);
        let file = path.display();
        match compacted {
            Ok(_) => tracing::info!(
                %file, before, after, ?took,
                "the shard has paused, and its file was compacted"
            ),
            Err(failure) => tracing::warn!(
                %file, reason = %failure, ?took,
                "the shard has paused, but its file could not be compacted"
            ),
        }
    }
}
