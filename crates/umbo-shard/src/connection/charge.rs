//! Charging a request to the per-shard quotas, if there are any.

use umbo_protocol::{Answer, NodeError};
use umbo_store::{Change, StoreError, WriteRequest};
use umbo_types::{NamespaceId, Operation, ShardId};

use super::call::RequestCall;
use super::stream::ShardStream;
use crate::quota::{ActualWork, ChargeHandle, ShardCharge};
use crate::reads::Read;

/// The namespace, the operation, and the upper bounds of a charge.
pub(super) struct ChargeRequest {
    pub(super) namespace: NamespaceId,
    operation: Operation,
    /// Number of rows that the request names.
    parts: u32,
    rows_max: u64,
    bytes_max: Option<u64>,
    write_bytes: u64,
}

impl ChargeRequest {
    pub(super) fn read(namespace: NamespaceId, operation: Operation, rows_max: u64) -> Self {
        Self {
            namespace,
            operation,
            parts: 1,
            rows_max,
            bytes_max: None,
            write_bytes: 0,
        }
    }

    /// Describes a read.
    pub(super) fn of_read(read: &Read) -> Self {
        let chunk = |namespace, operation, rows_max: u32, bytes_max: u32| Self {
            bytes_max: Some(bytes_max.into()),
            ..Self::read(namespace, operation, rows_max.into())
        };
        match read {
            Read::Get(namespace, _) => Self::read(*namespace, Operation::Get, 1),
            Read::Chunk(_, request) => Self::read(request.namespace, Operation::Get, 0),
            // It is Umbo's own request, without a caller.
            Read::Backup(_) => Self::read(NamespaceId::SYSTEM, Operation::Scan, 0),
            Read::Range(request) => {
                let (rows_max, bytes_max) = (request.rows_max, request.bytes_max);
                chunk(request.namespace, Operation::Range, rows_max, bytes_max)
            }
            Read::MultiGet(namespace, keys) => {
                let read = Self::read(*namespace, Operation::MultiGet, keys.len() as u64);
                let parts = keys.len() as u32;
                Self { parts, ..read }
            }
            Read::Scan(_, request) => {
                let (rows_max, bytes_max) = (request.rows_max, request.bytes_max);
                chunk(request.namespace, Operation::Scan, rows_max, bytes_max)
            }
        }
    }

    pub(super) fn write(request: &WriteRequest, write_bytes: u64) -> Self {
        let operation = match &request.mutations[..] {
            [one] => match one.change {
                Change::Put { .. } | Change::Increment { .. } | Change::Upload(_) => Operation::Put,
                Change::Delete => Operation::Delete,
            },
            _ => Operation::BatchWrite,
        };
        Self {
            namespace: request.namespace,
            operation,
            parts: request.mutations.len() as u32,
            rows_max: request.mutations.len() as u64,
            bytes_max: None,
            write_bytes,
        }
    }
}

impl ShardStream {
    /// Charges a request of a caller for a shard; requests of Umbo itself are not charged.
    pub(super) fn charge(
        &self,
        call: &RequestCall,
        request: &ChargeRequest,
        shard: ShardId,
    ) -> Result<Option<Box<dyn ChargeHandle>>, NodeError> {
        let quota = self.node.quota().filter(|quota| quota.quota_count() > 0);
        let (Some(quota), Some(caller)) = (quota, &call.context.caller) else {
            return Ok(None);
        };
        let charge = ShardCharge {
            caller: caller.as_str(),
            attributes: call.context.attributes.as_deref(),
            namespace: request.namespace,
            operation: request.operation,
            share: (shard, request.parts),
            rows_max: Some(request.rows_max),
            bytes_max: request.bytes_max,
            write_bytes: request.write_bytes,
            is_continued: call.context.is_continued,
        };
        match quota.charge(&charge, call.begun) {
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

/// Charges the actual work of a request.
pub(super) fn settle(receipt: Option<Box<dyn ChargeHandle>>, answer: &Answer) {
    if let Some(receipt) = receipt {
        receipt.settle(ActualWork {
            rows: answer.rows,
            bytes: answer.bytes,
            service_time: answer.busy_time,
        });
    }
}
