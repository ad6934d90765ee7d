//! The idempotency records of one shard of the memory store.
//!
//! Records that are no longer in effect are forgotten when the namespace's records are full, and replaced.

use std::collections::BTreeMap;

use umbo_types::limits::IDEMPOTENCY_BYTES_MAX;
use umbo_types::{NamespaceId, PartitionKey, Timestamp};

use crate::error::WriteError;
use crate::idempotency::{DIGEST_LEN, Idempotency};
use crate::idempotency_record::IdempotencyRecord;

/// What a record is found by.
type IdempotencyRecordId = (NamespaceId, PartitionKey, [u8; DIGEST_LEN]);

#[derive(Debug, Default)]
pub(super) struct IdempotencyRecords {
    records: BTreeMap<IdempotencyRecordId, IdempotencyRecord>,
    /// Bytes by namespace.
    bytes: BTreeMap<NamespaceId, u64>,
}

impl IdempotencyRecords {
    pub(super) const fn new() -> Self {
        Self {
            records: BTreeMap::new(),
            bytes: BTreeMap::new(),
        }
    }

    /// Returns the record of an earlier request, or a new one, for this many mutations of a request.
    pub(super) fn begin(
        &mut self,
        id: &IdempotencyRecordId,
        idempotency: &Idempotency,
        mutations: usize,
        now: Timestamp,
    ) -> Result<IdempotencyRecord, WriteError> {
        if let Some(record) = self.records.get(id).filter(|one| one.keep_until > now) {
            if record.request != idempotency.request {
                return Err(WriteError::IdempotencyMismatch);
            }
            return Ok(record.clone());
        }
        let partition_len = id.1.as_bytes().len() as u64;
        let len = Idempotency::charged_bytes(partition_len, mutations as u64);
        let is_full = |bytes: Option<&u64>| bytes.unwrap_or(&0) + len > IDEMPOTENCY_BYTES_MAX;
        if is_full(self.bytes.get(&id.0)) {
            self.forget(|_, record| record.keep_until <= now);
        }
        if is_full(self.bytes.get(&id.0)) {
            let bytes_max = IDEMPOTENCY_BYTES_MAX;
            return Err(WriteError::IdempotencyFull { bytes_max });
        }
        Ok(IdempotencyRecord::begin(idempotency))
    }

    /// Keeps a record.
    pub(super) fn keep(&mut self, id: &IdempotencyRecordId, record: IdempotencyRecord) {
        *self.bytes.entry(id.0).or_default() += len(id, &record);
        if let Some(old) = self.records.insert(id.clone(), record) {
            *self.bytes.entry(id.0).or_default() -= len(id, &old);
        }
    }

    /// Forgets the records of the namespaces that have ended.
    pub(super) fn purge(&mut self, has_ended: impl Fn(NamespaceId) -> bool) {
        self.forget(|id, _| has_ended(id.0));
    }

    fn forget(&mut self, is_gone: impl Fn(&IdempotencyRecordId, &IdempotencyRecord) -> bool) {
        for (id, record) in self
            .records
            .extract_if(.., |id, record| is_gone(id, record))
        {
            *self.bytes.entry(id.0).or_default() -= len(&id, &record);
        }
    }
}

fn len(id: &IdempotencyRecordId, record: &IdempotencyRecord) -> u64 {
    (id.1.as_bytes().len() + DIGEST_LEN + record.encode().len()) as u64
}
