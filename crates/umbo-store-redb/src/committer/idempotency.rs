//! The idempotency records of one commit: the records that it read, and the records that it makes.
//!
//! Pure, like the plan. A request is decided by the record as it is after the earlier requests of the same commit, so
//! of two equal requests at the same time one is applied and the other is answered from its record. The invariant: a
//! stored record holds exactly the outcomes of the mutations that this file keeps in it.

use std::collections::BTreeMap;

use umbo_store::{Idempotency, IdempotencyRecord, StoreError, WriteError, Written};
use umbo_types::{NamespaceId, ShardId, Timestamp, Value, Version};

use crate::key_codec;
use crate::row_codec::{self, RowHead};
use crate::work::Op;

/// A stored idempotency record, as read before the commit is decided.
#[derive(Debug)]
pub(crate) enum StoredRecord {
    /// No record is in effect.
    None,
    /// The record that is in effect.
    Record(IdempotencyRecord),
    /// The bytes of the record cannot be decoded, for this reason.
    Damaged(String),
}

impl StoredRecord {
    /// Reads the record from a row of the table of records, as stored under `key`; `None` if there is no such row.
    pub(crate) fn read(key: &[u8], row: Option<&[u8]>, now: Timestamp) -> Self {
        let row = match row.map(|row| row_codec::decode(key, row)) {
            None => return Self::None,
            Some(Err(damage)) => return Self::Damaged(damage.to_string()),
            Some(Ok(row)) => row,
        };
        let Some(keep_until) = row.head.expires_at.filter(|&at| at > now) else {
            return Self::None;
        };
        let record = IdempotencyRecord::decode(row.value, keep_until);
        record.map_or_else(
            || Self::Damaged("an idempotency record cannot be decoded".to_owned()),
            Self::Record,
        )
    }
}

/// A record to be stored.
#[derive(Debug)]
pub(super) struct NewRecord<'a> {
    pub(super) key: &'a [u8],
    pub(super) head: RowHead,
    pub(super) value: Value,
}

#[derive(Debug)]
struct RecordEntry {
    stored: StoredRecord,
    is_changed: bool,
    refusal: Option<StoreError>,
}

/// The records of one commit, by key.
#[derive(Debug, Default)]
pub(super) struct RecordPlan {
    entries: BTreeMap<Vec<u8>, RecordEntry>,
    /// Bytes of the records of each namespace, including the records that this commit adds.
    bytes: BTreeMap<NamespaceId, u64>,
    bytes_max: u64,
}

impl RecordPlan {
    /// Adds the records that a write needs.
    pub(super) fn add(&mut self, idempotency: &Idempotency, ops: &[Op]) {
        for op in ops {
            let key = record_key(op, idempotency);
            self.entries.entry(key).or_insert(RecordEntry {
                stored: StoredRecord::None,
                is_changed: false,
                refusal: None,
            });
        }
    }

    /// Refuses the requests with one of these records.
    pub(super) fn leave_out(&mut self, keys: &BTreeMap<Vec<u8>, StoreError>) {
        for (key, entry) in &mut self.entries {
            entry.refusal = keys.get(key).cloned();
        }
    }

    /// Calls `read` for each record, in order, and `bytes_of` for each of their namespaces.
    pub(super) fn read<E>(
        &mut self,
        bytes_max: u64,
        mut read: impl FnMut(&[u8]) -> Result<StoredRecord, E>,
        mut bytes_of: impl FnMut(NamespaceId) -> Result<u64, E>,
    ) -> Result<(), E> {
        self.bytes_max = bytes_max;
        for (key, entry) in &mut self.entries {
            if entry.refusal.is_none() {
                entry.stored = read(key)?;
            }
            if let Some(namespace) = key_codec::namespace_of(key)
                && !self.bytes.contains_key(&namespace)
            {
                self.bytes.insert(namespace, bytes_of(namespace)?);
            }
        }
        Ok(())
    }

    /// Begins a request for some mutations of one partition. Returns the recorded answer of each mutation, or `None` if
    /// the mutation is not decided yet.
    pub(super) fn begin(
        &mut self,
        shard: ShardId,
        idempotency: &Idempotency,
        ops: &[&Op],
    ) -> Result<Vec<Option<Result<Written, WriteError>>>, WriteError> {
        let Some(first) = ops.first() else {
            return Ok(Vec::new());
        };
        let key = record_key(first, idempotency);
        let Some(entry) = self.entries.get_mut(&key) else {
            return Ok(vec![None; ops.len()]);
        };
        if let Some(error) = &entry.refusal {
            return Err(error.clone().into());
        }
        match &entry.stored {
            StoredRecord::Damaged(reason) => {
                let reason = reason.clone();
                return Err(StoreError::Corrupt { shard, reason }.into());
            }
            StoredRecord::Record(record) if record.request != idempotency.request => {
                return Err(WriteError::IdempotencyMismatch);
            }
            StoredRecord::Record(_) => {}
            StoredRecord::None => {
                let len = Idempotency::charged_bytes(key.len() as u64, ops.len() as u64);
                let bytes = key_codec::namespace_of(&key).and_then(|id| self.bytes.get_mut(&id));
                if let Some(bytes) = bytes {
                    if *bytes + len > self.bytes_max {
                        let bytes_max = self.bytes_max;
                        return Err(WriteError::IdempotencyFull { bytes_max });
                    }
                    *bytes += len;
                }
                entry.stored = StoredRecord::Record(IdempotencyRecord::begin(idempotency));
            }
        }
        let StoredRecord::Record(record) = &entry.stored else {
            return Ok(vec![None; ops.len()]);
        };
        let replay = |op: &&Op| record.replay(idempotency, op.index);
        Ok(ops.iter().map(replay).collect())
    }

    /// Records the answer to a mutation.
    pub(super) fn note(
        &mut self,
        idempotency: &Idempotency,
        op: &Op,
        answer: &Result<Written, WriteError>,
    ) {
        let entry = self.entries.get_mut(&record_key(op, idempotency));
        if let Some(entry) = entry
            && let StoredRecord::Record(record) = &mut entry.stored
        {
            record.note(idempotency, op.index, answer);
            entry.is_changed = true;
        }
    }

    /// Returns the records to be stored, in order of their keys.
    pub(super) fn changed(&self) -> impl Iterator<Item = NewRecord<'_>> {
        self.entries.iter().filter_map(|(key, entry)| {
            let StoredRecord::Record(record) = &entry.stored else {
                return None;
            };
            (entry.is_changed && !record.is_empty()).then(|| NewRecord {
                key,
                head: RowHead {
                    as_of: None,
                    version: Version(0),
                    expires_at: Some(record.keep_until),
                },
                value: Value {
                    bytes: record.encode(),
                    ..Value::default()
                },
            })
        })
    }
}

fn record_key(op: &Op, idempotency: &Idempotency) -> Vec<u8> {
    let mut key = key_codec::idempotency_key(op.partition(), &idempotency.id);
    key_codec::move_to(&mut key, op.identity);
    key
}
