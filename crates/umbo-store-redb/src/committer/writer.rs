//! Changing rows within a transaction, with the expiry index kept in step.
//!
//! Owns every change of the row table and of the index. The invariant: after
//! [`RowWriter::settle_index`] the index names exactly the rows that have an expiry, apart from
//! entries that damage has orphaned, which [`RowWriter::sweep`] removes.

use std::ops::Bound;

use bytes::Bytes;
use redb::{ReadableTable, Table, WriteTransaction};
use umbo_types::Timestamp;

use crate::committer::plan::Base;
use crate::failure::Failure;
use crate::row_codec::{self, RowHead};
use crate::tables::{EXPIRY, ROWS, expiry_entry, next_expiry, split_expiry_entry};

/// A change that an asynchronous commit made, kept until it is on the disk.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// Physical key.
    pub(crate) key: Box<[u8]>,
    /// Encoded row; none for a removal.
    pub(crate) row: Option<Box<[u8]>>,
}

impl Change {
    /// Returns the memory it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.row.as_ref().map_or(0, |row| row.len())
    }
}

/// What the removal of a range came to.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    /// Rows removed, visible or not.
    pub(crate) rows: u64,
    /// Visible ones among them.
    pub(crate) visible_rows: u64,
    /// Bytes of the sort keys and values of the visible ones.
    pub(crate) visible_bytes: u64,
    /// Sort key of the last row removed, where rows remain.
    pub(crate) resume_after: Option<Bytes>,
    /// Whether rows remain.
    pub(crate) has_more: bool,
}

/// What one step of the sweeper came to.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Swept {
    /// Rows reclaimed.
    pub(crate) rows: u64,
    /// Expiry of the next row in the index.
    pub(crate) next_expiry: Option<Timestamp>,
}

/// The tables of a shard within one transaction.
pub(crate) struct RowWriter<'txn> {
    rows: Table<'txn, &'static [u8], &'static [u8]>,
    expiry: Table<'txn, &'static [u8], ()>,
    index_gone: Vec<Vec<u8>>,
    index_new: Vec<Vec<u8>>,
    log: Option<Vec<Change>>,
}

impl<'txn> RowWriter<'txn> {
    /// Opens the tables. Changes are logged where asked for.
    pub(crate) fn of(
        transaction: &'txn WriteTransaction,
        is_logged: bool,
    ) -> Result<Self, Failure> {
        Ok(Self {
            rows: transaction.open_table(ROWS)?,
            expiry: transaction.open_table(EXPIRY)?,
            index_gone: Vec::new(),
            index_new: Vec::new(),
            log: is_logged.then(Vec::new),
        })
    }

    /// Returns the changes made, where they were logged.
    pub(crate) fn into_log(self) -> Vec<Change> {
        self.log.unwrap_or_default()
    }

    /// Reads what a condition needs to know of a row.
    pub(crate) fn base(&self, key: &[u8]) -> Result<Base, Failure> {
        let Some(guard) = self.rows.get(key)? else {
            return Ok(Base::Row(None));
        };
        Ok(match row_codec::decode(key, guard.value()) {
            Ok(row) => Base::Row(Some(row.head)),
            Err(damage) => Base::Damaged(damage.to_string()),
        })
    }

    /// Stores a row and returns the one that it replaces.
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        head: RowHead,
        row: &[u8],
    ) -> Result<Option<RowHead>, Failure> {
        let old = head_of(self.rows.insert(key, row)?);
        let old_expiry = old.and_then(|head| head.expires_at);
        if old_expiry != head.expires_at {
            self.forget_expiry(old_expiry, key);
            if let Some(at) = head.expires_at {
                self.index_new.push(expiry_entry(at, key));
            }
        }
        if let Some(log) = &mut self.log {
            log.push(Change {
                key: key.into(),
                row: Some(row.into()),
            });
        }
        Ok(old)
    }

    /// Removes a row and returns it.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Result<Option<RowHead>, Failure> {
        let old = head_of(self.rows.remove(key)?);
        self.forget_expiry(old.and_then(|head| head.expires_at), key);
        if let Some(log) = &mut self.log {
            log.push(Change {
                key: key.into(),
                row: None,
            });
        }
        Ok(old)
    }

    /// Makes a logged change again.
    pub(crate) fn replay(&mut self, change: &Change) -> Result<(), Failure> {
        match &change.row {
            Some(row) => self.put(&change.key, row_codec::decode_head(row)?, row)?,
            None => self.remove(&change.key)?,
        };
        Ok(())
    }

    /// Removes the first rows between two keys, also damaged ones.
    pub(crate) fn remove_range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        prefix_len: usize,
        rows_max: u32,
        now: Timestamp,
    ) -> Result<Removed, Failure> {
        let mut removed = Removed::default();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for entry in self.rows.range::<&[u8]>(bounds)? {
            if keys.len() >= rows_max as usize {
                removed.has_more = true;
                break;
            }
            let (key, row) = entry?;
            let key = key.value().to_vec();
            if let Ok(row) = row_codec::decode(&key, row.value())
                && row.head.is_visible(now)
            {
                removed.visible_rows += 1;
                let sort_len = key.len().saturating_sub(prefix_len);
                removed.visible_bytes += (sort_len + row.value.len()) as u64;
            }
            keys.push(key);
        }
        for key in &keys {
            self.remove(key)?;
        }
        removed.rows = keys.len() as u64;
        if removed.has_more {
            let sort = |key: Vec<u8>| key.get(prefix_len..).map(Bytes::copy_from_slice);
            removed.resume_after = keys.pop().and_then(sort);
        }
        Ok(removed)
    }

    /// Brings the index in step with the changes so far, in order of the index.
    pub(crate) fn settle_index(&mut self) -> Result<(), Failure> {
        let mut gone = std::mem::take(&mut self.index_gone);
        let mut new = std::mem::take(&mut self.index_new);
        gone.sort_unstable();
        new.sort_unstable();
        for entry in &gone {
            self.expiry.remove(&entry[..])?;
        }
        for entry in &new {
            self.expiry.insert(&entry[..], ())?;
        }
        Ok(())
    }

    /// Removes up to `rows_max` rows that have expired, and their entries.
    pub(crate) fn sweep(&mut self, now: Timestamp, rows_max: usize) -> Result<Swept, Failure> {
        let mut swept = Swept::default();
        let beyond = now.0.saturating_add(1).to_be_bytes();
        let due = self.expiry.range::<&[u8]>(..&beyond[..])?.take(rows_max);
        let due = due
            .map(|entry| entry.map(|(entry, _)| entry.value().to_vec()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut keys: Vec<(&[u8], Timestamp)> = due
            .iter()
            .filter_map(|entry| split_expiry_entry(entry).map(|(at, key)| (key, at)))
            .collect();
        keys.sort_unstable();
        for (key, at) in keys {
            // The row may have been damaged, and the index with it: reclaim only what agrees.
            let is_due = match self.rows.get(key)? {
                Some(row) => row_codec::decode_head(row.value())
                    .is_ok_and(|head| head.expires_at == Some(at)),
                None => false,
            };
            if is_due {
                self.rows.remove(key)?;
                swept.rows += 1;
            }
        }
        for entry in &due {
            self.expiry.remove(&entry[..])?;
        }
        swept.next_expiry = next_expiry(&self.expiry)?;
        Ok(swept)
    }

    fn forget_expiry(&mut self, expires_at: Option<Timestamp>, key: &[u8]) {
        if let Some(at) = expires_at {
            self.index_gone.push(expiry_entry(at, key));
        }
    }
}

/// Returns the head of a replaced row. One that is damaged counts as a row without expiry: what
/// replaces it heals the damage.
fn head_of(old: Option<redb::AccessGuard<'_, &'static [u8]>>) -> Option<RowHead> {
    old.map(|row| {
        row_codec::decode_head(row.value()).unwrap_or(RowHead {
            version: umbo_types::Version(0),
            expires_at: None,
        })
    })
}
