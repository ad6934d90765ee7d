//! Rows in the wrong shard: counting them, and moving them to the shard of their slot.
//!
//! No request reaches such a row, but scans return it. It was written by a node that placed a dataset of a namespace by
//! the id of the dataset, because it did not know the group yet; see [`umbo_routing::Placements`]. Works on the files
//! of a folder that is not in use. The invariants: a row leaves a file only after a commit with the row, or a newer
//! one, is on the disk in the file of the right shard. So an interrupted repair can be begun again. Of two rows of one
//! key, the row with the higher version stays.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Builder, Database, ReadTransaction, ReadableDatabase as _};
use serde::Serialize;
use umbo_routing::{ShardMap, Slot};
use umbo_store::{DatasetGroup, IdRange, UploadStep};
use umbo_types::{LargeRef, NamespaceId, PartitionKey, ShardId, Timestamp};

use crate::chunk_codec::{CHUNKS, chunk_key, decode_chunk};
use crate::committer::large::LargeWriter;
use crate::error::{OpenError, folder_error};
use crate::file_error::{FileError, guarded};
use crate::folder_lock::FolderLock;
use crate::hand_over::plain_file;
use crate::kept_records::KeptRecords;
use crate::key_codec;
use crate::manifest::{Manifest, shard_files_in};
use crate::opener::Opener;
use crate::plain_files::PlainFiles;
use crate::shard_file::{self, begin_write};
use crate::shard_ownership::META_STAMP;
use crate::stored_rows::{BesideRows, head_of, store_rows};
use crate::tables::{EXPIRY, META, ROWS, expiry_entry};
use crate::write_log::LostGroups;

/// Rows that are moved in one commit of each file: some megabytes.
const ROWS_AT_ONCE: usize = 1_000;

/// The misplaced rows in the file of a shard, and their repair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ShardRepair {
    /// Number of the shard.
    pub shard: u16,
    /// The file.
    pub file: PathBuf,
    /// Rows that belong to another shard.
    pub misplaced: u64,
    /// Rows of these that the right shard has now.
    pub moved: u64,
    /// Rows of these that were dropped, because the right shard had the row in the same or a newer version.
    pub outdated: u64,
    /// Why the file was not read, or why some of these rows were not moved; `None` if all were.
    #[serde(rename = "reason", skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A misplaced row: key, encoded row and the shard that it belongs to.
type MisplacedRow = (Vec<u8>, Vec<u8>, ShardId);

/// The shards that the rows of a folder belong to.
pub(crate) struct Places {
    map: ShardMap,
    placed_as: BTreeMap<NamespaceId, NamespaceId>,
}

impl Places {
    /// Places each namespace by its own id.
    pub(crate) fn new(map: ShardMap) -> Self {
        Self {
            map,
            placed_as: BTreeMap::new(),
        }
    }

    /// Places datasets by their groups.
    pub(crate) fn learn(&mut self, groups: &[DatasetGroup]) {
        for group in groups {
            let ids = group.ids().map(|id| (id, group.identity));
            self.placed_as.extend(ids);
        }
    }

    /// Returns the shard of a row, or `None` if the row stays in its shard: Umbo's own records, and rows of removed
    /// namespaces.
    pub(crate) fn owner(&self, key: &[u8], fenced: &[IdRange]) -> Option<ShardId> {
        let parts = key_codec::decode(key)?;
        let id = parts.namespace;
        if id == NamespaceId::SYSTEM || IdRange::any_has(fenced, id) {
            return None;
        }
        let placed_as = *self.placed_as.get(&id).unwrap_or(&id);
        let partition = PartitionKey::new(parts.partition.into_owned()).ok()?;
        Some(self.map.owner(Slot::of(placed_as, &partition)))
    }
}

/// Counts the rows of a data folder that are in the wrong shard. Reads only; a file that is in use, or was not closed,
/// is reported as not read.
pub fn count_misplaced(folder: &Path) -> Result<Vec<ShardRepair>, OpenError> {
    let found = shard_files_in(folder).map_err(folder_error("read", folder))?;
    let mut places = places(folder)?;
    let mut opened = Vec::new();
    for (shard, file) in found {
        let read = guarded(|| Ok(Builder::new().open_read_only(&file)?.begin_read()?));
        let read = read.and_then(|read| Ok((is_given(&read)?, shard_file::groups(&read)?, read)));
        match read {
            Ok((true, ..)) => {}
            read => opened.push((shard, file, read.map(|(_, groups, read)| (groups, read)))),
        }
    }
    for (_, _, opened) in &opened {
        if let Ok((groups, _)) = opened {
            places.learn(groups.groups());
        }
    }
    let mut reports = Vec::new();
    for (shard, file, opened) in opened {
        let mut report = ShardRepair {
            shard: shard.0,
            file,
            ..ShardRepair::default()
        };
        let counted = opened.and_then(|(_, read)| {
            guarded(|| {
                let mut after = None;
                loop {
                    let rows = misplaced_rows(&read, shard, &places, after.as_deref())?;
                    let Some(last) = rows.last() else {
                        return Ok(());
                    };
                    report.misplaced += rows.len() as u64;
                    after = Some(last.0.clone());
                }
            })
        });
        report.failure = counted.err().map(|failure| failure.to_string());
        reports.push(report);
    }
    Ok(reports)
}

/// Moves misplaced rows of a data folder to the right shard, if the file of that shard is in the folder. The folder
/// must not be in use. A row of a large value is moved with its bytes; idempotency records stay, and expire. A file whose
/// log lacks groups that were acknowledged is repaired only if `drops_lost_groups`; else its failure names them.
pub fn repair_shards(
    folder: &Path,
    now: Timestamp,
    drops_lost_groups: bool,
) -> Result<Vec<ShardRepair>, OpenError> {
    let lost_groups = if drops_lost_groups {
        LostGroups::Drop
    } else {
        LostGroups::Refuse
    };
    let _lock = FolderLock::take(folder)?;
    let found = shard_files_in(folder).map_err(folder_error("read", folder))?;
    let mut places = places(folder)?;
    let store_id = manifest(folder)?.store_id;
    let plain_files: Arc<dyn Opener> = Arc::new(PlainFiles);
    let mut opened = BTreeMap::new();
    let mut reports = Vec::new();
    for (shard, file) in found {
        let mut report = ShardRepair {
            shard: shard.0,
            file,
            ..ShardRepair::default()
        };
        let plain = plain_file(folder, store_id, shard, &plain_files);
        let read = plain
            .recovered_without(lost_groups)
            .and_then(|file| Ok((is_given(&file.database.begin_read()?)?, file)));
        match read {
            Ok((true, _)) => continue,
            Ok((false, file)) => {
                places.learn(file.groups.groups());
                opened.insert(shard, file.database);
            }
            Err(failure) => report.failure = Some(failure.to_string()),
        }
        reports.push(report);
    }
    for report in &mut reports {
        let shard = ShardId(report.shard);
        if opened.contains_key(&shard)
            && let Err(failure) = guarded(|| repair(shard, &opened, &places, now, report))
        {
            report.failure = Some(failure.to_string());
        }
    }
    for report in &mut reports {
        let database = opened.remove(&ShardId(report.shard));
        if let Some(Err(failure)) = database.map(shard_file::close) {
            report.failure.get_or_insert(failure.to_string());
        }
    }
    Ok(reports)
}

fn places(folder: &Path) -> Result<Places, OpenError> {
    let mut places = Places::new(manifest(folder)?.shard_map);
    if let Some(copy) = KeptRecords::open(folder)?.newest() {
        places.learn(&copy.datasets);
    }
    Ok(places)
}

pub(crate) fn manifest(folder: &Path) -> Result<Manifest, OpenError> {
    Manifest::read(folder)?.ok_or_else(|| OpenError::NobodysFolder {
        folder: folder.to_owned(),
    })
}

/// Returns whether a file was given to another node. Its rows are not repaired here.
fn is_given(read: &ReadTransaction) -> Result<bool, FileError> {
    Ok(read.open_table(META)?.get(META_STAMP)?.is_some())
}

/// Returns the next misplaced rows of a shard after a key, in order of their keys; empty at the end.
fn misplaced_rows(
    read: &ReadTransaction,
    shard: ShardId,
    places: &Places,
    after: Option<&[u8]>,
) -> Result<Vec<MisplacedRow>, FileError> {
    let fences = shard_file::fences(read)?;
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let mut rows = Vec::new();
    for entry in read
        .open_table(ROWS)?
        .range::<&[u8]>((from, Bound::Unbounded))?
    {
        let (key, row) = entry?;
        match places.owner(key.value(), fences.fenced()) {
            Some(owner) if owner != shard => {
                rows.push((key.value().to_vec(), row.value().to_vec(), owner));
            }
            _ => continue,
        }
        if rows.len() == ROWS_AT_ONCE {
            break;
        }
    }
    Ok(rows)
}

fn repair(
    shard: ShardId,
    opened: &BTreeMap<ShardId, Database>,
    places: &Places,
    now: Timestamp,
    report: &mut ShardRepair,
) -> Result<(), FileError> {
    let source = &opened[&shard];
    let mut after: Option<Vec<u8>> = None;
    loop {
        let read = source.begin_read()?;
        let rows = misplaced_rows(&read, shard, places, after.as_deref())?;
        let Some(last) = rows.last() else {
            return Ok(());
        };
        after = Some(last.0.clone());
        report.misplaced += rows.len() as u64;
        let mut by_owner: BTreeMap<ShardId, Vec<MisplacedRow>> = BTreeMap::new();
        for row in rows {
            by_owner.entry(row.2).or_default().push(row);
        }
        for (owner, rows) in by_owner {
            let Some(target) = opened.get(&owner) else {
                report.failure = Some(format!(
                    "rows of shard {owner} are left, whose file is not in this folder or cannot be opened"
                ));
                continue;
            };
            let stored = rows.iter().map(|(key, row, _)| (&key[..], &row[..]));
            let copy =
                |value: &LargeRef, to: &mut LargeWriter<'_>| copy_upload(&read, to, value, now);
            let moved = store_rows(target, stored, copy, now)?;
            take_out(source, &rows, now)?;
            report.moved += moved;
            report.outdated += rows.len() as u64 - moved;
        }
    }
}

/// Removes rows that the right shard has.
fn take_out(source: &Database, rows: &[MisplacedRow], now: Timestamp) -> Result<(), FileError> {
    let mut change = BesideRows::default();
    let transaction = begin_write(source)?;
    {
        let mut stored = transaction.open_table(ROWS)?;
        let mut expiry = transaction.open_table(EXPIRY)?;
        for (key, row, _) in rows {
            stored.remove(&key[..])?;
            if let Some(at) = head_of(row)?.expires_at {
                expiry.remove(&expiry_entry(at, key)[..])?;
            }
            change.take(key, row);
        }
        LargeWriter::new(&transaction, None).settle(&change.references, now)?;
        change.record(&transaction)?;
    }
    Ok(transaction.commit()?)
}

/// Copies the bytes of a large value.
fn copy_upload(
    source: &ReadTransaction,
    target: &mut LargeWriter<'_>,
    value: &LargeRef,
    now: Timestamp,
) -> Result<(), FileError> {
    let upload = value.upload;
    let chunks = source.open_table(CHUNKS)?;
    for index in 0.. {
        let key = chunk_key(upload, index);
        let Some(chunk) = chunks.get(&key[..])? else {
            break;
        };
        let bytes = decode_chunk(&key, chunk.value())?;
        let step = UploadStep::Append {
            upload,
            index,
            bytes,
        };
        target.step(&step, now)?;
    }
    Ok(())
}
