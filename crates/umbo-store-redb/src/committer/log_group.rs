//! A group of small writes that is answered by the log: which work it may have, its plan, its record, and its rows for
//! readers.

use std::collections::BTreeMap;
use std::time::Instant;

use umbo_store::{Change, Idempotency};
use umbo_types::{StoredForm, Timestamp, Version, VersionClock};

use super::Committer;
use crate::bad_read::isolated;
use crate::committer::idempotency::StoredRecord;
use crate::committer::limits::RETRY_AFTER;
use crate::committer::logged::Logged;
use crate::committer::plan::{Base, CommitPlan, RowEffect};
use crate::file_error::{FileError, guarded};
use crate::memtable::ChangedRow;
use crate::row_cache;
use crate::row_codec;
use crate::sizes::{SizeChange, SizeChanges};
use crate::snapshot::ShardSnapshot;
use crate::tables::ShardProgress;
use crate::work::{Op, QueuedWork, WorkAnswer, WriteWork, answer_all};
use crate::write_log::{RECORD_LEN_MAX, WriteLog, add_change};

/// Most mutations of a group that the log takes. More are committed to the file at once, which costs each little.
const GROUP_MUTATIONS_MAX: usize = 1_024;
/// Most bytes of keys and values of such a group. With the heads of its rows it fits into a record.
const GROUP_BYTES_MAX: usize = RECORD_LEN_MAX / 2;
/// Most bytes of the key and the value of a row in the log. A larger one is more than the pages that a commit to the
/// file writes for a row (14 KiB), and would be in memory and be written twice.
const ROW_BYTES_MAX: usize = 16 << 10;
/// Least free room on the disk when a memtable gets its first row: for two segments, and for the pages that its rows
/// change in the file. A row that was answered must find room there.
const ROOM_MIN: u64 = 128 << 20;

/// Versions reserved for asynchronous groups, in microseconds of the version clock: a version that was assigned is never
/// assigned again, even if its row was lost in a power failure.
const RESERVED_VERSIONS: u64 = 1_000_000;

/// A change of a group, ready for the memtable.
type GroupChange = (Box<[u8]>, ChangedRow);

/// A group that has been decided.
struct PlannedGroup {
    changes: Vec<GroupChange>,
    sizes: SizeChanges,
    answers: Vec<WorkAnswer>,
}

impl Committer {
    /// Writes the file until the log may be tried again.
    pub(super) fn give_up_log(&mut self, failure: &FileError) {
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

    pub(super) fn sync_log(&mut self) -> Result<(), FileError> {
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
        if self.logged.is_full() {
            self.end_apply();
            self.begin_apply();
            if self.trouble.is_some() || self.logged.rows > 0 {
                return Err(work);
            }
        }
        let began = self.file.opener.now();
        let mut versions = self.versions;
        let planned = isolated(|| self.plan_group(&work, &mut versions, now));
        let Ok(Some(planned)) = planned else {
            return Err(work);
        };
        let PlannedGroup {
            changes,
            sizes,
            answers,
        } = planned;
        self.versions = versions;
        // A group that changes nothing needs no record.
        if !changes.is_empty() {
            let is_sync = work.iter().any(QueuedWork::is_sync);
            if let Err(failure) = self.append_group(&changes, is_sync) {
                self.give_up_log(&failure);
                return Err(work);
            }
            self.show_group(changes, &sizes);
        }
        let took = self.file.opener.now().saturating_duration_since(began);
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
            && !self.logged.is_stalled()
            && !self.spared.is_any()
            // Each commit of the file reclaims some.
            && self
                .next_upload_due
                .is_none_or(|at| at > self.believed_time())
            && !self.file.disk.has_bad_ranges();
        let (mut mutations, mut bytes) = (0, 0);
        let mut fits = |work: &QueuedWork| {
            let size = work.size();
            mutations += size.mutations;
            bytes += size.bytes + record_bytes(work);
            matches!(work, QueuedWork::Write(write) if is_plain(write))
        };
        is_well
            && !work.is_empty()
            && work.iter().all(&mut fits)
            && mutations <= GROUP_MUTATIONS_MAX
            && bytes <= GROUP_BYTES_MAX
    }

    /// Creates a missing log. Returns whether the file knows it, and has room for the rows of a memtable.
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
    ) -> Result<Option<PlannedGroup>, FileError> {
        let writes: Vec<&WriteWork> = work.iter().filter_map(QueuedWork::as_write).collect();
        let mut plan = CommitPlan::of(&writes, &self.datasets.stamps);
        plan.need_all();
        let snapshot = self.shard.snapshot();
        let replaced_records = self.read_records(&snapshot, &mut plan, now)?;
        let mut has_large = false;
        let mut replaced = Vec::with_capacity(writes.len());
        plan.read_bases(|key, is_counter| {
            snapshot.stored(key, |row| {
                has_large |= row.is_some_and(|row| row_codec::large(row).is_some());
                replaced.push(row.map(|row| SizeChange::of(key, row)));
                Ok(Base::of(key, row, is_counter))
            })
        })?;
        if plan.has_damage() || has_large {
            return Ok(None);
        }
        plan.decide(self.file.shard(), versions, now);
        let mut changes = Vec::with_capacity(writes.len());
        let mut sizes = SizeChanges::default();
        let answers = plan.apply(now, |effects| {
            for ((key, effect), replaced) in effects.iter().zip(replaced) {
                let row = match effect {
                    RowEffect::None => continue,
                    RowEffect::Remove => None,
                    RowEffect::Put(head, value) => {
                        let mut row = Vec::with_capacity(row_codec::encoded_len_max(value));
                        row_codec::append(&mut row, key, *head, value);
                        Some(row.into_boxed_slice())
                    }
                };
                let mut change = row
                    .as_ref()
                    .map(|row| SizeChange::of(key, row))
                    .unwrap_or_default();
                change += -replaced.unwrap_or_default();
                sizes.count(key, change);
                changes.push(((*key).into(), row));
            }
            Ok::<_, FileError>(vec![None; effects.len()])
        })?;
        for record in plan.records.changed() {
            let mut row = Vec::new();
            row_codec::encode(&mut row, record.key, record.head, &record.value);
            sizes.add(record.key, &row);
            let replaced = replaced_records.get(record.key).copied();
            sizes.count(record.key, -replaced.unwrap_or_default());
            changes.push((record.key.into(), Some(row.into_boxed_slice())));
        }
        Ok(Some(PlannedGroup {
            changes,
            sizes,
            answers: answers.into_iter().map(WorkAnswer::Write).collect(),
        }))
    }

    /// Reads the idempotency records of a group. Returns the sizes of the stored ones, by their keys.
    fn read_records(
        &self,
        snapshot: &ShardSnapshot,
        plan: &mut CommitPlan<'_>,
        now: Timestamp,
    ) -> Result<BTreeMap<Vec<u8>, SizeChange>, FileError> {
        let mut sizes = BTreeMap::new();
        plan.records.read(
            self.file.idempotency_bytes_max,
            |key| {
                snapshot.stored_record(key, |row| {
                    if let Some(row) = row {
                        sizes.insert(key.to_vec(), SizeChange::of(key, row));
                    }
                    Ok(StoredRecord::read(key, row, now))
                })
            },
            |namespace| snapshot.idempotency_bytes(namespace, &self.logged.all_sizes()),
        )?;
        Ok(sizes)
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
    fn show_group(&mut self, changes: Vec<GroupChange>, sizes: &SizeChanges) {
        let sequence = self.progress.sequence;
        let hashes: Vec<u64> = changes
            .iter()
            .map(|(key, _)| row_cache::hash_of(key))
            .collect();
        let now = self.disk_now();
        let logged = &mut self.logged;
        logged.rows += changes.len();
        logged.since.get_or_insert(now);
        for (key, row) in changes {
            logged.bytes += key.len() + row.as_ref().map_or(0, |row| row.len());
            logged.active.insert(sequence, key, row);
        }
        logged.last = sequence;
        logged.sizes.merge(sizes);
        self.shard.change_sizes(|all| sizes.add_to(all));
        let snapshot = self.shard.snapshot().below(logged.overlay());
        self.shard.publish(snapshot, Some(&hashes));
    }
}

/// Returns the bytes that the idempotency records of some work take at most.
fn record_bytes(work: &QueuedWork) -> usize {
    let keyed = work.as_write().filter(|write| write.idempotency.is_some());
    let ops = keyed.map_or(&[][..], |write| &write.ops);
    let of_op = |op: &Op| Idempotency::charged_bytes(op.key.len() as u64, 1) as usize;
    ops.iter().map(of_op).sum()
}

/// Returns whether a write needs only the rows and the idempotency records of its keys.
fn is_plain(write: &WriteWork) -> bool {
    write.run.is_none()
        && write.group.is_none()
        && write.ops.iter().all(|op| {
            !op.condition.is_unwritten()
                && match &op.change {
                    Change::Put { value, .. } => {
                        value.form != StoredForm::Large
                            && op.key.len() + value.bytes.len() <= ROW_BYTES_MAX
                    }
                    Change::Delete | Change::Increment { .. } => true,
                    Change::Upload(_) => false,
                }
        })
}
