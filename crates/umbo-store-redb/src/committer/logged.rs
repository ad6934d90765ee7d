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

use umbo_store::{Change, Condition};
use umbo_types::{StoredForm, Timestamp, Version, VersionClock};

use super::{Committer, FailedCommit};
use crate::bad_read::isolated;
use crate::committer::apply::{Applied, Apply, RunningApply};
use crate::committer::limits::{
    APPLY_AFTER, APPLY_ROWS, APPLY_WAKE, FLUSH_AFTER, MEMTABLE_ROWS_MAX, RESERVED_VERSIONS,
    RETRY_AFTER,
};
use crate::committer::plan::{Base, CommitPlan, RowEffect};
use crate::file_error::{FileError, guarded};
use crate::memtable::{ChangedRow, Memtable, Overlay};
use crate::row_cache;
use crate::row_codec;
use crate::tables::ShardProgress;
use crate::work::{QueuedWork, WorkAnswer, WriteWork, answer_all};
use crate::write_log::{LogMark, RECORD_LEN_MAX, WriteLog, add_change};

/// Most mutations of a group that the log takes. More are committed to the file at once, which costs each little.
const GROUP_MUTATIONS_MAX: usize = 1_024;
/// Most bytes of keys and values of such a group. With the heads of its rows it fits into a record.
const GROUP_BYTES_MAX: usize = RECORD_LEN_MAX / 2;
/// Least free room on the disk when a memtable gets its first row: for two segments, and for the pages that its rows
/// change in the file. A row that was answered must find room there.
const ROOM_MIN: u64 = 128 << 20;

/// The log of a committer, and the rows that the file does not have yet.
pub(super) struct Logged {
    is_enabled: bool,
    log: Option<WriteLog>,
    /// Epoch of the log that the file needs to be complete.
    needed: Option<u64>,
    /// Takes the rows of the next groups.
    active: Arc<Memtable>,
    /// Rows in it.
    rows: usize,
    /// When the first of them was answered.
    since: Option<Instant>,
    /// Rows that are being applied, or could not be.
    frozen: Option<Arc<Memtable>>,
    applying: Option<RunningApply>,
    /// The log is not used before then, because it has failed.
    held_until: Option<Instant>,
    /// When the first group was answered that is not on the disk.
    unsynced_since: Option<Instant>,
    /// Whether a record may be on the disk whose group was not answered.
    is_in_doubt: bool,
    /// Whether the disk had room for the rows of a memtable when its first group came.
    has_room: bool,
    record: Vec<u8>,
}

/// A change of a group, ready for the memtable.
type GroupChange = (Box<[u8]>, ChangedRow);

/// The changes of a group, and its answers.
type Group = (Vec<GroupChange>, Vec<WorkAnswer>);

impl Logged {
    pub(super) fn new(is_enabled: bool) -> Self {
        Self {
            is_enabled,
            log: None,
            needed: None,
            active: Arc::default(),
            rows: 0,
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
        let frozen = self.frozen.iter().map(Arc::clone);
        Overlay::new(
            std::iter::once(Arc::clone(&self.active))
                .chain(frozen)
                .collect(),
        )
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

    /// Returns whether the file does not know the log yet.
    pub(super) fn is_new(&self) -> bool {
        self.log.is_some() && !self.is_needed()
    }

    /// Returns what a commit of every row records about the log.
    pub(super) fn mark(&self, is_durable: bool) -> LogMark {
        match &self.log {
            Some(log) if is_durable && self.is_new() => LogMark::Needed(log.epoch()),
            None if is_durable && self.needed.is_some() => LogMark::Done,
            _ => LogMark::Unchanged,
        }
    }

    /// Records that a durable commit of the file holds every row and, if it has one, the epoch of the log.
    pub(super) fn note_commit(&mut self, sequence: u64) {
        self.needed = self.log.as_ref().map(WriteLog::epoch);
        self.is_in_doubt = false;
        self.unsynced_since = None;
        if let Some(log) = &mut self.log {
            log.note_commit(sequence);
        }
        if !self.is_empty() {
            self.frozen = None;
            self.renew();
        }
    }

    /// Begins the next memtable in the other segment.
    fn renew(&mut self) -> Arc<Memtable> {
        self.rows = 0;
        self.since = None;
        if let Some(log) = &mut self.log {
            log.switch();
        }
        std::mem::take(&mut self.active)
    }

    /// Returns how long to wait until the memtable has to be applied, or until an apply may have ended.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        if self.applying.is_some() {
            return Some(APPLY_WAKE);
        }
        let left = |(since, most): (Option<Instant>, Duration)| {
            Some(most.saturating_sub(now.saturating_duration_since(since?)))
        };
        let due = [
            (self.since, APPLY_AFTER),
            (self.unsynced_since, FLUSH_AFTER),
        ];
        due.into_iter().filter_map(left).min()
    }

    fn is_due(since: Option<Instant>, most: Duration, now: Instant) -> bool {
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

impl Committer {
    /// Takes the result of an apply that has ended, and starts one that is due.
    pub(super) fn tend_log(&mut self) {
        let is_finished = |apply: &RunningApply| apply.is_finished();
        if self.logged.applying.as_ref().is_some_and(is_finished) {
            self.end_apply();
        }
        let now = self.disk_now();
        if Logged::is_due(self.logged.unsynced_since, FLUSH_AFTER, now)
            && let Err(failure) = self.sync_log()
        {
            self.give_up_log(&failure);
        }
        let is_due = Logged::is_due(self.logged.since, APPLY_AFTER, now);
        if is_due || self.logged.rows >= APPLY_ROWS {
            self.begin_apply();
        }
    }

    /// Writes the file until the log may be tried again.
    fn give_up_log(&mut self, failure: &FileError) {
        tracing::error!(
            file = %self.file.path.display(),
            reason = %failure,
            "the log of a shard cannot be written; its file is written instead"
        );
        self.logged.log = None;
        self.logged.unsynced_since = None;
        self.logged.is_in_doubt = true;
        self.logged.held_until = Some(self.file.disk.now() + RETRY_AFTER);
    }

    fn sync_log(&mut self) -> Result<(), FileError> {
        let Some(log) = &mut self.logged.log else {
            return Ok(());
        };
        let began = self.file.opener.now();
        guarded(|| log.sync())?;
        let waited = self.file.opener.now().saturating_duration_since(began);
        self.shard.counters.note_sync(waited);
        self.logged.unsynced_since = None;
        Ok(())
    }

    /// Answers work by the log, or returns it: it has to be committed to the file.
    pub(super) fn log_group(
        &mut self,
        work: Vec<QueuedWork>,
        now: Timestamp,
    ) -> Result<(), Vec<QueuedWork>> {
        if !self.is_loggable(&work) || !self.open_log() {
            return Err(work);
        }
        let is_full = |log: &WriteLog| !log.has_room();
        if self.logged.rows >= MEMTABLE_ROWS_MAX || self.logged.log.as_ref().is_some_and(is_full) {
            self.end_apply();
            self.begin_apply();
            if self.trouble.is_some() || self.logged.rows > 0 {
                return Err(work);
            }
        }
        let began = self.file.opener.now();
        let mut versions = self.versions;
        let Ok(Some((changes, answers))) = isolated(|| self.plan_group(&work, &mut versions, now))
        else {
            return Err(work);
        };
        self.versions = versions;
        let is_sync = work.iter().any(QueuedWork::is_sync);
        if let Err(failure) = self.append_group(&changes, is_sync) {
            self.give_up_log(&failure);
            return Err(work);
        }
        let took = self.file.opener.now().saturating_duration_since(began);
        self.show_group(changes);
        let counters = &self.shard.counters;
        counters.note_commit(&work, answers.len() as u64, took);
        answer_all(work, answers, Some(took));
        Ok(())
    }

    /// Returns whether the log can take a group.
    fn is_loggable(&self, work: &[QueuedWork]) -> bool {
        let is_well = self.logged.is_enabled
            && self.database.is_some()
            && self.trouble.is_none()
            && !self.is_behind
            && self.unflushed.since.is_none()
            && !self.logged.is_stalled()
            && !self.spared.is_any()
            && !self.file.disk.has_bad_ranges();
        let (mut mutations, mut bytes) = (0, 0);
        let mut fits = |work: &QueuedWork| {
            let size = work.size();
            mutations += size.mutations;
            bytes += size.bytes;
            matches!(work, QueuedWork::Write(write) if is_plain(write))
        };
        is_well
            && !work.is_empty()
            && work.iter().all(&mut fits)
            && mutations <= GROUP_MUTATIONS_MAX
            && bytes <= GROUP_BYTES_MAX
    }

    /// Creates the log if there is none. Returns whether the file knows it, and has room for the rows of a memtable.
    fn open_log(&mut self) -> bool {
        if self.logged.rows == 0 {
            let free = self.file.opener.free(&self.file.path);
            self.logged.has_room = free.is_none_or(|free| free >= ROOM_MIN);
        }
        if !self.logged.has_room {
            return false;
        }
        let is_held = |until: Instant| self.file.disk.now() < until;
        if self.logged.log.is_none()
            && self.logged.is_empty()
            && !self.logged.held_until.is_some_and(is_held)
        {
            match guarded(|| {
                WriteLog::create(&self.file.opener, &self.file.path, self.durable_sequence)
            }) {
                Ok(log) => self.logged.log = Some(log),
                Err(failure) => {
                    tracing::warn!(
                        file = %self.file.path.display(),
                        reason = %failure,
                        "the log of a shard cannot be created; its file is written instead"
                    );
                    self.logged.held_until = Some(self.file.disk.now() + RETRY_AFTER);
                }
            }
        }
        self.logged.is_needed()
    }

    /// Decides the mutations of a group. Returns `None` if a row that they need cannot be decoded, or refers to a large
    /// value, whose references the file counts.
    fn plan_group(
        &self,
        work: &[QueuedWork],
        versions: &mut VersionClock,
        now: Timestamp,
    ) -> Result<Option<Group>, FileError> {
        let writes: Vec<&WriteWork> = work.iter().filter_map(QueuedWork::as_write).collect();
        let mut plan = CommitPlan::of(&writes, &self.datasets.stamps);
        plan.need_all();
        let snapshot = self.shard.snapshot();
        let mut has_large = false;
        plan.read_bases(|key, is_counter| {
            snapshot.stored(key, |row| {
                has_large |= row.is_some_and(|row| row_codec::large(row).is_some());
                Ok(Base::of(key, row, is_counter))
            })
        })?;
        if plan.has_damage() || has_large {
            return Ok(None);
        }
        plan.decide(self.file.shard(), versions, now);
        let mut changes = Vec::with_capacity(writes.len());
        let answers = plan.apply(now, |effects| {
            for (key, effect) in effects {
                let row = match effect {
                    RowEffect::None => continue,
                    RowEffect::Remove => None,
                    RowEffect::Put(head, value) => {
                        let mut row = Vec::with_capacity(row_codec::encoded_len_max(value));
                        row_codec::append(&mut row, key, *head, value);
                        Some(row.into_boxed_slice())
                    }
                };
                changes.push(((*key).into(), row));
            }
            Ok::<_, FileError>(vec![None; effects.len()])
        })?;
        Ok(Some((
            changes,
            answers.into_iter().map(WorkAnswer::Write).collect(),
        )))
    }

    /// Appends the record of a group. If `is_sync`, the group is on the disk when this returns.
    fn append_group(&mut self, changes: &[GroupChange], is_sync: bool) -> Result<(), FileError> {
        // Versions are reserved once and for all groups that a power failure may take.
        let last = self.versions.last();
        let is_reserved = last <= self.durable_ceiling;
        let ceiling = if is_reserved {
            self.durable_ceiling
        } else {
            let reserve = if is_sync { 0 } else { RESERVED_VERSIONS };
            Version(last.0.saturating_add(reserve))
        };
        let is_sync = is_sync || !is_reserved;
        let progress = ShardProgress {
            sequence: self.progress.sequence + 1,
            version_ceiling: ceiling,
            believed: self.believed_time(),
            is_closed: false,
            needs_log: true,
            newest_stamp: self.datasets.stamps.newest(),
        };
        // Even if the append fails, its number is not used again.
        self.progress = progress;
        let Logged { log, record, .. } = &mut self.logged;
        let Some(log) = log else {
            return Err(FileError::Io("there is no log".to_owned()));
        };
        log.begin_record(record, &progress);
        for (key, row) in changes {
            add_change(record, key, row.as_deref());
        }
        guarded(|| log.append(record, progress.sequence))?;
        if is_sync {
            self.sync_log()?;
            self.durable_ceiling = progress.version_ceiling;
        } else {
            let now = self.disk_now();
            self.logged.unsynced_since.get_or_insert(now);
        }
        Ok(())
    }

    /// Makes readers see the changes of a group.
    fn show_group(&mut self, changes: Vec<GroupChange>) {
        let sequence = self.progress.sequence;
        let hashes: Vec<u64> = changes
            .iter()
            .map(|(key, _)| row_cache::hash_of(key))
            .collect();
        let now = self.disk_now();
        let logged = &mut self.logged;
        logged.rows += changes.len();
        if !changes.is_empty() {
            logged.since.get_or_insert(now);
        }
        for (key, row) in changes {
            logged.active.insert(sequence, key, row);
        }
        self.shard.show(&hashes, || logged.active.publish(sequence));
    }

    /// Freezes the memtable and starts to apply it, unless another one is being applied.
    fn begin_apply(&mut self) {
        let Some(database) = self.database.as_ref().map(Arc::clone) else {
            return;
        };
        let is_possible = self.logged.is_enabled && self.trouble.is_none();
        if !is_possible || self.logged.frozen.is_some() || self.logged.rows == 0 {
            return;
        }
        // A record in the other segment may say that these are on the disk.
        let is_synced = self.logged.log.as_ref().is_none_or(WriteLog::is_synced);
        if !is_synced && let Err(failure) = self.sync_log() {
            self.give_up_log(&failure);
        }
        let frozen = self.logged.renew();
        // Without a log the memtables get no further row.
        let log = self.logged.log.as_ref();
        let log_mark = log.map_or(LogMark::Done, |_| LogMark::Unchanged);
        let apply = Apply {
            shard: self.file.shard(),
            database,
            disk: Arc::clone(&self.file.disk),
            overlay: Overlay::new(vec![Arc::clone(&frozen)]),
            progress: ShardProgress {
                needs_log: log_mark.needs_log(true),
                ..self.progress
            },
            log_mark,
            fences: self.fences.clone(),
            datasets: self.datasets.without_stamps(),
            spared: self.spared.clone(),
            chores: self.chores(false),
            now: self.clock.wall(),
            next_upload_due: self.next_upload_due,
            may_pack: !self.file.disk.has_bad_ranges(),
        };
        self.logged.frozen = Some(frozen);
        let snapshot = self.shard.snapshot().below(self.logged.overlay());
        self.shard.publish(snapshot, Some(&[]));
        self.file.disk.reserve.set_open(false);
        match apply.start(self.file.opener.runner()) {
            Ok(apply) => self.logged.applying = Some(apply),
            Err(failure) => self.recover(Vec::new(), FailedCommit::before_commit(failure)),
        }
    }

    /// Waits for the apply under way, if there is one, and takes its result.
    pub(super) fn end_apply(&mut self) {
        if let Some(failed) = self.take_applied() {
            self.recover(Vec::new(), failed);
        }
    }

    /// Like [`Self::end_apply`], but returns its failure.
    pub(super) fn take_applied(&mut self) -> Option<FailedCommit> {
        let Applied {
            progress,
            chores,
            now,
            outcome,
        } = self.logged.applying.take()?.finish();
        self.file.disk.reserve.set_open(true);
        let (changes, mut snapshot, synced) = match outcome {
            Ok(applied) => applied,
            Err(failed) => return Some(failed),
        };
        self.shard.counters.note_sync(synced);
        self.durable_sequence = progress.sequence;
        self.logged.frozen = None;
        if !progress.needs_log {
            self.logged.needed = None;
        }
        snapshot.fence(&self.fences);
        let snapshot = snapshot.below(self.logged.overlay());
        self.shard.publish(snapshot, Some(&changes.changed));
        let (swept, purged) = (&changes.swept, &changes.purged);
        let is_upload_due = swept.next_upload_due != self.next_upload_due;
        self.note_freed(!changes.changed.is_empty() || is_upload_due);
        self.note_next_expiry(chores, swept, now);
        self.fences.note_purged(&purged.done);
        self.datasets.note_reclaimed(purged);
        self.count_commit(&[], 0, (swept, purged), changes.sizes);
        None
    }
}

/// Returns whether a write needs only the rows of its keys.
fn is_plain(write: &WriteWork) -> bool {
    write.run.is_none()
        && write.idempotency.is_none()
        && write.group.is_none()
        && write.ops.iter().all(|op| {
            op.condition != Condition::Unwritten
                && match &op.change {
                    Change::Put { value, .. } => value.form != StoredForm::Large,
                    Change::Delete | Change::Increment { .. } => true,
                    Change::Upload(_) => false,
                }
        })
}
