//! Rows and idempotency records that are in the log of a shard and not yet in its file, in memory and in order.
//!
//! The committer alone adds rows. Readers never wait for it: a memtable keeps each row with the number of its group,
//! and an [`Overlay`] names the last group that its readers see. The invariant: an overlay does not change.

use std::borrow::Borrow;
use std::cmp::{Ordering, Reverse};
use std::ops::Bound;
use std::sync::Arc;

use crossbeam_skiplist::SkipMap;
use crossbeam_skiplist::map::Entry;

use crate::sizes::SizeChanges;

/// An encoded row, or `None` for a removal.
pub(crate) type ChangedRow = Option<Box<[u8]>>;

/// Bounds of a walk over physical keys.
pub(crate) type KeyBounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A change of a row, by its key and the number of its group. The versions of a key are ordered from the newest.
struct VersionKey {
    key: Box<[u8]>,
    sequence: u64,
}

/// A key and the number of a group, owned or borrowed.
trait AsVersion {
    fn version(&self) -> (&[u8], Reverse<u64>);
}

impl AsVersion for VersionKey {
    fn version(&self) -> (&[u8], Reverse<u64>) {
        (&self.key, Reverse(self.sequence))
    }
}

impl AsVersion for (&[u8], u64) {
    fn version(&self) -> (&[u8], Reverse<u64>) {
        (self.0, Reverse(self.1))
    }
}

impl<'a> Borrow<dyn AsVersion + 'a> for VersionKey {
    fn borrow(&self) -> &(dyn AsVersion + 'a) {
        self
    }
}

impl Ord for dyn AsVersion + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        self.version().cmp(&other.version())
    }
}

impl PartialOrd for dyn AsVersion + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn AsVersion + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.version() == other.version()
    }
}

impl Eq for dyn AsVersion + '_ {}

impl Ord for VersionKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.version().cmp(&other.version())
    }
}

impl PartialOrd for VersionKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for VersionKey {
    fn eq(&self, other: &Self) -> bool {
        self.version() == other.version()
    }
}

impl Eq for VersionKey {}

type VersionEntry<'a> = Entry<'a, VersionKey, ChangedRow>;

/// Rows of consecutive groups of the log.
#[derive(Default)]
pub(crate) struct Memtable(SkipMap<VersionKey, ChangedRow>);

impl Memtable {
    /// Adds a change of a group.
    pub(crate) fn insert(&self, sequence: u64, key: Box<[u8]>, row: ChangedRow) {
        self.0.insert(VersionKey { key, sequence }, row);
    }

    /// Returns whether it has a change of a row up to a group.
    pub(crate) fn has(&self, key: &[u8], visible: u64) -> bool {
        self.newest(key, visible).is_some()
    }

    /// Returns the newest version of a key up to a group.
    fn newest(&self, key: &[u8], visible: u64) -> Option<VersionEntry<'_>> {
        let version = (key, visible);
        let from: &dyn AsVersion = &version;
        let entry = self.0.lower_bound(Bound::Included(from))?;
        (*entry.key().key == *key).then_some(entry)
    }

    /// Returns the newest visible version of the next key within bounds, in one direction.
    fn next(
        &self,
        (first, last): KeyBounds<'_>,
        is_reverse: bool,
        visible: u64,
    ) -> Option<VersionEntry<'_>> {
        let mut edge = if is_reverse { last } else { first }.map(<[u8]>::to_vec);
        loop {
            let found = match (&edge, is_reverse) {
                (Bound::Unbounded, false) => self.0.front(),
                (Bound::Unbounded, true) => self.0.back(),
                // The versions of a key are ordered from the newest.
                (Bound::Included(key), false) => self.from(&key[..], u64::MAX, true),
                (Bound::Excluded(key), false) => self.from(&key[..], 0, false),
                (Bound::Included(key), true) => self.until(&key[..], 0, true),
                (Bound::Excluded(key), true) => self.until(&key[..], u64::MAX, false),
            }?;
            let key = &*found.key().key;
            let is_beyond = match if is_reverse { first } else { last } {
                Bound::Unbounded => false,
                Bound::Included(end) if is_reverse => key < end,
                Bound::Excluded(end) if is_reverse => key <= end,
                Bound::Included(end) => key > end,
                Bound::Excluded(end) => key >= end,
            };
            if is_beyond {
                return None;
            }
            if let Some(newest) = self.newest(key, visible) {
                return Some(newest);
            }
            edge = Bound::Excluded(key.to_vec());
        }
    }

    fn from(&self, key: &[u8], sequence: u64, is_included: bool) -> Option<VersionEntry<'_>> {
        let version = (key, sequence);
        let version: &dyn AsVersion = &version;
        self.0.lower_bound(bound(version, is_included))
    }

    fn until(&self, key: &[u8], sequence: u64, is_included: bool) -> Option<VersionEntry<'_>> {
        let version = (key, sequence);
        let version: &dyn AsVersion = &version;
        self.0.upper_bound(bound(version, is_included))
    }
}

/// A memtable that gets no further rows.
pub(crate) struct Frozen {
    pub(crate) table: Arc<Memtable>,
    /// Number of its last group.
    pub(crate) last: u64,
    /// How its rows change the sizes of namespaces.
    pub(crate) sizes: SizeChanges,
}

impl Frozen {
    /// Returns the memtable, and the number of its last group.
    pub(crate) fn table(&self) -> (Arc<Memtable>, u64) {
        (Arc::clone(&self.table), self.last)
    }
}

fn bound<T: ?Sized>(at: &T, is_included: bool) -> Bound<&T> {
    if is_included {
        Bound::Included(at)
    } else {
        Bound::Excluded(at)
    }
}

/// Memtables of a shard from the newest, each with the number of the newest group that readers see.
#[derive(Clone, Default)]
pub(crate) struct Overlay(Vec<(Arc<Memtable>, u64)>);

impl Overlay {
    /// Puts memtables over the file, the newest first.
    pub(crate) fn new(tables: Vec<(Arc<Memtable>, u64)>) -> Self {
        Self(tables)
    }

    /// Puts its memtables over older ones.
    pub(crate) fn over(mut self, older: &Self) -> Self {
        self.0.extend(older.0.iter().cloned());
        self
    }

    /// Returns whether it has no memtable.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys of its changes, in order.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        let mut changes = self.walk((Bound::Unbounded, Bound::Unbounded), false);
        while let Some((key, _)) = changes.peek() {
            keys.push(key.to_vec());
            changes.advance();
        }
        keys
    }

    /// Puts changes over the file. Readers see the last change of each key.
    pub(crate) fn of(changes: impl Iterator<Item = (Box<[u8]>, ChangedRow)>) -> Self {
        let table = Memtable::default();
        for (key, row) in changes {
            table.insert(0, key, row);
        }
        Self(vec![(Arc::new(table), 0)])
    }

    /// Calls `read` with the newest change of a row. Returns `None` for a row without a change.
    #[inline]
    pub(crate) fn get<T>(&self, key: &[u8], read: impl FnOnce(Option<&[u8]>) -> T) -> Option<T> {
        let mut tables = self.0.iter();
        let entry = tables.find_map(|(table, visible)| table.newest(key, *visible))?;
        Some(read(entry.value().as_deref()))
    }

    /// Begins a walk over the newest changes within bounds.
    pub(crate) fn walk<'a>(&'a self, bounds: KeyBounds<'a>, is_reverse: bool) -> OverlayWalk<'a> {
        let heads = self.0.iter().map(|(table, visible)| WalkHead {
            table,
            visible: *visible,
            entry: table.next(bounds, is_reverse, *visible),
        });
        OverlayWalk {
            heads: heads.collect(),
            bounds,
            is_reverse,
        }
    }
}

struct WalkHead<'a> {
    table: &'a Memtable,
    visible: u64,
    entry: Option<VersionEntry<'a>>,
}

/// A walk over the newest change of each key.
pub(crate) struct OverlayWalk<'a> {
    heads: Vec<WalkHead<'a>>,
    bounds: KeyBounds<'a>,
    is_reverse: bool,
}

impl<'a> OverlayWalk<'a> {
    /// Returns the next change, with its key.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(&[u8], Option<&[u8]>)> {
        if self.heads.is_empty() {
            return None;
        }
        self.first()
    }

    fn first(&self) -> Option<(&[u8], Option<&[u8]>)> {
        let mut first: Option<&VersionEntry<'a>> = None;
        // A newer memtable stands before an older one, so of two changes of a key the newer one stays.
        for entry in self.heads.iter().filter_map(|head| head.entry.as_ref()) {
            let is_before = first.is_none_or(|first| {
                let (key, first) = (&entry.key().key, &first.key().key);
                if self.is_reverse {
                    key > first
                } else {
                    key < first
                }
            });
            if is_before {
                first = Some(entry);
            }
        }
        first.map(|entry| (&*entry.key().key, entry.value().as_deref()))
    }

    /// Goes on to the next key.
    pub(crate) fn advance(&mut self) {
        let Some(key) = self.first().map(|(key, _)| key.to_vec()) else {
            return;
        };
        let rest = if self.is_reverse {
            (self.bounds.0, Bound::Excluded(&key[..]))
        } else {
            (Bound::Excluded(&key[..]), self.bounds.1)
        };
        for head in &mut self.heads {
            let is_at = |entry: &VersionEntry<'_>| *entry.key().key == *key;
            if head.entry.as_ref().is_some_and(is_at) {
                head.entry = head.table.next(rest, self.is_reverse, head.visible);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn walked(overlay: &Overlay, bounds: KeyBounds<'_>, is_reverse: bool) -> Vec<(u8, Option<u8>)> {
        let mut walk = overlay.walk(bounds, is_reverse);
        let mut found = Vec::new();
        while let Some((key, row)) = walk.peek() {
            found.push((key[0], row.map(|row| row[0])));
            walk.advance();
        }
        found
    }

    proptest! {
        #[test]
        fn reads_see_the_last_published_change_of_each_key(
            groups in prop::collection::vec(prop::collection::vec((0_u8..12, prop::option::of(any::<u8>())), 1..6), 0..12),
            frozen in 0_usize..12,
            unseen in prop::collection::vec((0_u8..12, prop::option::of(any::<u8>())), 0..6),
            from in 0_u8..12,
            to in 0_u8..12,
            is_reverse: bool,
        ) {
            let tables = [Arc::new(Memtable::default()), Arc::new(Memtable::default())];
            let (mut expected, mut visible) = (BTreeMap::new(), [0, 0]);
            for (at, group) in groups.iter().enumerate() {
                let (table, sequence) = (&tables[usize::from(at < frozen)], at as u64 + 1);
                // A group changes each key once.
                for (key, row) in group.iter().copied().collect::<BTreeMap<_, _>>() {
                    table.insert(sequence, [key].into(), row.map(|row| [row].into()));
                    expected.insert(key, row);
                }
                visible[usize::from(at < frozen)] = sequence;
            }
            for (key, row) in &unseen {
                tables[0].insert(groups.len() as u64 + 1, [*key].into(), row.map(|row| [row].into()));
            }
            let overlay = Overlay::new(tables.into_iter().zip(visible).collect());
            for key in 0..12 {
                let read = overlay.get(&[key], |row| row.map(|row| row[0]));
                prop_assert_eq!(read, expected.get(&key).copied());
            }
            let (from, to) = (from.min(to), from.max(to));
            let (first, last) = ([from], [to]);
            for (bounds, keys) in [
                ((Bound::Included(&first[..]), Bound::Excluded(&last[..])), from..to),
                ((Bound::Excluded(&first[..]), Bound::Included(&last[..])), from + 1..to + 1),
                ((Bound::Unbounded, Bound::Unbounded), 0..12),
            ] {
                if keys.is_empty() {
                    continue;
                }
                let mut seen: Vec<_> = expected.range(keys).map(|(key, row)| (*key, *row)).collect();
                if is_reverse {
                    seen.reverse();
                }
                prop_assert_eq!(walked(&overlay, bounds, is_reverse), seen);
            }
        }
    }
}
