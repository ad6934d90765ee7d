//! Rows of a bucket as the cluster sends and takes them.

use bytes::Bytes;
use scylla::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlValue, Row as CqlRow};
use umbo_store::{RowRef, StoredRow};
use umbo_types::{
    Key, LargeRef, NamespaceId, Row, StoredForm, Timestamp, UploadId, Value, Version,
};

use crate::cell::{BoundValue, big, blob, int, small, tiny};
use crate::error::ClusterError;
use crate::schema::ROW;

/// Stands for no version and no instant.
const NO_TIME: i64 = -1;

/// What a commit sets of a row: everything, so that nothing of an earlier one stays.
#[derive(Debug, Default)]
pub(crate) struct RowCells {
    /// Seconds after which the engine removes the row; 0 for never.
    pub(crate) ttl: u32,
    pub(crate) version: BoundValue,
    pub(crate) expires: BoundValue,
    pub(crate) as_of: BoundValue,
    pub(crate) by_client: bool,
    pub(crate) form: BoundValue,
    pub(crate) len: BoundValue,
    pub(crate) held: BoundValue,
    pub(crate) value: BoundValue,
    /// The value, if it is too long for the answers of walks.
    pub(crate) apart: BoundValue,
    pub(crate) large: BoundValue,
    pub(crate) content_type: BoundValue,
    pub(crate) content_encoding: BoundValue,
}

impl RowCells {
    /// Returns the values of the statement before bucket and place. All are set, as the cluster keeps a tombstone for each
    /// null, and warns of reads with a thousand tombstones.
    pub(crate) fn bound(self) -> Vec<BoundValue> {
        let time = |cell: BoundValue| cell.or(Some(CqlValue::BigInt(NO_TIME)));
        let number = |cell: BoundValue| cell.or(big(0));
        let bytes = |cell: BoundValue| cell.or(blob(&[]));
        vec![
            int(self.ttl),
            time(self.version),
            time(self.expires),
            time(self.as_of),
            Some(CqlValue::Boolean(self.by_client)),
            self.form.or(tiny(0)),
            number(self.len),
            number(self.held),
            bytes(self.value),
            bytes(self.apart),
            bytes(self.large),
            bytes(self.content_type),
            bytes(self.content_encoding),
        ]
    }
}

/// The place of a row in its bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct StoredPlace {
    pub(crate) kind: i8,
    pub(crate) dataset: NamespaceId,
    pub(crate) slot: u16,
    pub(crate) partition: Bytes,
    pub(crate) sort: Bytes,
}

impl StoredPlace {
    pub(crate) fn of_row(dataset: NamespaceId, slot: u16, key: &Key) -> Self {
        Self {
            kind: ROW,
            dataset,
            slot,
            partition: Bytes::copy_from_slice(key.partition.as_bytes()),
            sort: Bytes::copy_from_slice(key.sort.as_bytes()),
        }
    }

    pub(crate) fn cells(&self) -> [BoundValue; 5] {
        [
            tiny(self.kind),
            int(self.dataset.0),
            small(self.slot),
            blob(&self.partition),
            blob(&self.sort),
        ]
    }
}

/// A row as it was read.
#[derive(Debug)]
pub(crate) struct FoundRow {
    pub(crate) place: StoredPlace,
    /// `None` in the mark of a client's removal, which has no row.
    pub(crate) version: Option<Version>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) as_of: Option<Timestamp>,
    pub(crate) by_client: bool,
    pub(crate) form: StoredForm,
    /// Length of the value as the client stored it.
    pub(crate) len: u64,
    /// Length of its bytes as they are kept.
    pub(crate) held: u64,
    pub(crate) large: Option<LargeRef>,
    content_type: Bytes,
    content_encoding: Bytes,
    /// Empty if it was not read.
    pub(crate) value: Bytes,
}

/// The longest value that walks read with its row, in bytes: it bounds their answers, as the cluster counts rows only.
pub(crate) const VALUE_OF_WALK_MAX: usize = 8 << 10;

/// Rows, bytes and saved bytes of a dataset in a bucket.
pub(crate) type SizeOf = (i64, i64, i64);

impl FoundRow {
    /// Returns what the row counts in the size of its dataset.
    pub(crate) fn size(&self) -> SizeOf {
        if self.version.is_none() {
            return (0, 0, 0);
        }
        let keys = self.place.partition.len() + self.place.sort.len();
        let beside = self.large.map_or(0, |large| large.len);
        let kept = self.held + beside;
        let saved = self.len.saturating_sub(kept);
        (1, (keys as u64 + kept).cast_signed(), saved.cast_signed())
    }

    /// Returns whether the row has a value that a walk leaves.
    pub(crate) const fn is_apart(&self) -> bool {
        self.large.is_none() && self.held > VALUE_OF_WALK_MAX as u64
    }

    pub(crate) fn upload(&self) -> Option<UploadId> {
        self.large.map(|large| large.upload)
    }

    /// Returns the stored row. Returns `None` for a mark.
    pub(crate) fn stored(&self) -> Option<StoredRow> {
        Some(StoredRow {
            row: Row {
                version: self.version?,
                expires_at: self.expires_at,
                value: Value {
                    bytes: self.value.clone(),
                    form: self.form,
                    content_type: self.content_type.clone(),
                    content_encoding: self.content_encoding.clone(),
                },
            },
            as_of: self.as_of,
        })
    }

    /// Returns the row for a chunk, with its partition or without. Returns `None` for a mark.
    pub(crate) fn row_ref(&self, with_partition: bool) -> Option<RowRef<'_>> {
        Some(RowRef {
            partition: if with_partition {
                &self.place.partition
            } else {
                &[]
            },
            sort: &self.place.sort,
            value: &self.value,
            form: self.form,
            value_len: self.len as u32,
            content_type: &self.content_type,
            content_encoding: &self.content_encoding,
            version: self.version?,
            expires_at: self.expires_at,
        })
    }

    /// Returns the bytes that the cluster has read for a row: all of it, also where the value is not sent.
    pub(crate) const fn bytes_read(&self, row: RowRef<'_>) -> u64 {
        row.stored_bytes() - row.value.len() as u64 + self.held
    }

    /// Returns the key of a row. Fails if another program has written a row without a valid key.
    pub(crate) fn key(&self) -> Result<Key, ClusterError> {
        let key = Key::new(self.place.partition.clone(), self.place.sort.clone());
        key.map_err(|_| ClusterError::damaged("a row has a key that is too long"))
    }
}

#[derive(DeserializeRow)]
struct WireRow {
    kind: Option<i8>,
    dataset: Option<i32>,
    slot: Option<i16>,
    pk: Option<Bytes>,
    sk: Option<Bytes>,
    version: Option<i64>,
    expires: Option<i64>,
    as_of: Option<i64>,
    by_client: Option<bool>,
    form: Option<i8>,
    len: Option<i64>,
    held: Option<i64>,
    large: Option<Bytes>,
    content_type: Option<Bytes>,
    content_encoding: Option<Bytes>,
    value: Option<Bytes>,
    apart: Option<Bytes>,
}

impl WireRow {
    /// Returns the row, or `None` if the bucket has a guard and no rows.
    fn found(self) -> Result<Option<FoundRow>, ClusterError> {
        let (Some(kind), Some(dataset)) = (self.kind, self.dataset) else {
            return Ok(None);
        };
        let number = |number: Option<i64>| number.map(i64::cast_unsigned);
        let set = |of: Option<i64>| number(of.filter(|&number| number != NO_TIME));
        let form = StoredForm::from_code(self.form.unwrap_or_default().cast_unsigned());
        let place = StoredPlace {
            kind,
            dataset: NamespaceId(dataset.cast_unsigned()),
            slot: self.slot.unwrap_or_default().cast_unsigned(),
            partition: self.pk.unwrap_or_default(),
            sort: self.sk.unwrap_or_default(),
        };
        let large = self.large.as_deref().and_then(LargeRef::decode);
        let set_bytes = |bytes: Option<Bytes>| bytes.filter(|bytes| !bytes.is_empty());
        let stored = set_bytes(self.large).or(set_bytes(self.apart));
        Ok(Some(FoundRow {
            place,
            version: set(self.version).map(Version),
            expires_at: set(self.expires).map(Timestamp),
            as_of: set(self.as_of).map(Timestamp),
            by_client: self.by_client.unwrap_or_default(),
            form: form.map_err(|error| ClusterError::damaged(&error.to_string()))?,
            len: number(self.len).unwrap_or_default(),
            held: number(self.held).unwrap_or_default(),
            value: stored.or(self.value).unwrap_or_default(),
            large,
            content_type: self.content_type.unwrap_or_default(),
            content_encoding: self.content_encoding.unwrap_or_default(),
        }))
    }
}

/// Returns whether a conditional statement was applied.
pub(crate) fn is_applied(answer: QueryResult) -> Result<bool, ClusterError> {
    let row = answer.into_rows_result()?.first_row::<CqlRow>()?;
    let first = row.columns.first();
    Ok(matches!(first, Some(Some(CqlValue::Boolean(true)))))
}

/// Decodes the rows of an answer.
pub(crate) fn decode(answer: QueryResult) -> Result<Vec<FoundRow>, ClusterError> {
    let rows = answer.into_rows_result()?;
    let mut found = Vec::with_capacity(rows.rows_num());
    for row in rows.rows::<WireRow>()? {
        found.extend(row?.found()?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_sets_no_column_to_null() {
        let cells = RowCells::default().bound();
        assert!(cells.iter().all(Option::is_some), "{cells:?}");
    }
}
