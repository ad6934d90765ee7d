//! The rows of a chunk as the text of the answer, written while the store reads them.

use std::mem;

use bytes::Bytes;
use umbo_api::row::{RowFields, ValueField};
use umbo_http::decode::Layout;
use umbo_store::{RowRef, RowSink, compression};
use umbo_types::{LargeRef, StoredForm};

/// Text of a row without its keys and value, in bytes: names, version and punctuation.
const ROW_TEXT_LEN: usize = 64;
/// Longest end line of most pages, in bytes.
const END_TEXT_LEN: usize = 256;

/// The form of the rows of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowShape {
    pub(crate) layout: Layout,
    /// Whether rows name their partition.
    pub(crate) with_partition: bool,
    /// Whether the length of a value stands for it.
    pub(crate) keys_only: bool,
}

/// The text of a chunk.
#[derive(Debug)]
pub(crate) struct ChunkText {
    shape: RowShape,
    text: Vec<u8>,
    /// Begin of the rows that may be read again.
    begin: usize,
    rows: u64,
    bytes: u64,
    /// Number and bytes of the rows before these.
    kept: (u64, u64),
    /// Buffer of decompressed values.
    room: Vec<u8>,
    /// Partition of the first row whose value cannot be decompressed; no row is written from there on.
    damaged: Option<Bytes>,
}

/// The rows of a chunk that has been read.
#[derive(Debug)]
pub(crate) struct WrittenRows {
    /// Text of the rows, with room for the end line.
    pub(crate) text: Vec<u8>,
    /// Number of the rows.
    pub(crate) rows: u64,
    /// The bytes of their keys, media types and values, as the client stored them.
    pub(crate) bytes: u64,
}

impl ChunkText {
    /// Begins the text of a page.
    pub(crate) fn new(shape: RowShape) -> Self {
        let text = match shape.layout {
            Layout::Lines => Vec::new(),
            Layout::Array => b"[".to_vec(),
        };
        Self {
            shape,
            begin: text.len(),
            text,
            rows: 0,
            bytes: 0,
            kept: (0, 0),
            room: Vec::new(),
            damaged: None,
        }
    }

    /// Returns the form of the rows.
    pub(crate) const fn shape(&self) -> RowShape {
        self.shape
    }

    /// Returns the number of its rows and their bytes, and keeps them: rows that follow may be read again, but not
    /// these.
    pub(crate) fn keep(&mut self) -> (u64, u64) {
        self.begin = self.text.len();
        self.kept = (self.rows, self.bytes);
        self.kept
    }

    /// Returns whether a row was read whose value is damaged.
    pub(crate) const fn is_damaged(&self) -> bool {
        self.damaged.is_some()
    }

    /// Takes the chunk, and begins the next one. Fails with the partition of a row whose value is damaged.
    pub(crate) fn take(&mut self) -> Result<WrittenRows, Bytes> {
        if let Some(partition) = self.damaged.take() {
            return Err(partition);
        }
        (self.begin, self.kept) = (0, (0, 0));
        // A slow client makes the next chunk wait: it shall hold no more than the text.
        self.room = Vec::new();
        let mut text = mem::take(&mut self.text);
        text.reserve(END_TEXT_LEN);
        // The store reserved room for more rows than it found.
        if text.capacity() / 2 > text.len() + END_TEXT_LEN {
            text.shrink_to(text.len() + END_TEXT_LEN);
        }
        Ok(WrittenRows {
            text,
            rows: mem::take(&mut self.rows),
            bytes: mem::take(&mut self.bytes),
        })
    }
}

impl RowSink for ChunkText {
    fn reserve(&mut self, rows: usize, bytes: usize) {
        self.text
            .reserve(rows * ROW_TEXT_LEN + bytes + END_TEXT_LEN);
    }

    fn push(&mut self, row: RowRef<'_>) {
        if self.damaged.is_some() {
            return;
        }
        let value = if self.shape.keys_only {
            row.value
        } else {
            let Ok(plain) = compression::plain_bytes(row.form, row.value, &mut self.room) else {
                self.damaged = Some(Bytes::copy_from_slice(row.partition));
                return;
            };
            plain
        };
        let keys = row.partition.len() + row.sort.len();
        let types = row.content_type.len() + row.content_encoding.len();
        self.rows += 1;
        self.bytes += (keys + types + value.len()) as u64;
        let fields = RowFields {
            partition: self.shape.with_partition.then_some(row.partition),
            sort: row.sort,
            version: row.version.0,
            expires_at: row.expires_at.map(umbo_types::Timestamp::as_millis),
            content_type: row.content_type,
            content_encoding: row.content_encoding,
            value: if self.shape.keys_only {
                ValueField::Len(row.value_len.into())
            } else {
                value_field(row.form, value)
            },
        };
        self.text.push(b'{');
        fields.write(&mut self.text);
        self.text.extend_from_slice(match self.shape.layout {
            Layout::Lines => b"}\n",
            Layout::Array => b"},\n",
        });
    }

    fn clear(&mut self) {
        self.text.truncate(self.begin);
        (self.rows, self.bytes) = self.kept;
        self.damaged = None;
    }
}

/// Returns the field of a value that is plain or large.
pub(crate) fn value_field(form: StoredForm, value: &[u8]) -> ValueField<'_> {
    if form == StoredForm::Large
        && let Some(large) = LargeRef::decode(value)
    {
        return ValueField::Large {
            len: large.len,
            sha256: large.sha256,
        };
    }
    ValueField::Bytes(value)
}

#[cfg(test)]
mod tests {
    use umbo_store::RowBatch;
    use umbo_types::Version;

    use super::*;

    fn row<'a>(sort: &'a [u8], value: &'a [u8], form: StoredForm) -> RowRef<'a> {
        RowRef {
            partition: b"p",
            sort,
            value,
            form,
            value_len: value.len() as u32,
            content_type: b"",
            content_encoding: b"",
            version: Version(7),
            expires_at: None,
        }
    }

    fn array(keys_only: bool) -> ChunkText {
        ChunkText::new(RowShape {
            layout: Layout::Array,
            with_partition: true,
            keys_only,
        })
    }

    fn text(chunk: &mut ChunkText) -> String {
        String::from_utf8(chunk.take().unwrap().text).unwrap()
    }

    #[test]
    fn rows_that_are_read_again_are_written_once_and_an_array_begins_once() {
        let mut chunk = array(false);
        chunk.push(row(b"lost", b"v", StoredForm::Plain));
        chunk.clear();
        let mut rows = RowBatch::default();
        rows.push(row(b"a", b"1", StoredForm::Plain));
        rows.push(row(b"b", b"22", StoredForm::Plain));
        chunk.append(&rows);
        let written = chunk.take().unwrap();
        let expected = "[{\"pk\":\"p\",\"sk\":\"a\",\"version\":7,\"v\":\"1\"},\n\
            {\"pk\":\"p\",\"sk\":\"b\",\"version\":7,\"v\":\"22\"},\n";
        assert_eq!(String::from_utf8(written.text).unwrap(), expected);
        assert_eq!((written.rows, written.bytes), (2, 7));
        chunk.push(row(b"c", b"3", StoredForm::Plain));
        chunk.clear();
        assert_eq!(text(&mut chunk), "");
    }

    #[test]
    fn rows_that_are_kept_are_not_read_again() {
        let mut chunk = array(false);
        chunk.push(row(b"a", b"1", StoredForm::Plain));
        assert_eq!(chunk.keep(), (1, 3));
        chunk.push(row(b"lost", b"v", StoredForm::Plain));
        chunk.clear();
        chunk.push(row(b"b", b"22", StoredForm::Plain));
        assert_eq!(chunk.keep(), (2, 7));
        let written = chunk.take().unwrap();
        assert_eq!((written.rows, written.bytes), (2, 7));
        assert!(!String::from_utf8(written.text).unwrap().contains("lost"));
        assert_eq!(chunk.keep(), (0, 0));
    }

    #[test]
    fn a_damaged_value_fails_the_chunk_unless_it_is_left_out_or_read_again() {
        let damaged = row(b"a", b"no frame", StoredForm::Zstd);
        let mut chunk = array(false);
        chunk.push(damaged);
        chunk.push(row(b"b", b"", StoredForm::Plain));
        assert_eq!(chunk.take().unwrap_err(), "p");
        chunk.push(damaged);
        chunk.clear();
        chunk.take().unwrap();
        let mut keys = array(true);
        keys.push(damaged);
        let expected = "[{\"pk\":\"p\",\"sk\":\"a\",\"version\":7,\"bytes\":8},\n";
        assert_eq!(text(&mut keys), expected);
    }

    #[test]
    fn room_that_no_row_has_taken_is_given_back() {
        let mut chunk = array(false);
        chunk.reserve(100, 50_000);
        chunk.push(row(b"a", b"1", StoredForm::Plain));
        assert!(chunk.take().unwrap().text.capacity() < 1_000);
    }
}
