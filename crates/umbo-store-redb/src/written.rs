//! Keys that clients have written in datasets that are being built, so that no row of a load replaces them.
//!
//! Owns the table `written`: `namespace (u32, big endian) | kind | rest of the physical key`. The value of a row is
//! empty. The value of a range is the rest of the first key beyond it. Ranges are disjoint. A removed row is in the
//! table like a row that was put. The invariant: a row of a dataset that is being built was put by its load, or is in
//! the table.

use redb::{ReadableTable, Table, WriteTransaction};
use umbo_types::NamespaceId;

use crate::bad_read::unisolated;
use crate::file_error::FileError;
use crate::key_codec;
use crate::tables::WRITTEN;

const ROW: u8 = 0;
const RANGE: u8 = 1;
const BEYOND_RANGES: u8 = 2;
const NAMESPACE_LEN: usize = 4;

/// The table within one transaction.
pub(crate) struct WrittenKeys<'txn>(Table<'txn, &'static [u8], &'static [u8]>);

impl<'txn> WrittenKeys<'txn> {
    /// Opens the table.
    pub(crate) fn of(transaction: &'txn WriteTransaction) -> Result<Self, FileError> {
        Ok(Self(unisolated(|| transaction.open_table(WRITTEN))?))
    }

    /// Returns whether any row of a dataset was written.
    pub(crate) fn has_any(&self, dataset: NamespaceId) -> Result<bool, FileError> {
        let (from, to) = (entry(dataset, ROW, &[]), entry(dataset, BEYOND_RANGES, &[]));
        Ok(self.0.range::<&[u8]>(&from[..]..&to[..])?.next().is_some())
    }

    /// Returns whether the row with a physical key was written.
    pub(crate) fn contains(&self, key: &[u8]) -> Result<bool, FileError> {
        if self.0.get(&entry_of(key, ROW)[..])?.is_some() {
            return Ok(true);
        }
        let from = entry_of(&key[..NAMESPACE_LEN], RANGE);
        let to = entry_of(key, RANGE);
        let before = self.0.range::<&[u8]>(&from[..]..=&to[..])?.next_back();
        let Some(before) = before.transpose()? else {
            return Ok(false);
        };
        Ok(before.1.value() > &key[NAMESPACE_LEN..])
    }

    /// Records that the row with a physical key was written.
    pub(crate) fn note_row(&mut self, key: &[u8]) -> Result<(), FileError> {
        self.0.insert(&entry_of(key, ROW)[..], &[][..])?;
        Ok(())
    }

    /// Records that all rows from `start` to `end` were removed; `end` is not included.
    pub(crate) fn note_range(&mut self, start: &[u8], end: &[u8]) -> Result<(), FileError> {
        let first = [&start[..NAMESPACE_LEN], &[RANGE]].concat();
        let (mut from, mut end) = (entry_of(start, RANGE), end[NAMESPACE_LEN..].to_vec());
        let before = self.0.range::<&[u8]>(&first[..]..&from[..])?.next_back();
        if let Some(before) = before.transpose()?
            && before.1.value() >= &start[NAMESPACE_LEN..]
        {
            end = end.max(before.1.value().to_vec());
            from = before.0.value().to_vec();
        }
        // Ranges that begin within this range, or at its end, become a part of it.
        let last = [&first[..], &end[..]].concat();
        let mut absorbed = Vec::new();
        for range in self.0.range::<&[u8]>(&from[..]..=&last[..])? {
            let (range, range_end) = range?;
            end = end.max(range_end.value().to_vec());
            absorbed.push(range.value().to_vec());
        }
        for range in absorbed {
            self.0.remove(&range[..])?;
        }
        self.0.insert(&from[..], &end[..])?;
        Ok(())
    }

    /// Forgets up to `entries_max` entries of datasets that are not being built, as `is_building` says. Returns whether
    /// more are left.
    pub(crate) fn forget(
        &mut self,
        entries_max: u32,
        is_building: impl Fn(NamespaceId) -> bool,
    ) -> Result<bool, FileError> {
        let mut gone: Vec<Vec<u8>> = Vec::new();
        let mut from = Vec::new();
        'datasets: loop {
            for written in self.0.range::<&[u8]>(&from[..]..)? {
                let written = written?.0;
                let Some(dataset) = key_codec::namespace_of(written.value()) else {
                    gone.push(written.value().to_vec());
                    continue;
                };
                if is_building(dataset) {
                    from = entry(dataset, u8::MAX, &[]);
                    continue 'datasets;
                }
                if gone.len() >= entries_max as usize {
                    break 'datasets;
                }
                gone.push(written.value().to_vec());
            }
            break;
        }
        for entry in &gone {
            self.0.remove(&entry[..])?;
        }
        Ok(gone.len() >= entries_max as usize)
    }
}

fn entry(dataset: NamespaceId, kind: u8, rest: &[u8]) -> Vec<u8> {
    [&dataset.0.to_be_bytes()[..], &[kind], rest].concat()
}

fn entry_of(key: &[u8], kind: u8) -> Vec<u8> {
    let (namespace, rest) = key.split_at(NAMESPACE_LEN);
    [namespace, &[kind], rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redb::{Database, backends::InMemoryBackend};
    use std::collections::BTreeSet;

    const DATASETS: [NamespaceId; 2] = [NamespaceId(7), NamespaceId(8)];

    fn physical(dataset: NamespaceId, at: u8) -> Vec<u8> {
        [&dataset.0.to_be_bytes()[..], &[at]].concat()
    }

    proptest! {
        #[test]
        fn the_table_agrees_with_a_set(
            steps in prop::collection::vec((0..2_usize, 0_u8..24, prop::option::of(1_u8..8)), 1..40),
        ) {
            let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
            let transaction = database.begin_write().unwrap();
            let mut written = WrittenKeys::of(&transaction).unwrap();
            let mut model = BTreeSet::new();
            for (dataset, at, len) in steps {
                let id = DATASETS[dataset];
                match len {
                    None => {
                        written.note_row(&physical(id, at)).unwrap();
                        model.insert((dataset, at));
                    }
                    Some(len) => {
                        written.note_range(&physical(id, at), &physical(id, at + len)).unwrap();
                        model.extend((at..at + len).map(|at| (dataset, at)));
                    }
                }
            }
            let agrees = |written: &WrittenKeys<'_>, model: &BTreeSet<(usize, u8)>| {
                (0..2).all(|dataset| {
                    let id = DATASETS[dataset];
                    let is_any = model.iter().any(|one| one.0 == dataset);
                    written.has_any(id).unwrap() == is_any
                        && (0..32).all(|at| {
                            let found = written.contains(&physical(id, at)).unwrap();
                            found == model.contains(&(dataset, at))
                        })
                })
            };
            prop_assert!(agrees(&written, &model));
            while written.forget(3, |id| id == DATASETS[1]).unwrap() {}
            model.retain(|one| one.0 == 1);
            prop_assert!(agrees(&written, &model));
        }
    }
}
