//! A committer on a full disk: work that makes room goes on with the reserve, and other work is refused until there is
//! room.
//!
//! Owns the decision which work is begun. The invariant: rows are stored only while the reserve is sufficient, so that
//! work that makes room can always be committed.

use super::Committer;
use crate::committer::failed::FailedCommit;
use crate::committer::limits::ROWS_MAX_WITHOUT_ROOM;
use crate::file_error::FileError;
use crate::work::QueuedWork;

/// Least room on a full disk, in addition to the reserve, before another commit of rows is tried.
const ROOM_MIN: u64 = 1 << 20;

impl Committer {
    /// Refills the reserve. Fails if it stays insufficient or, after the disk was full, if there is no more room and
    /// nothing was removed since.
    pub(super) fn make_room(&mut self, work: &[QueuedWork]) -> Result<(), FileError> {
        let reserve = &self.file.disk.reserve;
        reserve.refill()?;
        if !reserve.is_sufficient() {
            return Err(FileError::Full("the reserve is used up".to_owned()));
        }
        if let Some(FileError::Full(_)) = self.trouble
            && !self.has_freed
        {
            let bytes: usize = work.iter().map(|work| work.size().bytes).sum();
            reserve.probe(ROOM_MIN + 4 * bytes as u64)?;
        }
        Ok(())
    }

    /// Refuses work that stores rows, and commits the rest and the chores of the shard with its reserve.
    pub(super) fn serve_without_room(&mut self, work: Vec<QueuedWork>, failure: FileError) {
        self.has_room = false;
        let (reserved, refused) = work.into_iter().partition(QueuedWork::is_reserved);
        self.refuse(refused, &FailedCommit::before_commit(failure));
        if self.database.is_none()
            && let Err(failure) = self.reopen()
        {
            return self.refuse(reserved, &FailedCommit::before_commit(failure));
        }
        let mut left: Vec<QueuedWork> = reserved;
        let is_due = !self.are_chores_held() && self.is_chore_due();
        if left.is_empty() && is_due {
            return self.commit_readable(left, self.clock.wall());
        }
        while !left.is_empty() {
            let mut rows = 0;
            let mut fits = |work: &QueuedWork| {
                rows += work.size().mutations.min(ROWS_MAX_WITHOUT_ROOM as usize);
                rows <= ROWS_MAX_WITHOUT_ROOM as usize
            };
            let count = left.iter().take_while(|work| fits(work)).count();
            let rest = left.split_off(count.clamp(1, left.len()));
            let mut step = self.admit(left);
            for work in &mut step {
                work.shorten(ROWS_MAX_WITHOUT_ROOM);
            }
            self.commit_readable(step, self.clock.wall());
            left = rest;
        }
    }

    /// Records whether a commit has removed or replaced anything.
    pub(super) fn note_freed(&mut self, has_freed: bool) {
        self.has_freed |= has_freed;
        self.compaction.is_news |= has_freed;
    }
}
