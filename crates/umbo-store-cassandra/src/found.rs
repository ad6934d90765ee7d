//! Rows of a bucket as the cluster sends and takes them.

use bytes::Bytes;
use scylla::deserialize::row::{ColumnIterator, RawColumn};
use scylla::deserialize::value::DeserializeValue;
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlValue, Row as CqlRow};
use umbo_store::{RowRef, StoredRow};
use umbo_types::{Key, Row, UploadId, Value, Version};

use crate::about::{About, MARK_LEN, VALUE_OF_WALK_MAX};
use crate::cell::{BoundValue, big, blob, int};
use crate::error::ClusterError;
use crate::place::StoredPlace;

/// What a commit sets of a row: everything, so that nothing of an earlier one stays.
#[derive(Debug, Default)]
pub(crate) struct RowCells {
    /// Seconds after which the engine removes the row; 0 for never.
    pub(crate) ttl: u32,
    pub(crate) about: About,
    /// The value, unless the row refers to a large one.
    pub(crate) value: Bytes,
}

impl RowCells {
    /// Returns the values of the statement before bucket and place. All are set, as the cluster keeps a tombstone for each
    /// null, and warns of reads with a thousand tombstones.
    pub(crate) fn bound(self) -> [BoundValue; 4] {
        let (value, apart) = if self.is_apart() {
            (Bytes::new(), self.value)
        } else {
            (self.value, Bytes::new())
        };
        [
            int(self.ttl),
            blob(self.about.encode()),
            blob(value),
            blob(apart),
        ]
    }

    /// Returns whether the value stands in the column that walks leave.
    pub(crate) fn is_apart(&self) -> bool {
        self.value.len() > VALUE_OF_WALK_MAX
    }

    /// Returns the values of the statement of a fast write before bucket and place. Each cell begins with the mark, so
    /// that the cluster keeps all cells of one of two writes with the same version: of two cells with one time stamp it
    /// keeps the greater.
    pub(crate) fn bound_fast(self, version: Version, mark: [u8; MARK_LEN]) -> [BoundValue; 4] {
        let about = About {
            mark: Some(mark),
            ..self.about
        };
        let value = [&mark, &*self.value].concat();
        [
            int(self.ttl),
            big(version.0),
            blob(about.encode()),
            blob(value),
        ]
    }
}

/// A row as it was read.
#[derive(Debug)]
pub(crate) struct FoundRow {
    pub(crate) place: StoredPlace,
    pub(crate) about: About,
    /// Empty if it was not read.
    pub(crate) value: Bytes,
}

/// Rows, bytes and saved bytes of a dataset in a bucket.
pub(crate) type SizeOf = (i64, i64, i64);

impl FoundRow {
    /// Returns what the row counts in the size of its dataset.
    pub(crate) fn size(&self) -> SizeOf {
        if self.about.version.is_none() {
            return (0, 0, 0);
        }
        let keys = self.place.partition.len() + self.place.sort.len();
        let beside = self.about.large.map_or(0, |large| large.len);
        let kept = self.about.held + beside;
        let saved = self.about.len.saturating_sub(kept);
        (1, (keys as u64 + kept).cast_signed(), saved.cast_signed())
    }

    pub(crate) fn upload(&self) -> Option<UploadId> {
        self.about.large.map(|large| large.upload)
    }

    /// Returns the stored row. Returns `None` for a mark.
    pub(crate) fn stored(&self) -> Option<StoredRow> {
        Some(StoredRow {
            row: Row {
                version: self.about.version?,
                expires_at: self.about.expires_at,
                value: Value {
                    bytes: self.value.clone(),
                    form: self.about.form,
                    content_type: self.about.content_type.clone(),
                    content_encoding: self.about.content_encoding.clone(),
                },
            },
            as_of: self.about.as_of,
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
            form: self.about.form,
            value_len: self.about.len as u32,
            content_type: &self.about.content_type,
            content_encoding: &self.about.content_encoding,
            version: self.about.version?,
            expires_at: self.about.expires_at,
        })
    }

    /// Returns the bytes that the cluster has read for a row: all of it, also where the value is not sent.
    pub(crate) const fn bytes_read(&self, row: RowRef<'_>) -> u64 {
        row.stored_bytes() - row.value.len() as u64 + self.about.held
    }

    /// Returns the key of a row. Fails if another program has written a row without a valid key.
    pub(crate) fn key(&self) -> Result<Key, ClusterError> {
        let key = Key::new(self.place.partition.clone(), self.place.sort.clone());
        key.map_err(|_| ClusterError::damaged("a row has a key that is too long"))
    }
}

/// Reads a row: its place and the columns that its statement asks for.
fn found(mut columns: ColumnIterator<'_, '_>) -> Result<FoundRow, ClusterError> {
    let mut next = || {
        let column = columns.next();
        read(&column.ok_or_else(|| ClusterError::damaged("a column is missing"))??)
    };
    let place = StoredPlace::decode(next()?.unwrap_or_default());
    let place = place.ok_or_else(|| ClusterError::damaged("the place of a row is cut"))?;
    let about = About::decode(next()?.unwrap_or_default())?;
    let mut value = about
        .large
        .map(|large| Bytes::copy_from_slice(&large.encode()));
    // At most one of the two columns has bytes, or, of a fast write, the other one may have bytes of an earlier write.
    let mark = about.mark.as_ref().map_or(&[][..], |mark| mark);
    for (is_apart, column) in [false, true].into_iter().zip(columns) {
        let bytes = read(&column?)?;
        if mark.is_empty() || is_apart == about.is_apart() {
            let bytes = bytes.map(|bytes| bytes.slice(mark.len().min(bytes.len())..));
            value = value.or(bytes.filter(|bytes| !bytes.is_empty()));
        }
    }
    Ok(FoundRow {
        place,
        about,
        value: value.unwrap_or_default(),
    })
}

fn read(column: &RawColumn<'_, '_>) -> Result<Option<Bytes>, ClusterError> {
    Ok(Option::<Bytes>::deserialize(
        column.spec.typ(),
        column.slice,
    )?)
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
    let mut all = Vec::with_capacity(rows.rows_num());
    for row in rows.rows::<ColumnIterator<'_, '_>>()? {
        all.push(found(row?)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_sets_no_column_to_null() {
        for len in [0, VALUE_OF_WALK_MAX, VALUE_OF_WALK_MAX + 1] {
            let value = Bytes::from(vec![1; len]);
            let row = RowCells {
                value,
                ..RowCells::default()
            };
            let cells = row.bound();
            assert!(cells.iter().all(Option::is_some), "{cells:?}");
        }
    }
}
