//! Many rows in one buffer: a chunk of a range costs two allocations, instead of two per row.

use umbo_types::{StoredForm, Timestamp, Version};

/// A row of a batch, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRef<'a> {
    /// Partition key; empty in the rows of a range, whose partition is known.
    pub partition: &'a [u8],
    /// Sort key.
    pub sort: &'a [u8],
    /// Value, in its form; empty if only keys were requested.
    pub value: &'a [u8],
    /// Form of the value's bytes.
    pub form: StoredForm,
    /// Length of the value as the client stored it, even if only keys were requested.
    pub value_len: u32,
    /// Media type; empty if the row has no media type.
    pub content_type: &'a [u8],
    /// Content encoding; empty for the identity.
    pub content_encoding: &'a [u8],
    /// Version.
    pub version: Version,
    /// Expiry.
    pub expires_at: Option<Timestamp>,
}

impl RowRef<'_> {
    /// Returns the bytes of the row as it is stored: keys, media type, content encoding and value, in its form. The
    /// value must not have been left out.
    pub const fn stored_bytes(&self) -> u64 {
        let keys = self.partition.len() + self.sort.len();
        let types = self.content_type.len() + self.content_encoding.len();
        (keys + types + self.value.len()) as u64
    }

    /// Returns the bytes that a reader gets of the row: keys, and the value unless it is left out.
    pub const fn returned_bytes(&self) -> usize {
        let value = match self.form {
            _ if self.value.is_empty() => 0,
            StoredForm::Plain | StoredForm::Zstd => self.value_len as usize,
            // A reader gets the reference of a large value, not its bytes.
            StoredForm::Large => self.value.len(),
        };
        self.partition.len() + self.sort.len() + value
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowPlace {
    /// Where the row's bytes begin: partition, sort, content type, content encoding, value.
    start: usize,
    partition_len: u16,
    sort_len: u16,
    type_len: u8,
    encoding_len: u8,
    held_len: u32,
    form: StoredForm,
    value_len: u32,
    version: Version,
    expires_at: Option<Timestamp>,
}

/// Rows in order, in one buffer. Lengths are bounded by the limits of the data model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowBatch {
    buffer: Vec<u8>,
    entries: Vec<RowPlace>,
}

impl RowBatch {
    /// Reserves capacity for more rows with `bytes` bytes together, so that adding them does not reallocate.
    pub fn reserve(&mut self, rows: usize, bytes: usize) {
        self.entries.reserve(rows);
        self.buffer.reserve(bytes);
    }

    /// Adds a copy of a row at the end.
    pub fn push(&mut self, row: RowRef<'_>) {
        let start = self.buffer.len();
        for part in [
            row.partition,
            row.sort,
            row.content_type,
            row.content_encoding,
            row.value,
        ] {
            self.buffer.extend_from_slice(part);
        }
        self.entries.push(RowPlace {
            start,
            partition_len: row.partition.len() as u16,
            sort_len: row.sort.len() as u16,
            type_len: row.content_type.len() as u8,
            encoding_len: row.content_encoding.len() as u8,
            held_len: row.value.len() as u32,
            form: row.form,
            value_len: row.value_len,
            version: row.version,
            expires_at: row.expires_at,
        });
    }

    /// Returns the rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RowRef<'_>> {
        self.entries.iter().map(|entry| {
            let mut rest = &self.buffer[entry.start..];
            let mut take = |len: usize| {
                let (part, after) = rest.split_at(len);
                rest = after;
                part
            };
            RowRef {
                partition: take(entry.partition_len.into()),
                sort: take(entry.sort_len.into()),
                content_type: take(entry.type_len.into()),
                content_encoding: take(entry.encoding_len.into()),
                value: take(entry.held_len as usize),
                form: entry.form,
                value_len: entry.value_len,
                version: entry.version,
                expires_at: entry.expires_at,
            }
        })
    }

    /// Returns the bytes of all rows, one after the other: partition key, sort key, content type,
    /// content encoding, value.
    pub fn buffer(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the content of [`Self::buffer`], without a copy.
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// Returns the length of the buffer once its compressed values are in the plain form.
    pub fn plain_bytes(&self) -> usize {
        let grown = |entry: &RowPlace| match (entry.held_len, entry.form) {
            (0, _) | (_, StoredForm::Plain | StoredForm::Large) => 0,
            (held, StoredForm::Zstd) => (entry.value_len as usize).saturating_sub(held as usize),
        };
        self.buffer.len() + self.entries.iter().map(grown).sum::<usize>()
    }

    /// Sets the form of the row at a place. Returns `None` if the place has no row.
    pub fn set_form(&mut self, place: usize, form: StoredForm) -> Option<()> {
        self.entries.get_mut(place)?.form = form;
        Some(())
    }

    /// Returns the places of the rows that are not in the plain form, with their forms.
    pub fn forms(&self) -> impl Iterator<Item = (usize, StoredForm)> {
        let forms = self.entries.iter().map(|entry| entry.form).enumerate();
        forms.filter(|(_, form)| *form != StoredForm::Plain)
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the memory of the batch, in bytes.
    pub fn memory(&self) -> usize {
        self.buffer.capacity() + self.entries.capacity() * size_of::<RowPlace>()
    }

    /// Returns the bytes of all keys, media types and values held.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_they_went_in() {
        let rows = [
            RowRef {
                partition: b"p",
                sort: b"",
                value: b"v\0\xff",
                form: StoredForm::Plain,
                value_len: 3,
                content_type: b"text/plain",
                content_encoding: b"",
                version: Version(7),
                expires_at: None,
            },
            RowRef {
                partition: b"",
                sort: b"s",
                value: b"",
                form: StoredForm::Zstd,
                value_len: 99,
                content_type: b"",
                content_encoding: b"gzip",
                version: Version(8),
                expires_at: Some(Timestamp(5)),
            },
        ];
        let mut batch = RowBatch::default();
        for row in rows {
            batch.push(row);
        }
        assert_eq!(batch.iter().collect::<Vec<_>>(), rows);
        assert_eq!((batch.len(), batch.bytes()), (2, 1 + 3 + 10 + 1 + 4));
    }
}
