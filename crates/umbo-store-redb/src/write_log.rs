//! The log of a shard: groups of changed rows that are on the disk before the shard's file has them.
//!
//! Two segments take turns. While the rows of one are committed to the shard's file, the other one grows. A record is
//! one group. It begins on a page that no other record touches, so that no write endangers a record that was
//! acknowledged. Each segment begins with a record without changes, from before the file needs the log, so that a
//! segment that was emptied, or that belongs to another log, is told from one without groups. Owns both files and the
//! format of records: `magic u32 | checksum u64 | length u32 | epoch u64 | sequence u64 | synced u64 |
//! version ceiling u64 | believed time u64 | newest stamp u64 | changes`, where `synced` is the number of the last record
//! that was on the disk before this one was written, and a change is `key length u32 | row length u32 | key | row`, all
//! big endian. The row length of a removal is [`REMOVED`].
//!
//! The invariant: a record that was on the disk is read again or reported. A power failure may take records that were
//! not synced, and then those after them are left out; a missing record that a later one calls synced is damage, and
//! the shard does not open.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::StorageBackend;
use umbo_types::{Timestamp, Version};
use xxhash_rust::xxh3::xxh3_64;

use crate::file_error::{FileError, guarded};
use crate::memtable::ChangedRow;
use crate::opener::Opener;
use crate::replaced_file::sync_folder;
use crate::tables::ShardProgress;

/// Name of the record with the epoch of the log, in a file that needs its log to be complete.
pub(crate) const META_LOG: &str = "write-log";
/// The same for a log of an earlier version, whose segments begin with groups.
pub(crate) const META_LOG_OF_ROWS: &str = "log";

const MAGIC: u32 = 0x756d_6c67;
const HEADER_LEN: usize = 64;
/// Beginning of the part that the checksum covers.
const CHECKED_FROM: usize = 12;
/// Row length of a removal.
const REMOVED: u32 = u32::MAX;
/// Each record begins at a multiple of a page, the unit of writes to files.
const PAGE_LEN: usize = 4_096;
/// A segment grows by this many bytes at a time. A write within allocated bytes needs no update of the file system's
/// own records to be durable.
const GROWN_BY: usize = 1 << 20;
/// Most bytes of a segment: 4,096 groups of one small row.
const SEGMENT_LEN_MAX: usize = 16 << 20;
/// Most bytes of a record; larger groups are committed to the file at once.
pub(crate) const RECORD_LEN_MAX: usize = 1 << 20;

/// What a commit of the file records about its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogMark {
    /// Nothing.
    Unchanged,
    /// From now on, the file needs the log of this epoch to be complete.
    Needed(u64),
    /// The file has every row, and needs no log.
    Done,
}

impl LogMark {
    /// Returns whether the file needs a log then, if it does so far.
    pub(crate) const fn needs_log(self, so_far: bool) -> bool {
        match self {
            Self::Unchanged => so_far,
            Self::Needed(_) => true,
            Self::Done => false,
        }
    }

    /// Records it.
    pub(crate) fn write(
        self,
        meta: &mut redb::Table<'_, &'static str, &'static [u8]>,
    ) -> Result<(), FileError> {
        match self {
            Self::Unchanged => {}
            Self::Needed(epoch) => {
                meta.insert(META_LOG, &epoch.to_be_bytes()[..])?;
            }
            Self::Done => {
                meta.remove(META_LOG)?;
                meta.remove(META_LOG_OF_ROWS)?;
            }
        }
        Ok(())
    }
}

/// The log of a shard, open for appending.
pub(crate) struct WriteLog {
    segments: [Segment; 2],
    current: usize,
    epoch: u64,
    /// Number of the last record.
    last: u64,
    /// Number of the last record that is on the disk.
    synced: u64,
}

struct Segment {
    file: Box<dyn StorageBackend>,
    allocated: usize,
    /// Where the next record begins.
    end: usize,
}

/// A change of a row, by its physical key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedChange {
    pub(crate) key: Box<[u8]>,
    /// Encoded row, or `None` for a removal.
    pub(crate) row: ChangedRow,
}

/// A group of changes in the log.
#[derive(Debug, PartialEq)]
pub(crate) struct LogRecord {
    /// Number of the last record that was on the disk before.
    synced: u64,
    /// What the progress record of the file would say after the group.
    pub(crate) progress: ShardProgress,
    /// Its changes, each key once.
    pub(crate) changes: Vec<LoggedChange>,
}

impl fmt::Debug for WriteLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut log = f.debug_struct("WriteLog");
        log.field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// Returns the files of the log of a shard's file.
pub(crate) fn segment_paths(shard: &Path) -> [PathBuf; 2] {
    [shard.with_extension("log0"), shard.with_extension("log1")]
}

impl WriteLog {
    /// Creates an empty log after a commit of the shard's file, and replaces an earlier log.
    pub(crate) fn create(
        opener: &Arc<dyn Opener>,
        shard: &Path,
        commit: u64,
    ) -> Result<Self, FileError> {
        let mut epoch = [0; 8];
        getrandom::fill(&mut epoch).map_err(|error| FileError::Io(error.to_string()))?;
        let epoch = u64::from_be_bytes(epoch);
        let mut first = Vec::with_capacity(PAGE_LEN);
        write_header(&mut first, [epoch, commit, commit, 0, 0, 0]);
        end_record(&mut first);
        first.resize(PAGE_LEN, 0);
        let segment = |path: &PathBuf| {
            opener.create(path)?;
            let file = opener.open(path)?;
            file.set_len(PAGE_LEN as u64)?;
            file.write(0, &first)?;
            file.sync_data()?;
            Ok::<_, FileError>(Segment {
                file,
                allocated: PAGE_LEN,
                end: PAGE_LEN,
            })
        };
        let [first, second] = segment_paths(shard);
        let segments = [segment(&first)?, segment(&second)?];
        if let Some(folder) = shard.parent() {
            sync_folder(folder)?;
        }
        Ok(Self {
            segments,
            current: 0,
            epoch,
            last: commit,
            synced: commit,
        })
    }

    /// Returns the number that marks the records of this log.
    pub(crate) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns whether every record is on the disk.
    pub(crate) const fn is_synced(&self) -> bool {
        self.synced == self.last
    }

    /// Returns whether the current segment has room for a record of any length.
    pub(crate) const fn has_room(&self) -> bool {
        self.segments[self.current].end + RECORD_LEN_MAX + PAGE_LEN <= SEGMENT_LEN_MAX
    }

    /// Goes on in the other segment. All records are on the disk, and the shard's file has the rows of that segment.
    pub(crate) const fn switch(&mut self) {
        self.current = 1 - self.current;
        self.segments[self.current].end = PAGE_LEN;
    }

    /// Records that a durable commit of the shard's file has the rows of all records.
    pub(crate) const fn note_commit(&mut self, commit: u64) {
        self.last = commit;
        self.synced = commit;
    }

    /// Begins the next record.
    pub(crate) fn begin_record(&self, record: &mut Vec<u8>, progress: &ShardProgress) {
        let numbers = [
            self.epoch,
            progress.sequence,
            self.synced,
            progress.version_ceiling.0,
            progress.believed.0,
            progress.newest_stamp.0,
        ];
        write_header(record, numbers);
    }

    /// Appends the record with this number. It may be lost until the log is synced.
    pub(crate) fn append(&mut self, record: &mut Vec<u8>, sequence: u64) -> Result<(), FileError> {
        end_record(record);
        record.resize(record.len().next_multiple_of(PAGE_LEN), 0);
        let segment = &mut self.segments[self.current];
        let end = segment.end + record.len();
        if end > segment.allocated {
            let grown = end.next_multiple_of(GROWN_BY);
            segment.file.set_len(grown as u64)?;
            let zeros = vec![0; grown - end];
            segment.file.write(end as u64, &zeros)?;
            segment.allocated = grown;
        }
        segment.file.write(segment.end as u64, record)?;
        segment.end = end;
        self.last = sequence;
        Ok(())
    }

    /// Makes every record durable.
    pub(crate) fn sync(&mut self) -> Result<(), FileError> {
        self.segments[self.current].file.sync_data()?;
        self.synced = self.last;
        Ok(())
    }
}

/// Begins a record with the numbers of its header.
fn write_header(record: &mut Vec<u8>, numbers: [u64; 6]) {
    record.clear();
    record.extend_from_slice(&MAGIC.to_be_bytes());
    record.extend_from_slice(&[0; 8 + 4]);
    for number in numbers {
        record.extend_from_slice(&number.to_be_bytes());
    }
}

/// Adds a change to a record.
pub(crate) fn add_change(record: &mut Vec<u8>, key: &[u8], row: Option<&[u8]>) {
    record.extend_from_slice(&(key.len() as u32).to_be_bytes());
    let row_len = row.map_or(REMOVED, |row| row.len() as u32);
    record.extend_from_slice(&row_len.to_be_bytes());
    record.extend_from_slice(key);
    record.extend_from_slice(row.unwrap_or_default());
}

fn end_record(record: &mut [u8]) {
    let len = record.len() as u32;
    record[CHECKED_FROM..CHECKED_FROM + 4].copy_from_slice(&len.to_be_bytes());
    let checksum = xxh3_64(&record[CHECKED_FROM..]);
    record[4..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
}

/// Decodes the record that begins here. Returns it with its length, or `None` if there is no whole one of this epoch.
fn decode(bytes: &[u8], epoch: u64) -> Option<(LogRecord, usize)> {
    let header = bytes.get(..HEADER_LEN)?;
    let number = |at: usize| {
        let number = header[at..at + 8].try_into();
        u64::from_be_bytes(number.unwrap_or_default())
    };
    if header[..4] != MAGIC.to_be_bytes() || number(16) != epoch {
        return None;
    }
    let len = u32::from_be_bytes(header[CHECKED_FROM..16].try_into().ok()?) as usize;
    let record = bytes.get(..len).filter(|_| len >= HEADER_LEN)?;
    if xxh3_64(&record[CHECKED_FROM..]) != number(4) {
        return None;
    }
    let mut changes = Vec::new();
    let mut rest = &record[HEADER_LEN..];
    while !rest.is_empty() {
        let (lens, after) = rest.split_first_chunk::<8>()?;
        let key_len = u32::from_be_bytes(lens[..4].try_into().ok()?) as usize;
        let row_len = u32::from_be_bytes(lens[4..].try_into().ok()?);
        let (key, after) = after.split_at_checked(key_len)?;
        let row = (row_len != REMOVED).then_some(row_len as usize);
        let (row_bytes, after) = after.split_at_checked(row.unwrap_or(0))?;
        changes.push(LoggedChange {
            key: key.into(),
            row: row.map(|_| row_bytes.into()),
        });
        rest = after;
    }
    let progress = ShardProgress {
        sequence: number(24),
        version_ceiling: Version(number(40)),
        believed: Timestamp(number(48)),
        is_closed: false,
        needs_log: true,
        newest_stamp: Version(number(56)),
    };
    let record = LogRecord {
        synced: number(32),
        progress,
        changes,
    };
    Some((record, len))
}

/// The log that a file needs to be complete.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NeededLog {
    pub(crate) epoch: u64,
    /// Whether its segments begin with a record from before the first group.
    pub(crate) has_first_records: bool,
}

/// What to do about acknowledged groups that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LostGroups {
    Refuse,
    Drop,
}

/// Reads the records after a commit of the shard's file, in order.
pub(crate) fn read_records(
    opener: &Arc<dyn Opener>,
    shard: &Path,
    (log, after): (NeededLog, u64),
    lost_groups: LostGroups,
) -> Result<Vec<LogRecord>, FileError> {
    let mut found = BTreeMap::new();
    for path in segment_paths(shard) {
        let path_name = path.display();
        let bytes = match read_segment(opener, &path) {
            Ok(bytes) => bytes,
            Err(failure) if lost_groups == LostGroups::Drop => {
                tracing::warn!(file = %path_name, reason = %failure, "a log cannot be read, and is left out");
                continue;
            }
            Err(
                FileError::Missing(reason) | FileError::Damaged(reason) | FileError::Io(reason),
            ) => {
                return Err(FileError::Io(format!(
                    "its log {path_name} cannot be read: {reason}"
                )));
            }
            Err(failure) => return Err(failure),
        };
        if log.has_first_records && decode(&bytes, log.epoch).is_none() {
            let reason = format!(
                "{path_name} is not a log of this file, or its beginning is lost: groups that it had may be missing"
            );
            if lost_groups == LostGroups::Refuse {
                return Err(FileError::Damaged(reason));
            }
            tracing::warn!(%reason, "the rest of a log is read");
        }
        let mut at = 0;
        while at < bytes.len() {
            let Some((record, len)) = decode(&bytes[at..], log.epoch) else {
                at += PAGE_LEN;
                continue;
            };
            if record.progress.sequence > after {
                found.insert(record.progress.sequence, record);
            }
            at += len.next_multiple_of(PAGE_LEN);
        }
    }
    let (records, lost) = in_order(found, after);
    if lost.is_empty() {
        return Ok(records);
    }
    let group = |missing: &RangeInclusive<u64>| match (missing.start(), missing.end()) {
        (first, end) if first == end => first.to_string(),
        (first, end) => format!("{first} to {end}"),
    };
    let missing: Vec<String> = lost.iter().map(group).collect();
    let files = segment_paths(shard).map(|path| path.display().to_string());
    let reason = format!(
        "group {} of {} is missing or cannot be read, and was acknowledged; {} other groups are there",
        missing.join(", "),
        files.join(" or "),
        records.len()
    );
    if lost_groups == LostGroups::Refuse {
        return Err(FileError::Damaged(format!("its log is damaged: {reason}")));
    }
    tracing::warn!(file = %shard.display(), %reason, "groups of a log are dropped");
    Ok(records)
}

fn read_segment(opener: &Arc<dyn Opener>, path: &Path) -> Result<Vec<u8>, FileError> {
    guarded(|| {
        let file = opener.open(path)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read(0, &mut bytes)?;
        file.close()?;
        Ok(bytes)
    })
}

/// Orders the records after a commit, up to a gap that a power failure has left. Returns the numbers of
/// missing acknowledged records, too.
fn in_order(
    found: BTreeMap<u64, LogRecord>,
    after: u64,
) -> (Vec<LogRecord>, Vec<RangeInclusive<u64>>) {
    let synced = found.values().map(|record| record.synced).max();
    let synced = synced.unwrap_or(after);
    let (mut records, mut lost) = (Vec::with_capacity(found.len()), Vec::new());
    let mut next = after + 1;
    for (number, record) in found {
        if number > next && number - 1 > synced {
            break;
        }
        if number > next {
            lost.push(next..=number - 1);
        }
        records.push(record);
        next = number + 1;
    }
    if next <= synced {
        lost.push(next..=synced);
    }
    (records, lost)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt as _;

    use proptest::prelude::*;

    use super::*;
    use crate::plain_files::PlainFiles;

    struct Rig {
        folder: tempfile::TempDir,
        opener: Arc<dyn Opener>,
        log: WriteLog,
        /// Segment and beginning of each record.
        places: Vec<(usize, usize)>,
    }

    impl Rig {
        fn after(commit: u64) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let opener: Arc<dyn Opener> = Arc::new(PlainFiles);
            let log = WriteLog::create(&opener, &folder.path().join("shard.redb"), commit);
            Self {
                log: log.unwrap(),
                folder,
                opener,
                places: Vec::new(),
            }
        }

        fn append(&mut self, sequence: u64, rows: usize) {
            let mut record = Vec::new();
            self.log.begin_record(&mut record, &progress(sequence));
            for change in changes(sequence, rows) {
                add_change(&mut record, &change.key, change.row.as_deref());
            }
            let current = self.log.current;
            self.places.push((current, self.log.segments[current].end));
            self.log.append(&mut record, sequence).unwrap();
        }

        fn path(&self, segment: usize) -> PathBuf {
            segment_paths(&self.folder.path().join("shard.redb"))[segment].clone()
        }

        /// Flips a bit of the record with this index.
        fn damage(&self, index: usize, at: usize) {
            let (segment, begins) = self.places[index];
            let file = File::options()
                .read(true)
                .write(true)
                .open(self.path(segment))
                .unwrap();
            let mut byte = [0];
            file.read_exact_at(&mut byte, (begins + at) as u64).unwrap();
            file.write_all_at(&[byte[0] ^ 1], (begins + at) as u64)
                .unwrap();
        }

        fn read(self, after: u64) -> Result<Vec<LogRecord>, FileError> {
            self.read_as(after, LostGroups::Refuse)
        }

        fn read_as(self, after: u64, lost_groups: LostGroups) -> Result<Vec<LogRecord>, FileError> {
            self.read_log(true, after, lost_groups)
        }

        fn read_log(
            self,
            has_first_records: bool,
            after: u64,
            lost_groups: LostGroups,
        ) -> Result<Vec<LogRecord>, FileError> {
            let log = NeededLog {
                epoch: self.log.epoch(),
                has_first_records,
            };
            drop(self.log);
            let shard = self.folder.path().join("shard.redb");
            read_records(&self.opener, &shard, (log, after), lost_groups)
        }
    }

    fn progress(sequence: u64) -> ShardProgress {
        ShardProgress {
            sequence,
            version_ceiling: Version(sequence * 7),
            believed: Timestamp(sequence * 11),
            is_closed: false,
            needs_log: true,
            newest_stamp: Version(sequence * 13),
        }
    }

    fn changes(sequence: u64, rows: usize) -> Vec<LoggedChange> {
        let change = |row: usize| LoggedChange {
            key: format!("{sequence}-{row}").into_bytes().into(),
            row: (!row.is_multiple_of(3)).then(|| vec![row as u8; row * 100].into()),
        };
        (0..rows).map(change).collect()
    }

    fn numbers(records: &[LogRecord]) -> Vec<u64> {
        records
            .iter()
            .map(|record| record.progress.sequence)
            .collect()
    }

    #[test]
    fn records_come_back_from_both_segments() {
        let mut log = Rig::after(4);
        for (sequence, rows) in (5..12).zip([0, 1, 40, 3, 1_000, 2, 1]) {
            log.append(sequence, rows);
            log.log.sync().unwrap();
            if sequence == 8 {
                log.log.switch();
            }
        }
        let read = log.read(5).unwrap();
        assert_eq!(numbers(&read), [6, 7, 8, 9, 10, 11]);
        for (record, rows) in read.iter().zip([1, 40, 3, 1_000, 2, 1]) {
            let sequence = record.progress.sequence;
            assert_eq!(record.progress, progress(sequence));
            assert_eq!(record.changes, changes(sequence, rows));
            assert_eq!(record.synced, sequence - 1);
        }
    }

    #[test]
    fn a_segment_that_is_written_again_keeps_nothing_of_before() {
        let mut log = Rig::after(0);
        for sequence in 1..=6 {
            log.append(sequence, 1);
            log.log.sync().unwrap();
        }
        // The file has them.
        log.log.switch();
        log.log.switch();
        log.append(7, 1);
        assert_eq!(numbers(&log.read(6).unwrap()), [7]);
    }

    #[test]
    fn a_torn_last_record_is_cut() {
        for at in [0, 5, 20, 70, 130] {
            let mut log = Rig::after(0);
            for sequence in 1..=3 {
                log.append(sequence, 2);
                if sequence < 3 {
                    log.log.sync().unwrap();
                }
            }
            log.damage(2, at);
            assert_eq!(numbers(&log.read(0).unwrap()), [1, 2], "{at}");
        }
    }

    #[test]
    fn lost_groups_alone_are_dropped_if_asked() {
        for (damaged, kept) in [
            (&[1_usize, 2][..], &[1_u64, 4, 5][..]),
            (&[0], &[2, 3, 4, 5]),
            (&[3], &[1, 2, 3, 5]),
            // No later record says that the last one was synced.
            (&[1, 4], &[1, 3, 4]),
        ] {
            let filled = || {
                let mut log = Rig::after(0);
                for sequence in 1..=5 {
                    log.append(sequence, 2);
                    log.log.sync().unwrap();
                }
                for &index in damaged {
                    log.damage(index, 70);
                }
                log
            };
            let refused = filled().read(0).unwrap_err().to_string();
            let others = format!("{} other groups", kept.len());
            assert!(refused.contains(&others), "{refused}");
            let read = filled().read_as(0, LostGroups::Drop).unwrap();
            assert_eq!(numbers(&read), kept);
        }
    }

    #[test]
    fn damage_before_a_later_record_is_refused() {
        for (damaged, at) in [(0, 0), (1, 5), (1, 70)] {
            let mut log = Rig::after(0);
            for sequence in 1..=3 {
                log.append(sequence, 2);
                log.log.sync().unwrap();
            }
            log.damage(damaged, at);
            let refused = log.read(0).unwrap_err().to_string();
            let number = damaged + 1;
            assert!(refused.contains(&format!("group {number} of")), "{refused}");
        }
    }

    /// Of three records that were not synced, a power failure has taken the second.
    #[test]
    fn records_after_a_lost_one_are_left_out() {
        let mut log = Rig::after(0);
        log.append(1, 1);
        log.log.sync().unwrap();
        for sequence in 2..=4 {
            log.append(sequence, 1);
        }
        log.damage(2, 70);
        assert_eq!(numbers(&log.read(0).unwrap()), [1, 2]);
    }

    #[test]
    fn a_log_that_is_missing_is_named() {
        let mut log = Rig::after(0);
        log.append(1, 1);
        let path = log.path(1);
        fs::remove_file(&path).unwrap();
        let missing = log.read(0).unwrap_err().to_string();
        assert!(missing.contains(&path.display().to_string()), "{missing}");
    }

    #[test]
    fn a_segment_of_another_log_is_refused() {
        for segment in [0, 1] {
            let (log, other) = (Rig::after(0), Rig::after(0));
            fs::copy(other.path(segment), log.path(segment)).unwrap();
            let path = log.path(segment).display().to_string();
            let refused = log.read(0).unwrap_err().to_string();
            assert!(
                refused.contains(&format!("{path} is not a log of this file")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_segment_that_was_emptied_is_refused_and_the_other_one_read_if_asked() {
        let filled = || {
            let mut log = Rig::after(0);
            log.append(1, 2);
            log.log.sync().unwrap();
            File::create(log.path(1)).unwrap();
            log
        };
        let refused = filled().read(0).unwrap_err().to_string();
        assert!(refused.contains("its beginning is lost"), "{refused}");
        let read = filled().read_as(0, LostGroups::Drop).unwrap();
        assert_eq!(numbers(&read), [1]);
    }

    #[test]
    fn a_log_of_an_earlier_version_is_read() {
        let mut log = Rig::after(0);
        log.append(1, 2);
        log.append(2, 2);
        let bytes = fs::read(log.path(0)).unwrap();
        fs::write(log.path(0), &bytes[PAGE_LEN..]).unwrap();
        fs::write(log.path(1), []).unwrap();
        let read = log.read_log(false, 0, LostGroups::Refuse).unwrap();
        assert_eq!(numbers(&read), [1, 2]);
    }

    #[test]
    fn a_log_without_groups_is_read() {
        assert_eq!(Rig::after(3).read(3).unwrap(), []);
    }

    proptest! {
        #[test]
        fn hostile_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), is_checked: bool) {
            let mut bytes = bytes;
            if is_checked && bytes.len() >= HEADER_LEN {
                bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
                end_record(&mut bytes);
                bytes[16..24].fill(0);
                let checksum = xxh3_64(&bytes[CHECKED_FROM..]);
                bytes[4..CHECKED_FROM].copy_from_slice(&checksum.to_be_bytes());
            }
            let _ = decode(&bytes, 0);
        }
    }
}
