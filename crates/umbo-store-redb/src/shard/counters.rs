//! Counters of a shard: the work of its committer, for the status and metrics.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::work::QueuedWork;

/// Counters of a committer since the process started.
#[derive(Debug, Default)]
pub(crate) struct ShardCounters {
    /// Commits.
    pub(crate) commits: AtomicU64,
    /// Time that the last commit took, in nanoseconds.
    pub(crate) last_commit_nanos: AtomicU64,
    /// Commits that were waited for until they were on the disk.
    pub(crate) syncs: AtomicU64,
    /// Total time of these commits, in nanoseconds.
    pub(crate) sync_nanos: AtomicU64,
    /// Compactions of the file. The shard pauses for each compaction.
    pub(crate) compactions: AtomicU64,
    /// Total time of these compactions, in nanoseconds.
    pub(crate) compaction_nanos: AtomicU64,
    /// Mutations committed.
    pub(crate) mutations: AtomicU64,
    /// Expired rows reclaimed.
    pub(crate) reclaimed: AtomicU64,
    /// Expired rows that are known to await reclaiming now.
    pub(crate) expired: AtomicU64,
    /// Pieces of work whose caller gave them up before they were begun.
    pub(crate) withdrawn: AtomicU64,
    /// Fenced namespaces that may still have rows now.
    pub(crate) purging: AtomicU64,
    /// Highest id of a namespace that has or had rows.
    pub(crate) namespace_max: AtomicU32,
}

impl ShardCounters {
    /// Counts a group of the log.
    pub(crate) fn note_commit(&self, work: &[QueuedWork], mutations: u64, taken: Duration) {
        let nanos = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.last_commit_nanos.store(nanos, Ordering::Relaxed);
        self.note_namespaces(work, None);
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.mutations.fetch_add(mutations, Ordering::Relaxed);
    }

    /// Counts a compaction, and the time that the shard paused for it.
    pub(crate) fn note_compaction(&self, taken: Duration) {
        let nanos = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.compactions.fetch_add(1, Ordering::Relaxed);
        self.compaction_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts a commit that was waited for until it was on the disk.
    pub(crate) fn note_sync(&self, taken: Duration) {
        let nanos = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.sync_nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}
