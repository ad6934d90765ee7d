//! The guard of a bucket: the state that all rows of the bucket share, and the name of the last commit.

use std::collections::BTreeMap;

use scylla::statement::prepared::PreparedStatement;
use umbo_store::RecordsRevision;
use umbo_types::{NamespaceId, Timestamp, Version};

use crate::cell::BoundValue;
use crate::found::SizeOf;

/// The state that all rows of a bucket share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Guard {
    /// Name of the last commit, or `None` before the first.
    pub(crate) tag: Option<i64>,
    /// The last commit of each process that has lately made one: process and tag, the latest first.
    pub(crate) last_commits: Vec<(i64, i64)>,
    /// Highest version given in the bucket.
    pub(crate) top: Version,
    /// The last activation that a writer of the bucket knew: its epoch, and the dataset.
    pub(crate) live: Option<(u32, NamespaceId)>,
    /// The newest copy of the records that the bucket is bound to: no process that knows an older one writes to it.
    pub(crate) records: RecordsRevision,
    /// When the next upload goes that no row refers to.
    pub(crate) due: Option<Timestamp>,
    /// Size of each dataset that has rows.
    pub(crate) sizes: BTreeMap<i32, SizeOf>,
    /// The process whose turn it is: others let it commit first.
    pub(crate) turn: Option<i64>,
    /// The latest run of each open load.
    pub(crate) runs: BTreeMap<i32, i32>,
}

/// Processes whose last commit a guard keeps; each takes 28 bytes of every commit.
const LAST_COMMITS_MAX: usize = 16;

impl Guard {
    /// Names the commit that makes this guard.
    pub(crate) fn name(&mut self, process: i64, tag: i64) {
        self.tag = Some(tag);
        self.last_commits.retain(|&(other, _)| other != process);
        self.last_commits.insert(0, (process, tag));
        self.last_commits.truncate(LAST_COMMITS_MAX);
    }

    /// Returns whether a commit of a process was applied that can no longer become so, or `None` if too many others have
    /// committed since.
    pub(crate) fn tells_of(&self, process: i64, tag: i64) -> Option<bool> {
        let of_process = self.last_commits.iter().find(|one| one.0 == process);
        match of_process {
            Some(&(_, last)) => Some(last == tag),
            None if self.last_commits.len() < LAST_COMMITS_MAX => Some(false),
            None => None,
        }
    }
}

/// A change of rows: a statement with its values.
pub(crate) type RowChange<'a> = (&'a PreparedStatement, Vec<BoundValue>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_of_a_commit_is_told_however_often_another_process_has_committed_since() {
        let mut guard = Guard::default();
        assert_eq!(guard.tells_of(1, 10), Some(false));
        guard.name(1, 10);
        for tag in 20..100 {
            guard.name(2, tag);
            assert_eq!(guard.tells_of(1, 10), Some(true));
            assert_eq!(guard.tells_of(1, 11), Some(false));
        }
        assert_eq!(guard.last_commits.len(), 2);
    }

    #[test]
    fn the_outcome_is_unknown_once_too_many_processes_have_committed() {
        let mut guard = Guard::default();
        guard.name(1, 10);
        let others = LAST_COMMITS_MAX.cast_signed() as i64;
        for process in 2..=others {
            guard.name(process, 20);
        }
        assert_eq!(guard.tells_of(1, 10), Some(true));
        guard.name(others + 1, 20);
        assert_eq!(guard.tells_of(1, 10), None);
        assert_eq!(guard.last_commits.len(), LAST_COMMITS_MAX);
    }
}
