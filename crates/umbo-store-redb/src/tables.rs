//! The tables of a shard file, and two of its metadata records.
//!
//! Owns names, types and record formats. The invariant: a row with an expiry has exactly one entry
//! in the expiry index, `expires_at (u64, big endian) | physical key`; entries without such a row
//! are tolerated, and removed by the sweeper.

use std::collections::BTreeSet;

use redb::{ReadableTable, TableDefinition};
use umbo_types::{NamespaceId, Timestamp, Version};

use crate::file_error::FileError;
use crate::key_codec;

/// A table of encoded rows by key.
pub(crate) type RowTable = TableDefinition<'static, &'static [u8], &'static [u8]>;
/// A table of expiries and keys, in order of expiry.
pub(crate) type ExpiryTable = TableDefinition<'static, &'static [u8], ()>;

/// Physical key → encoded row.
pub(crate) const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");
/// Expiry and physical key, in order of expiry.
pub(crate) const EXPIRY: TableDefinition<'static, &[u8], ()> = TableDefinition::new("expiry");
/// Key of an idempotency record → the record, encoded like a row; absent in files of versions without such records.
pub(crate) const IDEMPOTENCY: TableDefinition<'static, &[u8], &[u8]> =
    TableDefinition::new("idempotency");
/// Expiry and key of each idempotency record, in order of expiry; the same rules as for [`EXPIRY`].
pub(crate) const IDEMPOTENCY_EXPIRY: TableDefinition<'static, &[u8], ()> =
    TableDefinition::new("idempotency_expiry");
/// Keys that clients have written in the datasets that are being built: see [`crate::written`]; absent in files that
/// never had one.
pub(crate) const WRITTEN: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("written");
/// Acknowledged rows whose place among [`ROWS`] cannot be read: see [`crate::stranded`]; absent in files of earlier
/// versions.
pub(crate) const STRANDED: TableDefinition<'static, &[u8], &[u8]> =
    TableDefinition::new("stranded");
/// Metadata records of the shard.
pub(crate) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

/// Name of the [`ShardIdentity`] record.
pub(crate) const META_IDENTITY: &str = "identity";
/// Name of the [`ShardProgress`] record.
const META_PROGRESS: &str = "progress";
/// Name of the record of the newest stamp and the sequence number of its commit. Versions that do not know it leave an
/// older record behind, which is ignored.
const META_NEWEST_STAMP: &str = "newest_stamp";

const FORMAT: u8 = 1;
/// Format of the progress record of a file that needs its log. Versions that do not know the log refuse it.
const FORMAT_WITH_LOG: u8 = 3;
/// The same of versions whose logs have no idempotency records.
const FORMAT_WITH_LOG_OF_ROWS: u8 = 2;
const TIMESTAMP_LEN: usize = 8;

/// The store and the shard of a file. Written once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShardIdentity {
    /// Random number of the store.
    pub(crate) store_id: u64,
    /// Number of the shard.
    pub(crate) shard: u16,
}

impl ShardIdentity {
    /// Encodes the record.
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        bytes.extend_from_slice(&self.store_id.to_be_bytes());
        bytes.extend_from_slice(&self.shard.to_be_bytes());
        bytes
    }

    /// Decodes the record, or returns `None` if the bytes are not valid.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&FORMAT, rest) = bytes.split_first()? else {
            return None;
        };
        let (store_id, rest) = rest.split_first_chunk()?;
        Some(Self {
            store_id: u64::from_be_bytes(*store_id),
            shard: u16::from_be_bytes(rest.try_into().ok()?),
        })
    }
}

/// The progress record of a shard. Written with every commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ShardProgress {
    /// Sequence number of the commit that wrote the record.
    pub(crate) sequence: u64,
    /// No higher version was assigned before the next commit.
    pub(crate) version_ceiling: Version,
    /// Believed time of day of this commit.
    pub(crate) believed: Timestamp,
    /// Whether the shard was closed after this commit.
    pub(crate) is_closed: bool,
    /// Whether the file needs its log to be complete.
    pub(crate) needs_log: bool,
    /// Highest `as_of` of a row, or version if the row has no `as_of`. [`UNKNOWN_STAMP`] in files of versions that did
    /// not record it, and in repaired and restored files.
    pub(crate) newest_stamp: Version,
}

/// Stands for a newest stamp that is not known.
pub(crate) const UNKNOWN_STAMP: Version = Version(u64::MAX);

impl ShardProgress {
    /// Writes the records.
    pub(crate) fn write(
        self,
        meta: &mut redb::Table<'_, &'static str, &'static [u8]>,
    ) -> Result<(), FileError> {
        meta.insert(META_PROGRESS, &self.encode()[..])?;
        let stamp = [
            self.sequence.to_be_bytes(),
            self.newest_stamp.0.to_be_bytes(),
        ];
        meta.insert(META_NEWEST_STAMP, stamp.as_flattened())?;
        Ok(())
    }

    /// Reads the records.
    pub(crate) fn read(
        meta: &impl ReadableTable<&'static str, &'static [u8]>,
    ) -> Result<Self, FileError> {
        let damaged = |what: &str| FileError::Damaged(format!("{what} progress record"));
        let record = meta.get(META_PROGRESS)?.ok_or_else(|| damaged("no"))?;
        let mut progress = Self::decode(record.value()).ok_or_else(|| damaged("not a readable"))?;
        if let Some(stamp) = meta.get(META_NEWEST_STAMP)?
            && let Some((sequence, stamp)) = stamp.value().split_first_chunk()
            && *sequence == progress.sequence.to_be_bytes()
            && let Ok(stamp) = stamp.try_into()
        {
            progress.newest_stamp = Version(u64::from_be_bytes(stamp));
        }
        Ok(progress)
    }

    fn encode(self) -> Vec<u8> {
        let format = if self.needs_log {
            FORMAT_WITH_LOG
        } else {
            FORMAT
        };
        let mut bytes = vec![format, u8::from(self.is_closed)];
        bytes.extend_from_slice(&self.sequence.to_be_bytes());
        bytes.extend_from_slice(&self.version_ceiling.0.to_be_bytes());
        bytes.extend_from_slice(&self.believed.0.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (&[format, is_closed], rest) = bytes.split_first_chunk()?;
        let needs_log = match format {
            FORMAT => false,
            FORMAT_WITH_LOG | FORMAT_WITH_LOG_OF_ROWS => true,
            _ => return None,
        };
        let (sequence, rest) = rest.split_first_chunk()?;
        let (ceiling, rest) = rest.split_first_chunk()?;
        Some(Self {
            sequence: u64::from_be_bytes(*sequence),
            version_ceiling: Version(u64::from_be_bytes(*ceiling)),
            believed: Timestamp(u64::from_be_bytes(rest.try_into().ok()?)),
            is_closed: is_closed != 0,
            needs_log,
            newest_stamp: UNKNOWN_STAMP,
        })
    }
}

/// Encodes an entry of the expiry index.
pub(crate) fn expiry_entry(expires_at: Timestamp, key: &[u8]) -> Vec<u8> {
    [&expires_at.0.to_be_bytes(), key].concat()
}

/// Divides an entry of the expiry index into its parts, or returns `None` if it is not valid.
pub(crate) fn split_expiry_entry(entry: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (at, key) = entry.split_first_chunk::<TIMESTAMP_LEN>()?;
    Some((Timestamp(u64::from_be_bytes(*at)), key))
}

/// Returns the earliest expiry in the index, except these entries.
pub(crate) fn next_expiry(
    expiry: &impl ReadableTable<&'static [u8], ()>,
    apart_from: &BTreeSet<Vec<u8>>,
) -> Result<Option<Timestamp>, FileError> {
    for entry in expiry.iter()? {
        let entry = entry?.0;
        if !apart_from.contains(entry.value()) {
            // An entry that is not valid is due at once, so that the sweeper removes it.
            let at = split_expiry_entry(entry.value()).map_or(Timestamp(0), |(at, _)| at);
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Returns the highest namespace that has rows, or the namespace of Umbo's own records if the table is empty.
pub(crate) fn namespace_max(
    rows: &impl ReadableTable<&'static [u8], &'static [u8]>,
) -> Result<NamespaceId, FileError> {
    let last = rows.last()?;
    let namespace = last.and_then(|(key, _)| key_codec::namespace_of(key.value()));
    Ok(namespace.unwrap_or(NamespaceId::SYSTEM))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redb::TableHandle as _;

    use super::*;
    use crate::chunk_codec::CHUNKS;
    use crate::dataset_groups::META_DATASETS;
    use crate::fences::META_FENCES;
    use crate::fencing_tokens::META_RUNS;
    use crate::shard_ownership::{META_OWNER, META_STAMP};
    use crate::sizes::META_SIZES;
    use crate::write_log::{META_LOG, META_LOG_OF_ROWS};

    #[test]
    fn names_in_files_stay() {
        // A file of an earlier version has its tables and records under these names.
        let tables = [
            ROWS.name(),
            EXPIRY.name(),
            IDEMPOTENCY.name(),
            IDEMPOTENCY_EXPIRY.name(),
            WRITTEN.name(),
            META.name(),
            CHUNKS.name(),
            STRANDED.name(),
        ];
        assert_eq!(
            tables,
            [
                "rows",
                "expiry",
                "idempotency",
                "idempotency_expiry",
                "written",
                "meta",
                "chunks",
                "stranded"
            ]
        );
        let records = [
            META_IDENTITY,
            META_PROGRESS,
            META_DATASETS,
            META_RUNS,
            META_SIZES,
            META_OWNER,
            META_STAMP,
            META_FENCES,
            META_LOG,
            META_LOG_OF_ROWS,
        ];
        assert_eq!(
            records,
            [
                "identity",
                "progress",
                "datasets",
                "load_runs",
                "sizes",
                "holder",
                "given",
                "fences",
                "write-log",
                "log"
            ]
        );
    }

    proptest! {
        #[test]
        fn records_come_back(
            (store_id, shard) in any::<(u64, u16)>(),
            (sequence, ceiling, believed) in any::<(u64, u64, u64)>(),
            (is_closed, needs_log) in any::<(bool, bool)>(),
        ) {
            let identity = ShardIdentity { store_id, shard };
            prop_assert_eq!(ShardIdentity::decode(&identity.encode()), Some(identity));
            let progress = ShardProgress {
                sequence,
                version_ceiling: Version(ceiling),
                believed: Timestamp(believed),
                is_closed,
                needs_log,
                newest_stamp: UNKNOWN_STAMP,
            };
            let encoded = progress.encode();
            prop_assert_eq!(encoded[0] == FORMAT, !needs_log);
            prop_assert_eq!(ShardProgress::decode(&encoded), Some(progress));
            // As written by versions whose logs have no idempotency records.
            let before = [&[FORMAT_WITH_LOG_OF_ROWS], &encoded[1..]].concat();
            let needing = ShardProgress { needs_log: true, ..progress };
            prop_assert_eq!(ShardProgress::decode(&before), Some(needing));
        }

        #[test]
        fn the_newest_stamp_is_that_of_the_last_commit(sequence: u64, stamp: u64) {
            let builder = redb::Database::builder();
            let database = builder.create_with_backend(redb::backends::InMemoryBackend::new());
            let transaction = database.unwrap().begin_write().unwrap();
            let mut meta = transaction.open_table(META).unwrap();
            let progress = ShardProgress {
                sequence,
                newest_stamp: Version(stamp),
                ..ShardProgress::default()
            };
            progress.write(&mut meta).unwrap();
            prop_assert_eq!(ShardProgress::read(&meta).unwrap(), progress);
            // A version that does not know it has made the last commit.
            let later = ShardProgress { sequence: sequence.wrapping_add(1), ..progress };
            meta.insert(META_PROGRESS, &later.encode()[..]).unwrap();
            let read = ShardProgress::read(&meta).unwrap();
            prop_assert_eq!(read, ShardProgress { newest_stamp: UNKNOWN_STAMP, ..later });
        }

        #[test]
        fn hostile_records_do_not_panic(bytes in prop::collection::vec(0_u8..3, 0..24)) {
            let _ = ShardIdentity::decode(&bytes);
            let _ = ShardProgress::decode(&bytes);
            let _ = split_expiry_entry(&bytes);
        }
    }

    #[test]
    fn expiry_entries_order_by_expiry_first() {
        let early = expiry_entry(Timestamp(255), b"z");
        let late = expiry_entry(Timestamp(256), b"a");
        assert!(early < late);
        assert_eq!(split_expiry_entry(&late), Some((Timestamp(256), &b"a"[..])));
    }
}
