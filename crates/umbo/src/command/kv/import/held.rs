//! Rows that wait for a shard that is away, in files beside the input, while the rows of other shards are
//! written.
//!
//! A shard is held from the first row that it could not take until all rows that wait for it were sent. While it
//! is held, a later row of a partition that has rows here joins them, so that rows of one key keep their order.
//! Which partitions those are is kept as hashes, [`PARTITIONS_MAX`] at most, because only a server knows which
//! shard a partition belongs to. From time to time the first row that waits is sent on trial; once it is
//! answered, the reader sends the others.
//!
//! Rows that an import had not sent when it was stopped are kept here too ([`REST`]), until it is continued.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::io::{self, BufRead, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::failed::LineFailure;
use super::line::{self, LineKind};
use crate::cli_error::CliError;
use crate::command::kv::file_name::with_suffix;

/// Most partitions whose rows wait, about 40 MiB of hashes. Beyond that nothing more is sent until a shard is
/// back.
pub(super) const PARTITIONS_MAX: usize = 2 << 20;
/// Stands for the shard of rows that were not sent at all.
pub(super) const REST: u32 = u32::MAX;
/// Longest record: a line of the longest request, and its number.
const RECORD_LEN_MAX: u64 = 17 << 20;

/// Rows that wait.
#[derive(Debug)]
pub(super) struct HeldShards {
    input: PathBuf,
    files_made: u32,
    shards: BTreeMap<u32, HeldShard>,
    partitions: HashMap<u64, u32>,
}

#[derive(Debug)]
struct HeldShard {
    state: HeldState,
    file: HeldFile,
    /// When the first row is sent on trial again.
    trial_at: Instant,
    reason: LineFailure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldState {
    /// The shard is away.
    Away,
    /// The shard has answered; the reader sends the rows next.
    Back,
    /// The reader sends the rows; those that fail again begin a new file.
    Releasing,
}

/// A file of rows that wait, each with its line number before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeldPart {
    shard: u32,
    path: PathBuf,
    /// Where its first row begins.
    from: u64,
    /// Where its last row ends.
    to: u64,
}

impl HeldPart {
    /// Returns its name.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[derive(Debug)]
struct HeldFile {
    part: HeldPart,
    out: Option<BufWriter<File>>,
}

/// A row that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldRow {
    /// Number of the row's line in the input.
    pub(super) number: u64,
    /// Line of the row, without its newline.
    pub(super) line: Vec<u8>,
}

impl HeldShards {
    /// Holds nothing yet. Files are made beside the input; `-` stands for stdin.
    pub(super) fn new(input: &Path) -> Self {
        let input = if input.as_os_str() == "-" {
            PathBuf::from("stdin")
        } else {
            input.to_owned()
        };
        Self {
            input,
            files_made: 0,
            shards: BTreeMap::new(),
            partitions: HashMap::new(),
        }
    }

    /// Takes over the files of an import that was stopped. Their rows are sent first.
    pub(super) fn resume(&mut self, parts: Vec<HeldPart>) -> Result<(), CliError> {
        for part in parts {
            let len = std::fs::metadata(&part.path).map_or(0, |metadata| metadata.len());
            if len < part.to {
                let name = part.path.display();
                return Err(CliError::Usage(format!(
                    "{name} has lost rows that wait to be sent; leave out --resume to begin anew"
                )));
            }
            self.files_made = self.files_made.max(file_number(&part.path).unwrap_or(0));
            let shard = HeldShard {
                state: HeldState::Back,
                trial_at: Instant::now(),
                reason: LineFailure::malformed(0, String::new()),
                file: HeldFile { part, out: None },
            };
            self.shards.insert(shard.file.part.shard, shard);
        }
        Ok(())
    }

    /// Returns whether no row waits.
    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Returns whether a shard is back whose rows wait.
    pub(super) fn has_back(&self) -> bool {
        self.shards
            .values()
            .any(|held| held.state == HeldState::Back)
    }

    /// Returns whether no more partitions may wait.
    pub(super) fn is_full(&self) -> bool {
        self.partitions.len() >= PARTITIONS_MAX
    }

    /// Returns the held shard that a line has to wait for.
    pub(super) fn shard_of(&self, line: &[u8], key: &mut Vec<u8>) -> Option<u32> {
        let shard = *self.partitions.get(&partition_hash(line, key)?)?;
        let state = self.shards.get(&shard)?.state;
        (state != HeldState::Releasing).then_some(shard)
    }

    /// Adds a row. `reason` is why its shard did not take it.
    pub(super) fn hold(
        &mut self,
        shard: u32,
        row: (u64, &[u8]),
        reason: Option<&LineFailure>,
    ) -> Result<(), CliError> {
        let hash = partition_hash(row.1, &mut Vec::new());
        let held = match self.shards.entry(shard) {
            std::collections::btree_map::Entry::Occupied(held) => held.into_mut(),
            std::collections::btree_map::Entry::Vacant(vacant) => {
                self.files_made += 1;
                vacant.insert(HeldShard::new(shard, &self.input, self.files_made))
            }
        };
        if held.state == HeldState::Releasing {
            held.state = HeldState::Away;
        }
        if let Some(reason) = reason {
            held.reason = reason.clone();
        }
        held.file.push(row)?;
        if let Some(hash) = hash.filter(|_| shard != REST) {
            self.partitions.insert(hash, shard);
        }
        Ok(())
    }

    /// Returns the shards to be tried now, each with the first row that waits for it.
    pub(super) fn due(&mut self, now: Instant) -> Result<Vec<(u32, HeldRow)>, CliError> {
        let mut rows = Vec::new();
        for (&shard, held) in &mut self.shards {
            if held.state == HeldState::Away && held.trial_at <= now {
                rows.extend(held.file.rows()?.next()?.map(|row| (shard, row)));
            }
        }
        Ok(rows)
    }

    /// Records that a shard did not take a row on trial.
    pub(super) fn is_still_away(&mut self, shard: u32, trial_at: Instant, reason: LineFailure) {
        if let Some(held) = self.shards.get_mut(&shard) {
            (held.trial_at, held.reason) = (trial_at, reason);
        }
    }

    /// Records that a shard has answered for its first row, which waits no longer.
    pub(super) fn is_back(&mut self, shard: u32, row: &HeldRow) {
        if let Some(held) = self.shards.get_mut(&shard) {
            held.state = HeldState::Back;
            held.file.part.from += record_len(row.number, &row.line);
        }
    }

    /// Begins to send the rows of a shard that is back: the rows returned wait no longer, and what fails again
    /// is held in a new file.
    pub(super) fn release(&mut self) -> Result<Option<Released>, CliError> {
        let back = |held: &&mut HeldShard| held.state == HeldState::Back;
        let Some(held) = self.shards.values_mut().find(back) else {
            return Ok(None);
        };
        held.state = HeldState::Releasing;
        let rows = held.file.rows()?;
        self.files_made += 1;
        let shard = held.file.part.shard;
        let new = HeldFile::new(shard, &self.input, self.files_made);
        let old = std::mem::replace(&mut held.file, new);
        Ok(Some(Released {
            shard,
            rows,
            path: old.part.path,
        }))
    }

    /// Ends the release of a shard. If rows of it failed again, it stays held.
    pub(super) fn end_release(&mut self, shard: u32) {
        let is_done = |held: &HeldShard| held.state == HeldState::Releasing;
        if self.shards.get(&shard).is_some_and(is_done) {
            self.shards.remove(&shard);
            self.partitions.retain(|_, held| *held != shard);
        }
    }

    /// Gives up all rows: passes each to `fail` with the reason, and holds nothing any more.
    pub(super) fn give_up(
        &mut self,
        mut fail: impl FnMut(HeldRow, &LineFailure) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        for held in self.shards.values_mut() {
            let mut rows = held.file.rows()?;
            while let Some(row) = rows.next()? {
                fail(row, &held.reason)?;
            }
        }
        self.remove_files();
        Ok(())
    }

    /// Syncs all files to the disk and returns them, for a checkpoint.
    pub(super) fn sync(&mut self) -> Result<Vec<HeldPart>, CliError> {
        let mut parts = Vec::new();
        for held in self.shards.values_mut() {
            held.file.sync()?;
            if held.file.part.from < held.file.part.to {
                parts.push(held.file.part.clone());
            }
        }
        Ok(parts)
    }

    /// Removes all files.
    pub(super) fn remove_files(&mut self) {
        for held in self.shards.values() {
            // A file that is left says nothing wrong: no checkpoint names it.
            let _ = std::fs::remove_file(&held.file.part.path);
        }
        self.shards.clear();
        self.partitions.clear();
    }
}

/// Rows of a shard that is back.
#[derive(Debug)]
pub(super) struct Released {
    pub(super) shard: u32,
    pub(super) rows: HeldRows,
    /// File of the rows, to be removed once all were sent.
    pub(super) path: PathBuf,
}

impl HeldShard {
    fn new(shard: u32, input: &Path, number: u32) -> Self {
        Self {
            state: HeldState::Away,
            file: HeldFile::new(shard, input, number),
            trial_at: Instant::now(),
            reason: LineFailure::malformed(0, String::new()),
        }
    }
}

impl HeldFile {
    fn new(shard: u32, input: &Path, number: u32) -> Self {
        let part = HeldPart {
            shard,
            path: with_suffix(input, &format!(".held-{number}")),
            from: 0,
            to: 0,
        };
        Self { part, out: None }
    }

    fn push(&mut self, (number, line): (u64, &[u8])) -> Result<(), CliError> {
        let written = self.write(number, line);
        written.map_err(|source| self.failure("write", source))
    }

    fn write(&mut self, number: u64, line: &[u8]) -> io::Result<()> {
        let out = if let Some(out) = &mut self.out {
            out
        } else {
            let mut options = File::options();
            let options = options.write(true).create(true).truncate(false);
            let mut file = options.open(&self.part.path)?;
            file.set_len(self.part.to)?;
            file.seek(SeekFrom::End(0))?;
            self.out.insert(BufWriter::with_capacity(64 << 10, file))
        };
        write!(out, "{number} ")?;
        out.write_all(line)?;
        out.write_all(b"\n")?;
        self.part.to += record_len(number, line);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), CliError> {
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        let synced = out.flush().and_then(|()| out.get_ref().sync_data());
        synced.map_err(|source| self.failure("write", source))
    }

    /// Returns the rows that wait now.
    fn rows(&mut self) -> Result<HeldRows, CliError> {
        let input = self.open();
        let input = input.map_err(|source| self.failure("read", source))?;
        let path = self.part.path.clone();
        Ok(HeldRows { input, path })
    }

    fn open(&mut self) -> io::Result<Option<BufReader<io::Take<File>>>> {
        if let Some(out) = &mut self.out {
            out.flush()?;
        }
        let (from, to) = (self.part.from, self.part.to);
        if from == to {
            return Ok(None);
        }
        let mut file = File::open(&self.part.path)?;
        file.seek(SeekFrom::Start(from))?;
        Ok(Some(BufReader::new(file.take(to - from))))
    }

    fn failure(&self, verb: &'static str, source: io::Error) -> CliError {
        let path = self.part.path.clone();
        CliError::File { verb, path, source }
    }
}

/// Reads rows that wait, in their order.
#[derive(Debug)]
pub(super) struct HeldRows {
    input: Option<BufReader<io::Take<File>>>,
    path: PathBuf,
}

impl HeldRows {
    /// Returns the next row; none after the last.
    pub(super) fn next(&mut self) -> Result<Option<HeldRow>, CliError> {
        self.read().map_err(|source| CliError::File {
            verb: "read",
            path: self.path.clone(),
            source,
        })
    }

    fn read(&mut self) -> io::Result<Option<HeldRow>> {
        let Some(input) = &mut self.input else {
            return Ok(None);
        };
        let mut record = Vec::new();
        input.take(RECORD_LEN_MAX).read_until(b'\n', &mut record)?;
        if record.is_empty() {
            return Ok(None);
        }
        let row = || {
            let line = record.strip_suffix(b"\n")?;
            let space = memchr::memchr(b' ', line)?;
            let number = std::str::from_utf8(&line[..space]).ok()?.parse().ok()?;
            let line = line[space + 1..].to_vec();
            Some(HeldRow { number, line })
        };
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "a row was changed");
        row().map(Some).ok_or_else(malformed)
    }
}

fn record_len(number: u64, line: &[u8]) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1 + line.len() as u64 + 2
}

fn file_number(path: &Path) -> Option<u32> {
    path.to_str()?.rsplit_once(".held-")?.1.parse().ok()
}

/// Returns the hash of the partition key of a line; none if the line has none.
fn partition_hash(line: &[u8], key: &mut Vec<u8>) -> Option<u64> {
    key.clear();
    let Ok(LineKind::Write { partition_len }) = line::read(line, key) else {
        return None;
    };
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    Some(hasher.hash_one(&key[..usize::from(partition_len)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pk: &str, v: u32) -> Vec<u8> {
        format!("{{\"pk\":\"{pk}\",\"v\":\"{v}\"}}").into_bytes()
    }

    fn numbers(mut rows: HeldRows) -> Vec<u64> {
        let mut numbers = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            numbers.push(row.number);
        }
        numbers
    }

    #[test]
    fn rows_wait_in_their_order_until_their_shard_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let mut held = HeldShards::new(&folder.path().join("x"));
        let add = |held: &mut HeldShards, shard, number, pk| {
            held.hold(shard, (number, &line(pk, 1)), None).unwrap();
        };
        add(&mut held, 3, 9, "a");
        add(&mut held, 3, 10, "b");
        add(&mut held, 4, 11, "c");
        let shard_of = |held: &HeldShards, pk| held.shard_of(&line(pk, 2), &mut Vec::new());
        assert_eq!(
            [
                shard_of(&held, "a"),
                shard_of(&held, "c"),
                shard_of(&held, "d")
            ],
            [Some(3), Some(4), None]
        );
        let due = held.due(Instant::now()).unwrap();
        assert_eq!(
            due.iter()
                .map(|(shard, row)| (*shard, row.number))
                .collect::<Vec<_>>(),
            [(3, 9), (4, 11)]
        );
        assert!(held.release().unwrap().is_none());
        held.is_back(3, &due[0].1);
        add(&mut held, 3, 12, "a");
        assert_eq!(shard_of(&held, "a"), Some(3));
        let released = held.release().unwrap().unwrap();
        assert_eq!((released.shard, shard_of(&held, "a")), (3, None));
        assert_eq!(numbers(released.rows), [10, 12]);
        add(&mut held, 3, 12, "a");
        held.end_release(3);
        assert_eq!(shard_of(&held, "a"), Some(3), "it is away again");
        let (shard, row) = held.due(Instant::now()).unwrap().remove(0);
        held.is_back(shard, &row);
        let released = held.release().unwrap().unwrap();
        assert_eq!(numbers(released.rows), Vec::<u64>::new());
        held.end_release(3);
        assert_eq!(
            (shard_of(&held, "a"), shard_of(&held, "c")),
            (None, Some(4))
        );
        held.remove_files();
        assert!(held.is_empty());
    }

    #[test]
    fn what_a_checkpoint_names_is_sent_first_when_the_import_is_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut held = HeldShards::new(&path);
        held.hold(REST, (7, &line("a", 1)), None).unwrap();
        held.hold(REST, (8, &line("b", 1)), None).unwrap();
        let parts = held.sync().unwrap();
        held.hold(REST, (9, &line("c", 1)), None).unwrap();
        held.sync().unwrap();
        let mut resumed = HeldShards::new(&path);
        resumed.resume(parts.clone()).unwrap();
        let released = resumed.release().unwrap().unwrap();
        assert_eq!(numbers(released.rows), [7, 8]);
        std::fs::write(&parts[0].path, "").unwrap();
        let refused = HeldShards::new(&path).resume(parts).unwrap_err();
        assert!(refused.to_string().contains("has lost rows"));
    }

    #[test]
    fn the_length_of_a_record_is_that_of_its_text() {
        for number in [0, 1, 9, 10, 99, 100, u64::MAX] {
            assert_eq!(
                record_len(number, b"abc"),
                format!("{number} abc\n").len() as u64
            );
        }
    }
}
