//! Rows that are put in the order of their keys, and their encoding in a sorted run.
//!
//! `flags u8 | partition key length u16 | sort key length u16 | media type length u8 | content encoding length u8 |
//! value length u32 | [expires_at u64] | partition key | sort key | media type | content encoding | value`, integers
//! big endian.
//!
//! Pure: stores nothing. The invariants: rows come out in the order of their keys, and rows with equal keys in the
//! order of their pushes; [`RowBytes`] reads exactly the rows that were pushed; and no bytes make it panic.

use bytes::{Buf, Bytes, BytesMut};
use umbo_store::Change;
use umbo_types::{Key, Timestamp, Value, Version};

const FLAG_PUT: u8 = 1;
const FLAG_EXPIRES: u8 = 2;
/// A runner of an earlier version takes such a row for damaged.
const FLAG_VERSION: u8 = 4;
/// Length of the fixed head of a row.
const HEAD_LEN: usize = 11;
const EXPIRY_LEN: usize = 8;
const VERSION_LEN: usize = 8;
/// Bytes of a partition key that rows are compared by first.
const PREFIX_LEN: usize = 8;

/// Rows that are to be sorted.
#[derive(Debug)]
pub(crate) struct SortBuffer {
    /// Encoded rows, in the order of their pushes.
    bytes: Vec<u8>,
    /// The beginning of each row's partition key, and the position of the row.
    rows: Vec<(u64, usize)>,
}

impl SortBuffer {
    /// Makes a buffer with room for `len` bytes of rows.
    pub(crate) fn with_capacity(len: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(len),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: &TakenRow) {
        let TakenRow {
            key,
            change,
            version,
        } = row;
        let (partition, sort) = (key.partition.as_bytes(), key.sort.as_bytes());
        self.rows.push((prefix_of(partition), self.bytes.len()));
        let (flags, value, expires_at) = match change {
            Change::Put { value, expires_at } => (FLAG_PUT, Some(value), *expires_at),
            // No file format has other changes.
            Change::Delete | Change::Increment { .. } | Change::Upload(_) => (0, None, None),
        };
        let expires = if expires_at.is_some() {
            FLAG_EXPIRES
        } else {
            0
        };
        let nothing = Value::default();
        let value = value.unwrap_or(&nothing);
        let out = &mut self.bytes;
        let has_version = version.map_or(0, |_| FLAG_VERSION);
        out.push(flags | expires | has_version);
        out.extend_from_slice(&(partition.len() as u16).to_be_bytes());
        out.extend_from_slice(&(sort.len() as u16).to_be_bytes());
        out.push(value.content_type.len() as u8);
        out.push(value.content_encoding.len() as u8);
        out.extend_from_slice(&(value.bytes.len() as u32).to_be_bytes());
        if let Some(at) = expires_at {
            out.extend_from_slice(&at.0.to_be_bytes());
        }
        if let Some(version) = version {
            out.extend_from_slice(&version.0.to_be_bytes());
        }
        out.extend_from_slice(partition);
        out.extend_from_slice(sort);
        out.extend_from_slice(&value.content_type);
        out.extend_from_slice(&value.content_encoding);
        out.extend_from_slice(&value.bytes);
    }

    /// Returns the bytes of the rows.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether there are no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Puts the rows in the order of their keys; rows with one key stay as they were pushed.
    pub(crate) fn sort(mut self) -> SortedRows {
        let bytes = &self.bytes[..];
        self.rows.sort_unstable_by(|one, other| {
            let keys = || keys_of(&bytes[one.1..]).cmp(&keys_of(&bytes[other.1..]));
            let by_key = one.0.cmp(&other.0).then_with(keys);
            by_key.then(one.1.cmp(&other.1))
        });
        SortedRows {
            buffer: self,
            next: 0,
            begun: 0,
        }
    }
}

/// Rows in the order of their keys. Some of their bytes may have been taken.
#[derive(Debug)]
pub(crate) struct SortedRows {
    buffer: SortBuffer,
    /// The row that is taken next, and the bytes of it that were taken.
    next: usize,
    begun: usize,
}

impl SortedRows {
    /// Takes the next `len` bytes, or fewer at the end of the rows. Returns `None` after the end.
    pub(crate) fn take(&mut self, len: usize) -> Option<Bytes> {
        let mut taken = BytesMut::with_capacity(len);
        while let Some(&(_, at)) = self.buffer.rows.get(self.next) {
            let row = &self.buffer.bytes[at..];
            let rest = &row[self.begun..len_of(row).unwrap_or(row.len())];
            let part = rest.len().min(len - taken.len());
            taken.extend_from_slice(&rest[..part]);
            if part < rest.len() {
                self.begun += part;
                break;
            }
            (self.next, self.begun) = (self.next + 1, 0);
        }
        (!taken.is_empty()).then(|| taken.freeze())
    }
}

/// Returns the first bytes of a partition key as a number. If the numbers of two keys differ, the key with the lower
/// number is lower.
fn prefix_of(partition: &[u8]) -> u64 {
    let mut prefix = [0; PREFIX_LEN];
    let len = partition.len().min(PREFIX_LEN);
    prefix[..len].copy_from_slice(&partition[..len]);
    u64::from_be_bytes(prefix)
}

/// The lengths of the fields of an encoded row.
struct Lens {
    partition: usize,
    sort: usize,
    content_type: usize,
    content_encoding: usize,
    value: usize,
    /// Position of the partition key.
    keys_at: usize,
}

impl Lens {
    /// Reads the lengths. Returns `None` if the row has fewer bytes than its head.
    fn of(bytes: &[u8]) -> Option<Self> {
        let head: &[u8; HEAD_LEN] = bytes.first_chunk()?;
        let [
            flags,
            p0,
            p1,
            s0,
            s1,
            content_type,
            content_encoding,
            v0,
            v1,
            v2,
            v3,
        ] = *head;
        let expiry = usize::from(flags & FLAG_EXPIRES != 0) * EXPIRY_LEN;
        let version = usize::from(flags & FLAG_VERSION != 0) * VERSION_LEN;
        Some(Self {
            partition: u16::from_be_bytes([p0, p1]).into(),
            sort: u16::from_be_bytes([s0, s1]).into(),
            content_type: content_type.into(),
            content_encoding: content_encoding.into(),
            value: u32::from_be_bytes([v0, v1, v2, v3]) as usize,
            keys_at: HEAD_LEN + expiry + version,
        })
    }

    const fn whole(&self) -> usize {
        let keys = self.keys_at + self.partition + self.sort;
        keys + self.content_type + self.content_encoding + self.value
    }
}

fn len_of(bytes: &[u8]) -> Option<usize> {
    Lens::of(bytes).map(|lens| lens.whole())
}

/// Returns the partition key and the sort key of a whole row.
fn keys_of(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let lens = Lens::of(bytes)?;
    let keys = bytes.get(lens.keys_at..)?;
    let (partition, rest) = keys.split_at_checked(lens.partition)?;
    Some((partition, rest.get(..lens.sort)?))
}

/// A row of a load.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TakenRow {
    pub(crate) key: Key,
    pub(crate) change: Change,
    /// The version that it keeps.
    pub(crate) version: Option<Version>,
}

impl TakenRow {
    /// Returns the key for comparing rows.
    pub(crate) fn order(&self) -> (u64, &[u8], &[u8]) {
        let partition = self.key.partition.as_bytes();
        (prefix_of(partition), partition, self.key.sort.as_bytes())
    }
}

/// The bytes of a sorted run that have been read so far.
#[derive(Debug, Default)]
pub(crate) struct RowBytes {
    bytes: Bytes,
    /// Bytes that were taken.
    taken: u64,
}

impl RowBytes {
    /// Begins after `taken` bytes of a run.
    pub(crate) fn after(taken: u64) -> Self {
        Self {
            bytes: Bytes::new(),
            taken,
        }
    }

    /// Adds the bytes that follow.
    pub(crate) fn add(&mut self, bytes: Bytes) {
        self.bytes = if self.bytes.is_empty() {
            bytes
        } else {
            [&self.bytes[..], &bytes].concat().into()
        };
    }

    /// Returns the position of the next row.
    pub(crate) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the position at which the bytes end.
    pub(crate) fn end(&self) -> u64 {
        self.taken + self.bytes.len() as u64
    }

    /// Takes the next row. Returns `None` if it is not complete, and an error if its bytes are not a row.
    pub(crate) fn take(&mut self) -> Result<Option<TakenRow>, NotARow> {
        let Some(lens) = Lens::of(&self.bytes) else {
            return Ok(None);
        };
        if self.bytes.len() < lens.whole() {
            return Ok(None);
        }
        let mut row = self.bytes.split_to(lens.whole());
        self.taken += row.len() as u64;
        let flags = row[0];
        row.advance(HEAD_LEN);
        let expires_at = (flags & FLAG_EXPIRES != 0).then(|| Timestamp(row.get_u64()));
        let version = (flags & FLAG_VERSION != 0).then(|| Version(row.get_u64()));
        let (partition, sort) = (row.split_to(lens.partition), row.split_to(lens.sort));
        let key = Key::new(partition, sort).map_err(|_| NotARow)?;
        let content_type = row.split_to(lens.content_type);
        let content_encoding = row.split_to(lens.content_encoding);
        let change = match flags & !(FLAG_EXPIRES | FLAG_VERSION) {
            FLAG_PUT => Change::Put {
                value: Value {
                    bytes: row,
                    content_type,
                    content_encoding,
                    ..Value::default()
                },
                expires_at,
            },
            0 => Change::Delete,
            _ => return Err(NotARow),
        };
        Ok(Some(TakenRow {
            key,
            change,
            version,
        }))
    }
}

/// The bytes of a sorted run are not a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotARow;

#[cfg(test)]
mod tests {
    use super::*;

    fn put(value: Vec<u8>, content_type: &'static str, expires_at: Option<u64>) -> Change {
        Change::Put {
            value: Value {
                bytes: value.into(),
                content_type: Bytes::from_static(content_type.as_bytes()),
                ..Value::default()
            },
            expires_at: expires_at.map(Timestamp),
        }
    }

    fn random_row(random: &mut fastrand::Rng) -> TakenRow {
        let mut bytes = |from, to| -> Vec<u8> {
            let len = random.usize(from..to);
            (0..len).map(|_| random.u8(0..3)).collect()
        };
        let key = Key::new(bytes(1, 12), bytes(0, 4)).unwrap();
        let value = bytes(0, 200);
        let change = match random.u8(0..4) {
            0 => Change::Delete,
            1 => put(value, "text/plain", Some(random.u64(..))),
            _ => put(value, "", None),
        };
        let version = random.bool().then(|| Version(random.u64(..)));
        TakenRow {
            key,
            change,
            version,
        }
    }

    /// Reads a run from an offset on, whose bytes come in chunks. Returns each row with where the next one begins.
    fn read(chunks: &[Bytes], from: u64) -> Vec<(TakenRow, u64)> {
        let (mut bytes, mut rows, mut end) = (RowBytes::after(from), Vec::new(), 0);
        for chunk in chunks {
            let begin = end;
            end += chunk.len() as u64;
            if end <= from {
                continue;
            }
            let skipped = from.saturating_sub(begin) as usize;
            bytes.add(chunk.slice(skipped..));
            while let Some(row) = bytes.take().unwrap() {
                rows.push((row, bytes.taken()));
            }
        }
        assert_eq!(bytes.taken(), end.max(from), "the last row is whole");
        rows
    }

    #[test]
    fn rows_come_back_in_order_and_equal_keys_in_theirs() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut rows: Vec<TakenRow> = (0..random.usize(..80))
                .map(|_| random_row(&mut random))
                .collect();
            let mut buffer = SortBuffer::with_capacity(100);
            for row in &rows {
                buffer.push(row);
            }
            let (mut sorted, len) = (buffer.sort(), random.usize(1..300));
            let chunks: Vec<Bytes> = std::iter::from_fn(|| sorted.take(len)).collect();
            // Stable.
            rows.sort_by(|one, other| one.key.cmp(&other.key));
            let found = read(&chunks, 0);
            let found_rows: Vec<_> = found.iter().map(|(row, _)| row.clone()).collect();
            assert_eq!(found_rows, rows, "seed {seed}");
            for (at, (_, next)) in found.iter().enumerate() {
                let rest: Vec<_> = read(&chunks, *next)
                    .into_iter()
                    .map(|(row, _)| row)
                    .collect();
                assert_eq!(rest, rows[at + 1..], "seed {seed}");
            }
        }
    }

    #[test]
    fn the_order_is_that_of_keys() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..2_000 {
            let (one, other) = (random_row(&mut random), random_row(&mut random));
            assert_eq!(one.order().cmp(&other.order()), one.key.cmp(&other.key));
        }
    }

    #[test]
    fn hostile_bytes_do_not_panic() {
        let mut random = fastrand::Rng::with_seed(9);
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(0..3)).collect();
            let mut rows = RowBytes::default();
            rows.add(bytes.into());
            while let Ok(Some(_)) = rows.take() {}
        }
    }
}
