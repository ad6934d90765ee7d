//! Charging a request to the ceilings of its shards, where there are any.

use umbo_protocol::NodeError;
use umbo_store::{Change, StoreError, WriteRequest};
use umbo_types::{Key, NamespaceId, Operation, ShardId};

use super::Exchange;
use super::serve::Asked;
use crate::ownership::Ownership;
use crate::quota::{Charge, Receipt};

/// What is charged: the namespace, what is done, and how much at most.
pub(super) struct Bill {
    pub(super) namespace: NamespaceId,
    pub(super) operation: Operation,
    rows_max: u64,
    bytes_max: Option<u64>,
    write_bytes: u64,
}

impl Bill {
    pub(super) fn read(namespace: NamespaceId, operation: Operation, rows_max: u64) -> Self {
        Self {
            namespace,
            operation,
            rows_max,
            bytes_max: None,
            write_bytes: 0,
        }
    }

    /// The same, of a read that is bounded.
    pub(super) fn within(self, bytes_max: u32) -> Self {
        Self {
            bytes_max: Some(bytes_max.into()),
            ..self
        }
    }

    pub(super) fn write(request: &WriteRequest, write_bytes: u64) -> Self {
        let operation = match &request.mutations[..] {
            [one] => match one.change {
                Change::Put { .. } => Operation::Put,
                Change::Delete => Operation::Delete,
            },
            _ => Operation::BatchWrite,
        };
        Self {
            namespace: request.namespace,
            operation,
            rows_max: request.mutations.len() as u64,
            bytes_max: None,
            write_bytes,
        }
    }
}

impl Exchange {
    /// Charges a request of a caller; Umbo's own work is not charged. `shares` is asked for only
    /// where there is a ceiling.
    pub(super) fn charge(
        &self,
        asked: &Asked,
        bill: &Bill,
        shares: impl FnOnce() -> Vec<(ShardId, u32)>,
    ) -> Result<Option<Box<dyn Receipt>>, NodeError> {
        let quota = self.node.quota().filter(|quota| quota.ceilings() > 0);
        let (Some(quota), Some(caller)) = (quota, &asked.call.caller) else {
            return Ok(None);
        };
        let shares = shares();
        let Some(&(shard, _)) = shares.first() else {
            return Ok(None);
        };
        let charge = Charge {
            caller: caller.as_str(),
            names: asked.call.names.as_deref(),
            namespace: bill.namespace,
            operation: bill.operation,
            shares: &shares,
            rows_max: Some(bill.rows_max),
            bytes_max: bill.bytes_max,
            write_bytes: bill.write_bytes,
            is_continued: asked.call.is_continued,
        };
        match quota.charge(&charge, asked.begun) {
            Ok(receipt) => Ok(Some(receipt)),
            Err(spent) => Err(NodeError::Store(StoreError::QuotaExceeded {
                shard,
                policy: spent.policy,
                retry_after: spent.retry_after,
                observed: Some(spent.observed),
            })),
        }
    }
}

/// Returns how many of the keys each shard has, of those that are served here.
pub(super) fn shares<'a>(
    ownership: &Ownership,
    namespace: NamespaceId,
    keys: impl Iterator<Item = &'a Key>,
) -> Vec<(ShardId, u32)> {
    let mut shares: Vec<(ShardId, u32)> = Vec::new();
    for key in keys {
        let Ok(shard) = ownership.locate(namespace, &key.partition) else {
            continue;
        };
        match shares.iter_mut().find(|(known, _)| *known == shard) {
            Some((_, parts)) => *parts += 1,
            None => shares.push((shard, 1)),
        }
    }
    shares
}
