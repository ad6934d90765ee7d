//! A commit that failed.

use crate::committer::attempt::Unprepared;
use crate::committer::trace::{CommitTrace, Culprit};
use crate::file_error::FileError;
use crate::work::WorkAnswer;

/// A failed commit, and how far it came.
pub(crate) struct FailedCommit {
    pub(super) failure: FileError,
    /// Sequence number of the commit, if redb had begun to write it.
    pub(super) begun: Option<u64>,
    /// The answers to give if the commit was applied nevertheless.
    pub(super) answers: Vec<WorkAnswer>,
    /// The change that needed an unreadable part of the file, if that is the cause.
    pub(super) culprit: Option<Culprit>,
    /// Whether the transaction was aborted properly, so that the file need not be opened again.
    pub(super) is_aborted: bool,
}

impl FailedCommit {
    pub(super) fn before_commit(failure: FileError) -> Self {
        Self {
            failure,
            begun: None,
            answers: Vec::new(),
            culprit: None,
            is_aborted: false,
        }
    }

    pub(super) fn unprepared(unprepared: Unprepared, trace: &CommitTrace) -> Self {
        Self {
            culprit: unprepared.is_unreadable().then(|| trace.culprit()),
            is_aborted: unprepared.is_aborted,
            ..Self::before_commit(unprepared.failure)
        }
    }
}
