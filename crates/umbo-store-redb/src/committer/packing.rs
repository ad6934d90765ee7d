//! The changes of a commit in the order of their keys, with new rows that follow one another packed into full pages.
//!
//! If redb inserts row by row, it divides a full page in two halves, and ascending input never returns to fill them. So
//! rows that lie between two stored rows are inserted together, through a cursor that fills one page after the other.
//! The invariant: a packed row replaces no row.

use std::ops::Bound;

use redb::ReadableTable;
use umbo_store::{GIVES_WAY_EVERY, give_way};

use crate::committer::limits::PUT_GIVES_WAY_EVERY;
use crate::committer::plan::{KeyChange, RowEffect};
use crate::committer::writer::RowWriter;
use crate::file_error::FileError;
use crate::row_codec::{self, RowHead};

/// Fewest new rows that are packed: a page of 4 KiB holds this many rows of 256 bytes. Fewer rows cost more through a
/// cursor than one by one. In random order, one search for a run is made for this many rows.
const RUN_ROWS_MIN: usize = 16;

impl RowWriter<'_> {
    /// Makes changes, which are in the order of their keys, each key once. Returns the rows that they replace. Without
    /// `may_pack`, each page that a change needs is attributed to the row of the change.
    pub(crate) fn apply(
        &mut self,
        changes: &[KeyChange<'_>],
        may_pack: bool,
    ) -> Result<Vec<Option<RowHead>>, FileError> {
        let mut replaced = Vec::with_capacity(changes.len());
        let mut row = Vec::new();
        while replaced.len() < changes.len() {
            let rest = &changes[replaced.len()..];
            let run = if may_pack { self.run_len(rest)? } else { 0 };
            if run >= RUN_ROWS_MIN {
                self.pack(&rest[..run])?;
                replaced.resize(replaced.len() + run, None);
                continue;
            }
            for (key, effect) in rest.iter().take(RUN_ROWS_MIN) {
                give_way(replaced.len(), PUT_GIVES_WAY_EVERY);
                replaced.push(match effect {
                    RowEffect::None => None,
                    RowEffect::Remove => self.remove(key)?,
                    RowEffect::Put(head, value) => {
                        row_codec::encode(&mut row, key, *head, value);
                        self.put(key, *head, &row)?
                    }
                });
            }
        }
        Ok(replaced)
    }

    /// Returns the number of leading changes that put a row before the next stored row. Returns 0 for short runs.
    fn run_len(&self, changes: &[KeyChange<'_>]) -> Result<usize, FileError> {
        let is_put = |(_, effect): &&KeyChange<'_>| matches!(effect, RowEffect::Put(..));
        let puts = changes.iter().take_while(is_put).count();
        if puts < RUN_ROWS_MIN {
            return Ok(0);
        }
        self.trace.pack();
        let from = Bound::Included(changes[0].0);
        let next = self.rows.range::<&[u8]>((from, Bound::Unbounded))?.next();
        Ok(match next.transpose()? {
            Some((next, _)) => changes[..puts].partition_point(|(key, _)| *key < next.value()),
            None => puts,
        })
    }

    fn pack(&mut self, changes: &[KeyChange<'_>]) -> Result<(), FileError> {
        self.trace.pack();
        let len_max = |(_, effect): &KeyChange<'_>| match effect {
            RowEffect::Put(_, value) => row_codec::encoded_len_max(value),
            RowEffect::None | RowEffect::Remove => 0,
        };
        let mut rows = Vec::with_capacity(changes.iter().map(len_max).sum());
        let mut ends = Vec::with_capacity(changes.len());
        for (at, (key, effect)) in changes.iter().enumerate() {
            give_way(at, GIVES_WAY_EVERY);
            if let RowEffect::Put(head, value) = effect {
                row_codec::append(&mut rows, key, *head, value);
                ends.push((*key, *head, rows.len()));
            }
        }
        let mut from = 0;
        let first = Bound::Included(changes[0].0);
        let mut cursor = self.rows.lower_bound_mut(first)?;
        for (at, &(key, _, end)) in ends.iter().enumerate() {
            give_way(at, GIVES_WAY_EVERY);
            cursor.insert_before(key, &rows[from..end])?;
            from = end;
        }
        cursor.close()?;
        from = 0;
        for (at, (key, head, end)) in ends.into_iter().enumerate() {
            give_way(at, GIVES_WAY_EVERY);
            self.note_put(key, head, &rows[from..end], None);
            from = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;
    use redb::{Database, ReadableDatabase, ReadableTableMetadata, WriteTransaction};
    use umbo_types::{Timestamp, Value, Version};

    use super::*;
    use crate::committer::trace::CommitTrace;
    use crate::tables::{EXPIRY, ROWS};

    const PAGE: u64 = 4_096;

    fn database() -> Database {
        let builder = Database::builder();
        builder.create_with_backend(InMemoryBackend::new()).unwrap()
    }

    fn physical(namespace: u32, row: u32) -> Vec<u8> {
        [&namespace.to_be_bytes()[..], &row.to_be_bytes()].concat()
    }

    fn head(version: u64, expires_at: Option<u64>) -> RowHead {
        RowHead {
            version: Version(version),
            expires_at: expires_at.map(Timestamp),
            as_of: None,
        }
    }

    fn value(len: usize) -> Value {
        Value {
            bytes: vec![b'x'; len].into(),
            ..Value::default()
        }
    }

    fn put_all(
        transaction: &WriteTransaction,
        namespace: u32,
        rows: impl Iterator<Item = u32>,
        may_pack: bool,
    ) {
        let trace = CommitTrace::default();
        let mut writer = RowWriter::of(transaction, &trace).unwrap();
        let value = value(256);
        let keys: Vec<_> = rows.map(|row| physical(namespace, row)).collect();
        let put = RowEffect::Put(head(1, None), &value);
        let changes: Vec<_> = keys.iter().map(|key| (&key[..], put)).collect();
        writer.apply(&changes, may_pack).unwrap();
    }

    /// Percentage of the pages of the row table that rows take after 100 commits of 200 ascending ones, before other
    /// rows.
    fn filled(may_pack: bool) -> u64 {
        let database = database();
        for commit in 0..100_u32 {
            let transaction = database.begin_write().unwrap();
            if commit == 0 {
                put_all(&transaction, 9, 0..100, may_pack);
            }
            put_all(&transaction, 7, commit * 200..(commit + 1) * 200, may_pack);
            transaction.commit().unwrap();
        }
        let transaction = database.begin_write().unwrap();
        let stats = transaction.open_table(ROWS).unwrap().stats().unwrap();
        stats.stored_bytes() * 100 / (stats.leaf_pages() * PAGE)
    }

    #[test]
    fn ascending_rows_fill_their_pages_also_before_others() {
        let packed = filled(true);
        assert!(packed > 90, "{packed}");
        assert!(filled(false) < 60, "one by one they do not");
    }

    type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

    #[derive(Debug, Clone)]
    enum Step {
        Put(u32, usize, Option<u64>),
        Remove(u32),
        Run(u32, u32),
    }

    fn commits() -> impl Strategy<Value = Vec<Vec<Step>>> {
        let row = 0_u32..400;
        let step = prop_oneof![
            (row.clone(), 0_usize..600, prop::option::of(1_u64..9))
                .prop_map(|(row, len, at)| Step::Put(row, len, at)),
            row.clone().prop_map(Step::Remove),
            (row, 10_u32..60).prop_map(|(from, len)| Step::Run(from, len)),
        ];
        prop::collection::vec(prop::collection::vec(step, 1..20), 1..8)
    }

    /// Applies a commit; returns what it replaced and noted.
    fn apply(
        database: &Database,
        changes: &[KeyChange<'_>],
        may_pack: bool,
    ) -> (Vec<Option<RowHead>>, String) {
        let transaction = database.begin_write().unwrap();
        let trace = CommitTrace::default();
        let mut writer = RowWriter::of(&transaction, &trace).unwrap();
        let replaced = writer.apply(changes, may_pack).unwrap();
        writer.settle_index().unwrap();
        let noted = format!("{:?}", writer.into_changes());
        transaction.commit().unwrap();
        (replaced, noted)
    }

    /// Returns the entries of the row table, and those of the index.
    fn tables(database: &Database) -> (Entries, Vec<Vec<u8>>) {
        let transaction = database.begin_read().unwrap();
        let rows = transaction.open_table(ROWS).unwrap();
        let rows = rows.iter().unwrap().map(Result::unwrap);
        let rows = rows.map(|(key, row)| (key.value().to_vec(), row.value().to_vec()));
        let index = transaction.open_table(EXPIRY).unwrap();
        let index = index.iter().unwrap().map(Result::unwrap);
        let index = index.map(|(entry, _)| entry.value().to_vec());
        (rows.collect(), index.collect())
    }

    proptest! {
        #[test]
        fn packed_rows_are_as_rows_one_by_one(commits in commits()) {
            let (packed, plain) = (database(), database());
            for (version, steps) in (1..).zip(commits) {
                let mut puts: BTreeMap<u32, Option<(Value, Option<u64>)>> = BTreeMap::new();
                for step in steps {
                    match step {
                        Step::Put(row, len, at) => {
                            puts.insert(row, Some((value(len), at)));
                        }
                        Step::Remove(row) => {
                            puts.insert(row, None);
                        }
                        Step::Run(from, len) => {
                            puts.extend((from..from + len).map(|row| (row, Some((value(40), None)))));
                        }
                    }
                }
                let keys: Vec<_> = puts.keys().map(|row| physical(7, *row)).collect();
                let effects = puts.values().map(|put| match put {
                    Some((value, at)) => RowEffect::Put(head(version, *at), value),
                    None => RowEffect::Remove,
                });
                let changes: Vec<_> = keys.iter().map(Vec::as_slice).zip(effects).collect();
                prop_assert_eq!(apply(&packed, &changes, true), apply(&plain, &changes, false));
                prop_assert_eq!(tables(&packed), tables(&plain));
            }
        }
    }
}
