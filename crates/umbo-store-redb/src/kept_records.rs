//! The copy of Umbo's own records that a data folder keeps, in its file `records`.
//!
//! `format u8 | epoch u64 | number u64 | count u32, fenced ranges | dataset groups | content | checksum u64`, integers
//! big endian. A file of format 1 has no dataset groups. A file of format 1 or 2 has each fenced id by itself. The
//! checksum is XXH3-64 over everything before it. Owns the file and the newest copy in memory; does not interpret the
//! content. The invariants: the copy in memory is on the disk; an older copy never replaces a newer one; a file that
//! cannot be read is an error, never the absence of a copy.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use umbo_store::{IdRange, RecordsCopy, RecordsRevision};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::dataset_groups::{put_groups, take_groups};
use crate::error::{OpenError, folder_error};
use crate::fences::{put_ranges, take_ranges, take_single_ids};
use crate::file_error::FileError;
use crate::replaced_file::replace_file;

const FILE_NAME: &str = "records";
const FORMAT: u8 = 3;
/// Format without dataset groups. In this format and the next one, both of previous versions, each fenced id is by
/// itself.
const FORMAT_WITHOUT_DATASETS: u8 = 1;
/// Sets the checksum apart from other uses of the same hash.
const CHECKSUM_SEED: u64 = u64::from_be_bytes(*b"records\0");

/// The newest copy of the records in a data folder.
pub(crate) struct KeptRecords {
    folder: PathBuf,
    newest: ArcSwapOption<RecordsCopy>,
    /// Locked while the file is replaced. True once the folder has been closed.
    is_closed: Mutex<bool>,
}

impl fmt::Debug for KeptRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptRecords")
            .field("folder", &self.folder)
            .field("revision", &self.revision())
            .finish_non_exhaustive()
    }
}

impl KeptRecords {
    /// Returns the empty value for a folder whose records are not needed, as for a look at its shards.
    pub(crate) fn none() -> Self {
        Self {
            folder: PathBuf::new(),
            newest: ArcSwapOption::empty(),
            is_closed: Mutex::new(true),
        }
    }

    /// Reads the copy in a folder, which must be locked.
    pub(crate) fn open(folder: &Path) -> Result<Self, OpenError> {
        let path = folder.join(FILE_NAME);
        let newest = match std::fs::read(&path) {
            Ok(bytes) => match decode(&bytes) {
                Ok(copy) => Some(Arc::new(copy)),
                Err(reason) => return Err(OpenError::BadRecords { path, reason }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(folder_error("read", &path)(error)),
        };
        Ok(Self {
            folder: folder.to_owned(),
            newest: ArcSwapOption::new(newest),
            is_closed: Mutex::new(false),
        })
    }

    /// Returns the newest copy.
    pub(crate) fn newest(&self) -> Option<Arc<RecordsCopy>> {
        self.newest.load_full()
    }

    /// Returns the ids that the newest copy fences.
    pub(crate) fn fenced(&self) -> Vec<IdRange> {
        self.newest()
            .map(|copy| copy.fenced.clone())
            .unwrap_or_default()
    }

    /// Returns the revision of the newest copy.
    pub(crate) fn revision(&self) -> RecordsRevision {
        let newest = self.newest.load();
        newest
            .as_ref()
            .map(|copy| copy.revision)
            .unwrap_or_default()
    }

    /// Keeps a copy, unless the folder has a copy that is at least as new. Returns the newest copy, which is on the
    /// disk, or `None` if the folder has been closed. Blocks.
    pub(crate) fn keep(
        &self,
        copy: Arc<RecordsCopy>,
    ) -> Result<Option<Arc<RecordsCopy>>, FileError> {
        let is_closed = self.lock();
        if *is_closed {
            return Ok(None);
        }
        if let Some(newest) = self.newest()
            && newest.revision >= copy.revision
        {
            return Ok(Some(newest));
        }
        replace_file(&self.folder, FILE_NAME, &encode(&copy))?;
        self.newest.store(Some(Arc::clone(&copy)));
        Ok(Some(copy))
    }

    /// Closes the folder: no more copies are kept. Waits for a copy that is being written.
    pub(crate) fn close(&self) {
        *self.lock() = true;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, bool> {
        self.is_closed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn encode(copy: &RecordsCopy) -> Vec<u8> {
    let mut bytes = vec![FORMAT];
    bytes.extend_from_slice(&copy.revision.epoch.to_be_bytes());
    bytes.extend_from_slice(&copy.revision.number.to_be_bytes());
    put_ranges(&mut bytes, &copy.fenced);
    put_groups(&mut bytes, &copy.datasets);
    bytes.extend_from_slice(&copy.content);
    let checksum = xxh3_64_with_seed(&bytes, CHECKSUM_SEED);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Result<RecordsCopy, String> {
    let cut_short = || "it is cut short".to_owned();
    let (bytes, checksum) = bytes.split_last_chunk().ok_or_else(cut_short)?;
    if xxh3_64_with_seed(bytes, CHECKSUM_SEED) != u64::from_be_bytes(*checksum) {
        return Err("its checksum is wrong".to_owned());
    }
    let (&format, rest) = bytes.split_first().ok_or_else(cut_short)?;
    if !(FORMAT_WITHOUT_DATASETS..=FORMAT).contains(&format) {
        return Err(format!(
            "it has format {format}, this version reads {FORMAT_WITHOUT_DATASETS} to {FORMAT}"
        ));
    }
    let (epoch, rest) = rest.split_first_chunk().ok_or_else(cut_short)?;
    let (number, rest) = rest.split_first_chunk().ok_or_else(cut_short)?;
    let fenced = match format {
        FORMAT => take_ranges(rest),
        _ => take_single_ids(rest),
    };
    let (fenced, rest) = fenced.ok_or_else(cut_short)?;
    let (datasets, content) = match format {
        FORMAT_WITHOUT_DATASETS => (Vec::new(), rest),
        _ => take_groups(rest).ok_or_else(cut_short)?,
    };
    Ok(RecordsCopy {
        revision: RecordsRevision {
            epoch: u64::from_be_bytes(*epoch),
            number: u64::from_be_bytes(*number),
        },
        fenced,
        datasets,
        content: Bytes::copy_from_slice(content),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use umbo_store::DatasetGroup;
    use umbo_types::NamespaceId;

    use crate::fences::put_ids;

    fn copy(number: u64) -> Arc<RecordsCopy> {
        Arc::new(RecordsCopy {
            revision: RecordsRevision { epoch: 1, number },
            fenced: vec![NamespaceId(number as u32).into()],
            datasets: Vec::new(),
            content: Bytes::from(number.to_string()),
        })
    }

    fn encode_old(copy: &RecordsCopy, format: u8) -> Vec<u8> {
        let mut bytes = vec![format];
        bytes.extend_from_slice(&copy.revision.epoch.to_be_bytes());
        bytes.extend_from_slice(&copy.revision.number.to_be_bytes());
        let ids: Vec<_> = copy.fenced.iter().map(|range| range.first).collect();
        put_ids(&mut bytes, &ids);
        if format > 1 {
            put_groups(&mut bytes, &copy.datasets);
        }
        bytes.extend_from_slice(&copy.content);
        let checksum = xxh3_64_with_seed(&bytes, CHECKSUM_SEED);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        bytes
    }

    #[test]
    fn the_newest_copy_is_kept_across_openings() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptRecords::open(folder.path()).unwrap();
        assert_eq!((kept.newest(), kept.revision().number), (None, 0));
        assert_eq!(kept.keep(copy(5)), Ok(Some(copy(5))));
        for older in [copy(4), copy(5)] {
            assert_eq!(kept.keep(older), Ok(Some(copy(5))));
        }
        kept.close();
        assert_eq!(kept.keep(copy(6)), Ok(None));
        let again = KeptRecords::open(folder.path()).unwrap();
        assert_eq!(again.newest(), Some(copy(5)));
        assert_eq!(again.fenced(), [NamespaceId(5).into()]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let whole = encode(&copy(5));
        let mut damaged = whole.clone();
        damaged[9] ^= 1;
        for bytes in [&whole[..20], &whole[..0], &damaged] {
            std::fs::write(&path, bytes).unwrap();
            let refused = KeptRecords::open(folder.path()).unwrap_err().to_string();
            assert!(refused.contains("records"), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn copies_come_back(
            epoch: u64,
            number: u64,
            fenced in prop::collection::vec(any::<(u32, u16)>(), 0..5),
            datasets in prop::collection::vec(any::<(u32, u32, Option<u32>, Vec<u32>)>(), 0..3),
            content in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let group = |(epoch, id, building, kept): (u32, u32, Option<u32>, Vec<u32>)| DatasetGroup {
                epoch,
                live: NamespaceId(id),
                kept: kept.into_iter().map(NamespaceId).collect(),
                building: building.filter(|&id| id > 0).map(NamespaceId),
                identity: NamespaceId(id / 2),
            };
            let range = |(first, more): (u32, u16)| IdRange {
                first: NamespaceId(first),
                last: NamespaceId(first.saturating_add(more.into())),
            };
            let copy = RecordsCopy {
                revision: RecordsRevision { epoch, number },
                fenced: fenced.into_iter().map(range).collect(),
                datasets: datasets.into_iter().map(group).collect(),
                content: content.into(),
            };
            prop_assert_eq!(decode(&encode(&copy)), Ok(copy.clone()));
            // Versions before wrote fenced ids, and dataset groups if there were any.
            for format in [1, 2] {
                let old = RecordsCopy {
                    fenced: copy.fenced.iter().map(|range| range.first.into()).collect(),
                    datasets: if format == 1 { Vec::new() } else { copy.datasets.clone() },
                    ..copy.clone()
                };
                prop_assert_eq!(decode(&encode_old(&old, format)), Ok(old));
            }
        }

        #[test]
        fn hostile_files_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let checksum = xxh3_64_with_seed(&bytes, CHECKSUM_SEED).to_be_bytes();
            let _ = decode(&bytes);
            let _ = decode(&[&bytes[..], &checksum].concat());
        }
    }
}
