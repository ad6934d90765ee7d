//! A bounded window of lines, sorted by key before it is cut into batches: a storage engine takes rows in key
//! order several times faster than in random order. The sort is stable, so that of two lines with one key the
//! later one stays last.

use std::cmp::Ordering;

/// Memory of a line besides its bytes.
const OVERHEAD: usize = size_of::<WindowEntry>() + size_of::<(u128, u32)>();

/// Lines in memory, with their keys.
#[derive(Debug, Default)]
pub(super) struct SortWindow {
    lines: Vec<u8>,
    keys: Vec<u8>,
    entries: Vec<WindowEntry>,
    shared_prefix: usize,
    is_sorted: bool,
}

#[derive(Debug, Clone, Copy)]
struct WindowEntry {
    number: u64,
    line_at: u32,
    line_len: u32,
    key_at: u32,
    key_len: u16,
    partition_len: u16,
}

/// A line of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct SortedLine<'a> {
    /// The line without its newline.
    pub(super) line: &'a [u8],
    /// Number of the line in the file.
    pub(super) number: u64,
    /// Key of the line.
    pub(super) key: LineKey<'a>,
}

/// A key, ordered by its bytes, then by the length of the partition key, for keys with a zero byte where the
/// boundary between the two keys is ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineKey<'a> {
    bytes: &'a [u8],
    partition_len: u16,
}

impl LineKey<'_> {
    /// Returns a copy that outlives the window.
    pub(super) fn to_owned(self) -> LineKeyBuf {
        LineKeyBuf {
            bytes: self.bytes.to_vec(),
            partition_len: self.partition_len,
        }
    }

    /// Returns whether the key comes after `other`.
    pub(super) fn is_after(self, other: &LineKeyBuf) -> bool {
        let other = LineKey {
            bytes: &other.bytes,
            partition_len: other.partition_len,
        };
        self > other
    }
}

/// A key that outlives its window.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineKeyBuf {
    bytes: Vec<u8>,
    partition_len: u16,
}

impl SortWindow {
    /// Makes an empty window with room for this many bytes. Room is address space; only the used part becomes
    /// memory, and it is not copied as it would be in a growing buffer.
    pub(super) fn with_room(bytes: usize) -> Self {
        let mut window = Self::default();
        window.lines.reserve_exact(bytes);
        window
    }

    /// Returns the bytes in use.
    pub(super) fn bytes(&self) -> usize {
        self.lines.len() + self.keys.len() + self.entries.len() * OVERHEAD
    }

    /// Returns whether it has no lines.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the buffer to which the key of the next line is appended; [`SortWindow::push`] takes it.
    pub(super) fn keys(&mut self) -> &mut Vec<u8> {
        &mut self.keys
    }

    /// Adds a line whose key was just appended to [`SortWindow::keys`].
    pub(super) fn push(&mut self, line: &[u8], number: u64, partition_len: u16) {
        let key_at = self
            .entries
            .last()
            .map_or(0, |last| last.key_at + u32::from(last.key_len));
        let entry = WindowEntry {
            number,
            line_at: self.lines.len() as u32,
            line_len: line.len() as u32,
            key_at,
            key_len: (self.keys.len() - key_at as usize) as u16,
            partition_len,
        };
        self.lines.extend_from_slice(line);
        let key = self.key(&entry);
        let (is_sorted, shared_prefix) = match self.entries.last() {
            None => (true, key.bytes.len()),
            Some(last) => {
                let last = self.key(last);
                let shared = last.bytes[..self.shared_prefix].iter().zip(key.bytes);
                let shared = shared.take_while(|(one, other)| one == other).count();
                (self.is_sorted && last <= key, shared)
            }
        };
        self.is_sorted = is_sorted;
        self.shared_prefix = shared_prefix;
        self.entries.push(entry);
    }

    /// Sorts by key; lines with the same key keep their order.
    pub(super) fn sort(&mut self) {
        if self.is_sorted {
            return;
        }
        let leading = |entry: &WindowEntry| {
            // The 16 bytes after the common prefix decide nearly every comparison.
            let key = self.key(entry).bytes;
            let mut leading = [0; 16];
            let rest = &key[self.shared_prefix..];
            let len = rest.len().min(16);
            leading[..len].copy_from_slice(&rest[..len]);
            u128::from_be_bytes(leading)
        };
        let mut order: Vec<(u128, u32)> = (0..)
            .zip(&self.entries)
            .map(|(at, entry)| (leading(entry), at))
            .collect();
        let compare_keys = |one: u32, other: u32| -> Ordering {
            let key = |at: u32| self.key(&self.entries[at as usize]);
            key(one).cmp(&key(other))
        };
        order.sort_unstable_by(|one, other| {
            one.0
                .cmp(&other.0)
                .then_with(|| compare_keys(one.1, other.1))
                .then_with(|| one.1.cmp(&other.1))
        });
        let sorted = order.iter().map(|&(_, at)| self.entries[at as usize]);
        self.entries = sorted.collect();
        self.is_sorted = true;
    }

    /// Returns the lines in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = SortedLine<'_>> {
        self.entries.iter().map(|entry| self.placed(entry))
    }

    /// Returns the last line in order.
    pub(super) fn last(&self) -> Option<SortedLine<'_>> {
        self.entries.last().map(|entry| self.placed(entry))
    }

    /// Removes the lines and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.keys.clear();
        self.entries.clear();
    }

    fn placed(&self, entry: &WindowEntry) -> SortedLine<'_> {
        let start = entry.line_at as usize;
        SortedLine {
            line: &self.lines[start..start + entry.line_len as usize],
            number: entry.number,
            key: self.key(entry),
        }
    }

    fn key(&self, entry: &WindowEntry) -> LineKey<'_> {
        let start = entry.key_at as usize;
        LineKey {
            bytes: &self.keys[start..start + usize::from(entry.key_len)],
            partition_len: entry.partition_len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill(keys: &[(Vec<u8>, Vec<u8>)]) -> SortWindow {
        let mut window = SortWindow::default();
        for (number, (partition, sort)) in (0..).zip(keys) {
            let key = [&partition[..], b"\0", &sort[..]].concat();
            window.keys().extend_from_slice(&key);
            window.push(
                format!("line {number}").as_bytes(),
                number,
                partition.len() as u16,
            );
        }
        window
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_stable_sort(
            keys in prop::collection::vec(
                (prop::collection::vec(0_u8..3, 1..24), prop::collection::vec(0_u8..3, 0..4)), 0..40,
            ),
        ) {
            let mut window = fill(&keys);
            window.sort();
            let mut expected: Vec<usize> = (0..keys.len()).collect();
            expected.sort_by_key(|&at| {
                let (partition, sort) = &keys[at];
                ([&partition[..], b"\0", &sort[..]].concat(), partition.len())
            });
            let found: Vec<usize> = window.iter().map(|line| line.number as usize).collect();
            prop_assert_eq!(&found, &expected);
            for line in window.iter() {
                let text = format!("line {}", line.number);
                prop_assert_eq!(line.line, text.as_bytes());
            }
        }
    }

    #[test]
    fn equal_keys_are_equal_and_a_zero_byte_in_a_key_confuses_nothing() {
        let window = fill(&[
            (b"a".to_vec(), b"\0b".to_vec()),
            (b"a\0".to_vec(), b"b".to_vec()),
            (b"a".to_vec(), b"\0b".to_vec()),
        ]);
        let keys: Vec<_> = window.iter().map(|line| line.key).collect();
        assert_ne!(keys[0], keys[1]);
        assert_eq!(keys[0], keys[2]);
        assert!(keys[1].is_after(&keys[0].to_owned()));
        assert!(!keys[2].is_after(&keys[0].to_owned()));
    }

    #[test]
    fn a_cleared_window_starts_anew() {
        let mut window = fill(&[(b"b".to_vec(), vec![]), (b"a".to_vec(), vec![])]);
        window.sort();
        window.clear();
        assert!(window.is_empty() && window.bytes() == 0 && window.last().is_none());
        window.keys().extend_from_slice(b"c\0");
        window.push(b"x", 9, 1);
        assert_eq!(window.last().unwrap().key.bytes, b"c\0");
    }
}
